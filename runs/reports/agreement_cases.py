"""The reviewed cases behind a figure of agreement, those in which machine and people differ most first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runs.models import Result, Review
from runs.reports.agreement_query import AgreementQuery
from runs.reports.judge_agreement import Judged, JudgeFigures

ON_A_PAGE = 50
UNKNOWN = "a former member"


@dataclass(frozen=True, slots=True)
class ReviewedRow:
    """One reviewed execution: what both said, its score (0 to 1 or None), who decided and what they noted.

    `times` is how many decisions on it fall into what is listed: several outcomes of one execution may.
    """

    judged: Judged
    title: str
    reviewers: str
    note: str
    times: int = 1

    @property
    def is_same(self) -> bool:
        """Tell whether machine and people agree."""
        return self.judged.pair.machine == self.judged.pair.person


@dataclass(frozen=True, slots=True)
class CaseTable:
    """One page of the reviewed executions that a query leaves, and the way to the others."""

    rows: Sequence[ReviewedRow]
    total: int
    shown_to: int
    earlier: str
    later: str


def case_table(figures: JudgeFigures, query: AgreementQuery) -> CaseTable:
    """Return the executions of a cell, else all of one judge; two queries where there is any."""
    places = {name: place for place, name in enumerate(figures.agreement.categories)}
    asked = [
        one
        for one in figures.judged
        if query.machine in ("", one.pair.machine) and query.person in ("", one.pair.person)
    ]
    asked.sort(key=lambda one: -abs(places[one.pair.machine] - places[one.pair.person]))
    times = Counter(one.result for one in asked)
    first: dict[int, Judged] = {}
    for one in asked:
        first.setdefault(one.result, one)
    every = list(first.values())
    last = max(-(-len(every) // ON_A_PAGE), 1)
    page = min(query.page, last)
    start = (page - 1) * ON_A_PAGE
    shown = every[start : start + ON_A_PAGE]
    return CaseTable(
        rows=_rows(shown, times),
        total=len(every),
        shown_to=start + len(shown),
        earlier=replace(query, page=page - 1).address if page > 1 else "",
        later=replace(query, page=page + 1).address if page < last else "",
    )


def _rows(shown: Sequence[Judged], times: Mapping[int, int]) -> list[ReviewedRow]:
    ids = [one.result for one in shown]
    if not ids:
        return []
    titles = dict(Result.objects.filter(pk__in=ids).values_list("pk", "case__title"))
    who: dict[int, list[str]] = {}
    notes: dict[int, list[str]] = {}
    reviews = Review.objects.standing().filter(result__in=ids).select_related("reviewer")
    for review in reviews.order_by("id"):
        who.setdefault(review.result_id, []).append(review.reviewer_word or UNKNOWN)
        if review.note:
            notes.setdefault(review.result_id, []).append(review.note)
    return [
        ReviewedRow(
            one,
            titles.get(one.result, ""),
            ", ".join(who.get(one.result, ())),
            "\n".join(notes.get(one.result, ())),
            times[one.result],
        )
        for one in shown
    ]
