"""The cases a run can be started of: those to pick from, and those a run did not pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from runs.models import Case, ResultStatus, Run, Suite
from runs.reports.past_usage import ENDED

MOST_SHOWN = 50
LONGEST_QUERY = 200
PASSED = "pass"


@dataclass(frozen=True, slots=True)
class CaseOption:
    """A case to pick."""

    key: str
    title: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class CasePick:
    """The cases shown to pick from, chosen ones first; `others` are keys chosen beside them.

    `found` of `total` cases have the text of the query in key or title.
    """

    options: Sequence[CaseOption]
    others: Sequence[str]
    text: str
    found: int
    total: int


def case_pick(suite: Suite, text: str, chosen: Collection[str]) -> CasePick:
    """Return what a search among the suite's cases shows; one query."""
    text = text.strip()[:LONGEST_QUERY]
    rows = list(_current(suite).values_list("key", "title"))
    sought = text.casefold()
    fitting = [row for row in rows if sought in f"{row[0]} {row[1]}".casefold()]
    wanted = set(chosen)
    # Those ticked already stay in sight when another text is sought.
    ticked = [row for row in rows if row[0] in wanted][:MOST_SHOWN]
    shown = ticked + [row for row in fitting if row[0] not in wanted][:MOST_SHOWN]
    listed = {key for key, _ in ticked}
    return CasePick(
        options=[CaseOption(key, title, key in listed) for key, title in shown],
        others=[key for key in chosen if key not in listed],
        text=text,
        found=len(fitting),
        total=len(rows),
    )


def outcomes_by_key(suite: Suite) -> dict[str, bool]:
    """Return the keys of the current cases, in order, with whether outcomes are expected of them."""
    return {
        key: bool(outcomes)
        for key, outcomes in _current(suite).values_list("key", "expected_outcomes")
    }


def last_ended(suite: Suite) -> Run | None:
    """Return the newest run that was carried out and is over, without its long columns."""
    ended = suite.runs.filter(status__in=ENDED, done_count__gt=0, source_run=None)
    return ended.defer("snapshot", "summary", "leaf_scores").order_by("-number").first()


def not_passed_in(run: Run) -> list[str]:
    """Return the keys of the cases with a repetition that failed, was borderline or errored."""
    scored = Q(status=ResultStatus.SCORED) & ~Q(verdict=PASSED)
    found = run.results.filter(scored | Q(status=ResultStatus.ERROR)).order_by("position")
    return list(dict.fromkeys(found.values_list("case__key", flat=True)))


def keys_of_run(run: Run) -> list[str]:
    """Return the keys of the cases that a run was of."""
    found = run.results.filter(repetition=1).order_by("position")
    return list(dict.fromkeys(found.values_list("case__key", flat=True)))


def _current(suite: Suite) -> QuerySet[Case]:
    return suite.cases.filter(is_current=True).order_by("position", "id")
