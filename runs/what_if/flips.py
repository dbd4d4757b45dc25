"""Flips of a what-if as a page lists them: the most harmful first, filtered, a page at a time, or as a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from evaluators.templatetags import figures
from evaluators.templatetags.marks import VERDICT_WORDS
from runs import lists
from runs.formats.tables import csv_text
from runs.lists import Chip, ListQuery, NumberedPage, numbered_page
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
class FlipQuery(ListQuery):
    """Which flips are listed: a change as `pass-fail`, or only those that contradict a review."""

    run: str = lists.setting(max_length=9)
    change: str = lists.text(max_length=40)
    review: str = lists.choice((CONTRADICTED,))
    page: int = lists.page_number()


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
class FlipTable:
    """A page of flips, the filters, and how many there are with and without them."""

    query: FlipQuery
    rows: Sequence[FlipRow]
    chips: Sequence[Chip]
    pages: NumberedPage[CaseFlip]


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
    pages = numbered_page(filtered(found, query), query, ON_A_PAGE, path)
    return FlipTable(
        query=query,
        rows=rows_of(pages.rows, run, reader),
        chips=_chips(found, query, path),
        pages=pages,
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


def _chips(found: WhatIf, query: FlipQuery, path: str) -> list[Chip]:
    counts = Counter(_change(flip) for flip in by_harm(found.flips))
    contradicted = sum(flip.review == CONTRADICTED for flip in found.flips)
    labels = {change: _change_words(change) for change in counts}
    chips = [query.chip("All", len(found.flips), path=path, change="", review="")]
    chips += [
        query.chip(label, counts[change], path=path, change=change, review="")
        for change, label in labels.items()
    ]
    if contradicted:
        sets = {"change": "", "review": CONTRADICTED}
        chips.append(query.chip("Contradicts a review", contradicted, path=path, **sets))
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
