"""What narrows the cases of a comparison: filters with their counts, and the matrix of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluators.scoring.types import Verdict
from runs.comparison import CaseChange
from runs.reports.compared import Compared
from runs.reports.comparison_query import (
    ADDED,
    CHANGED,
    ERRORED,
    EVERY,
    FLIPPED,
    IMPROVED,
    REGRESSED,
    REMOVED,
    UNCHANGED,
    ComparisonQuery,
)

KINDS = {
    "regression": (REGRESSED, "Regressed", "i-drop", "bad"),
    "improvement": (IMPROVED, "Improved", "i-rise", "good"),
    "unchanged": (UNCHANGED, "Unchanged", "i-same", "same"),
    "error": (ERRORED, "Errored", "v-error", "error"),
    "added": (ADDED, "Added", "i-plus", "same"),
    "removed": (REMOVED, "Removed", "i-minus", "same"),
}
VERDICTS = (Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL)
DEPTHS = {verdict: place for place, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True)
class ChangeChip:
    """A filter, how many cases it leaves and where it leads."""

    label: str
    show: str
    count: int
    url: str
    is_on: bool
    icon: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the matrix: how many cases, the tone of the change, and its filter."""

    count: int
    tone: str
    is_same: bool
    url: str
    is_on: bool
    words: str


def is_shown(one: CaseChange, query: ComparisonQuery) -> bool:
    """Tell whether a filter leaves a case; the text that is searched for is another question."""
    if query.cell and _cell(one) != query.cell:
        return False
    kind = KINDS[one.status][0]
    if query.show == CHANGED:
        return kind != UNCHANGED
    return query.show == EVERY or kind == query.show or (query.show == FLIPPED and _is_flip(one))


def chips(found: Compared, query: ComparisonQuery) -> list[ChangeChip]:
    """Return the filters in the order of harm, with the changed ones first and all last."""
    counts = Counter(KINDS[one.status][0] for one in found.cases)
    total = len(found.cases)

    def chip(label: str, show: str, count: int, icon: str = "", tone: str = "") -> ChangeChip:
        is_on = query.show == show and not query.cell
        url = query.address(show=show, cell="")
        return ChangeChip(label, show, count, url, is_on, icon, tone)

    return [
        chip("Changed", CHANGED, total - counts[UNCHANGED]),
        *(
            chip(label, show, counts[show], icon, "" if tone == "same" else tone)
            for show, label, icon, tone in KINDS.values()
        ),
        chip("Verdict flips", FLIPPED, sum(map(_is_flip, found.cases))),
        chip("All", EVERY, total),
    ]


def matrix(found: Compared, query: ComparisonQuery) -> Sequence[tuple[str, Sequence[Cell]]]:
    """Return a row a verdict of the baseline with a cell a verdict of the candidate."""
    counts = Counter(_cell(one) for one in found.cases)
    return [
        (before.value, [_matrix_cell(before, after, counts, query) for after in VERDICTS])
        for before in VERDICTS
    ]


def _matrix_cell(
    before: Verdict, after: Verdict, counts: Mapping[str, int], query: ComparisonQuery
) -> Cell:
    name, moved = f"{before.value}-{after.value}", DEPTHS[after] - DEPTHS[before]
    is_on, count = query.cell == name, counts.get(name, 0)
    return Cell(
        count=count,
        tone="" if not count or not moved else "bad" if moved > 0 else "good",
        is_same=not moved,
        url=query.address(cell="" if is_on else name, show=CHANGED if is_on else EVERY),
        is_on=is_on,
        words=f"{before.value} before, {after.value} now",
    )


def _cell(one: CaseChange) -> str:
    before, after = one.baseline, one.candidate
    if before is None or after is None or before.verdict is None or after.verdict is None:
        return ""
    return f"{before.verdict.value}-{after.verdict.value}"


def _is_flip(one: CaseChange) -> bool:
    before, _, after = _cell(one).partition("-")
    return before != after
