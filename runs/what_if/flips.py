"""Flips of a what-if as a page lists them: the most harmful first, filtered, a page at a time, or as a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User

from evaluators.templatetags import figures
from evaluators.templatetags.marks import VERDICT_WORDS
from runs.formats.tables import csv_text
from runs.models.reviews import Review
from runs.models.runs import Run
from runs.models.suites import Case
from runs.what_if.figures import CaseFlip, WhatIf
from runs.what_if.panel import state_shown

SHOWN_ALONGSIDE = 20
ON_A_PAGE = 100
RANKS = {"pass": 3, "borderline": 2, "fail": 1, "error": 0}
CONTRADICTED = "contradicted"
COLUMNS = (
    *("case", "title", "repetition", "verdict_before", "verdict_after"),
    *("score_before", "score_after", "decided_before", "decided_after", "reviewed", "review"),
)


@dataclass(frozen=True, slots=True)
class FlipQuery:
    """What the page of all flips is asked for: a change as `pass-fail`, only contradicted reviews, a page."""

    run: str = ""
    change: str = ""
    review: str = ""
    page: int = 1

    @classmethod
    def read(cls, values: Mapping[str, str]) -> FlipQuery:
        """Return the query of an address; what cannot be read is left out."""
        page = values.get("page", "")
        return cls(
            run=values.get("run", "")[:9],
            change=values.get("change", "")[:40],
            review=CONTRADICTED if values.get("review") == CONTRADICTED else "",
            page=max(int(page), 1) if page.isdecimal() and len(page) < 6 else 1,
        )

    @property
    def address(self) -> str:
        """Return the query as an address has it."""
        pairs = {"run": self.run, "change": self.change, "review": self.review}
        found = {name: value for name, value in pairs.items() if value}
        if self.page > 1:
            found["page"] = str(self.page)
        return f"?{urlencode(found)}" if found else ""

    def with_(self, **changes: Any) -> FlipQuery:
        """Return the query with some of it changed, from the first page on."""
        return replace(self, **{"page": 1, **changes})


@dataclass(frozen=True, slots=True)
class FlipRow:
    """One case that flips. `count` says how many of its executions do, where it has several."""

    flip: CaseFlip
    title: str
    result: tuple[str, int]
    count: str
    review: str
    tone: str

    @property
    def states(self) -> tuple[str, str]:
        """Return the marks of both sides."""
        return state_shown(self.flip.before.state), state_shown(self.flip.after.state)


@dataclass(frozen=True, slots=True)
class FlipChip:
    """One filter of the flips with how many it leaves."""

    label: str
    count: int
    url: str
    is_on: bool


@dataclass(frozen=True, slots=True)
class FlipTable:
    """A page of flips, the filters, and how many there are with and without them."""

    query: FlipQuery
    rows: Sequence[FlipRow]
    chips: Sequence[FlipChip]
    total: int
    shown_to: int
    earlier_url: str
    later_url: str


def by_harm(flips: Sequence[CaseFlip]) -> list[CaseFlip]:
    """Return flips with the most harmful first: contradicted reviews, then the deepest falls, rises last.

    A case whose own verdict stays, only that of an execution moving, comes after those that flip.
    """

    def harm(flip: CaseFlip) -> tuple[bool, bool, int]:
        ranks = [RANKS.get(stand.state) for stand in (flip.before, flip.after)]
        moved = 0 if None in ranks else (ranks[1] or 0) - (ranks[0] or 0)
        return flip.review != CONTRADICTED, not flip.is_flip, moved

    return sorted(flips, key=harm)


def rows_of(flips: Sequence[CaseFlip], run: Run, reader: User) -> list[FlipRow]:
    """Return rows with titles and whose review it is; two queries."""
    titles = dict(
        Case.objects.filter(pk__in=[flip.case for flip in flips]).values_list("pk", "title")
    )
    reviewed = [one.result for flip in flips for one in flip.executions if one.reviewed]
    own = set(
        Review.objects.filter(
            result_id__in=reviewed, reviewer=reader, withdrawn_at=None
        ).values_list("result_id", flat=True)
    )
    return [_row(flip, titles.get(flip.case, ""), run, own) for flip in flips]


def flip_table(found: WhatIf, run: Run, query: FlipQuery, reader: User, path: str) -> FlipTable:
    """Return the page of flips that an address asks for; `path` is the address without its query."""
    asked = filtered(found, query)
    last = max(-(-len(asked) // ON_A_PAGE), 1)
    page = min(query.page, last)
    start = (page - 1) * ON_A_PAGE
    shown = asked[start : start + ON_A_PAGE]
    return FlipTable(
        query=query,
        rows=rows_of(shown, run, reader),
        chips=list(_chips(found, query, path)),
        total=len(asked),
        shown_to=start + len(shown),
        earlier_url=path + replace(query, page=page - 1).address if page > 1 else "",
        later_url=path + replace(query, page=page + 1).address if page < last else "",
    )


def filtered(found: WhatIf, query: FlipQuery) -> list[CaseFlip]:
    """Return the flips a query leaves, the most harmful first."""
    return [
        flip
        for flip in by_harm(found.flips)
        if query.change in ("", _change(flip)) and query.review in ("", flip.review)
    ]


def flips_file(flips: Sequence[CaseFlip]) -> str:
    """Return flips as CSV, one line an execution that flips, exact scores."""
    titles = dict(
        Case.objects.filter(pk__in=[flip.case for flip in flips]).values_list("pk", "title")
    )
    return csv_text(
        COLUMNS,
        (
            (
                *(flip.key, titles.get(flip.case, ""), one.repetition),
                *(one.before.state, one.after.state, one.before.score, one.after.score),
                *(one.before.decided_by, one.after.decided_by, one.reviewed, one.review),
            )
            for flip in flips
            for one in flip.executions
        ),
    )


def _row(flip: CaseFlip, title: str, run: Run, own: set[int]) -> FlipRow:
    review = next((one for one in flip.executions if one.review == flip.review), None)
    words, tone = "", ""
    if review is not None and flip.review:
        whose = "your review" if review.result in own else "a review"
        if flip.review == CONTRADICTED:
            words, tone = f"contradicts {whose}: {review.reviewed}", "bad"
        else:
            words = f"{whose}: {review.reviewed}"
    repetition = flip.executions[0].repetition if flip.executions else 1
    several = run.repetitions > 1 and flip.executions
    count = f"{len(flip.executions)} of {run.repetitions} repetitions flip" if several else ""
    return FlipRow(flip, title, (flip.key, repetition), count, words, tone)


def _change(flip: CaseFlip) -> str:
    if not flip.is_flip:
        return "inside"
    return f"{flip.before.state}-{flip.after.state}"


def _chips(found: WhatIf, query: FlipQuery, path: str) -> list[FlipChip]:
    counts = Counter(_change(flip) for flip in by_harm(found.flips))
    contradicted = sum(flip.review == CONTRADICTED for flip in found.flips)
    every = query.with_(change="", review="")
    chips = [FlipChip("All", len(found.flips), path + every.address, every == query.with_())]
    for change, count in counts.items():
        asked = every.with_(change=change)
        chips.append(
            FlipChip(_change_words(change), count, path + asked.address, query.change == change)
        )
    if contradicted:
        asked = every.with_(review=CONTRADICTED)
        chips.append(
            FlipChip("Contradicts a review", contradicted, path + asked.address, bool(query.review))
        )
    return chips


def _change_words(change: str) -> str:
    if change == "inside":
        return "A repetition alone"
    before, _, after = change.partition("-")
    return f"{_word(before)} → {_word(after).lower()}"


def _word(state: str) -> str:
    return VERDICT_WORDS[state_shown(state)]


def all_shown(count: int) -> str:
    """Say how many flips there are, for the button that leads to all of them."""
    return f"Show all {figures.thousands(count)}"
