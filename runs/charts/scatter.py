"""The scores of two runs against each other: a point for each case, below the diagonal where it got worse."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations

from evaluators.templatetags import figures
from runs.charts.distributions import SCORE_TICK, CaseFigures, Side
from runs.charts.drawing import (
    SYMBOLS,
    Drawing,
    LegendEntry,
    Mark,
    Picture,
    PictureColumn,
    PictureRow,
    Spot,
    line,
    point,
    text,
)
from runs.filters.language import MAX_LENGTH, FieldComparison, Operator

HEIGHT, TOP, BASE = 464, 8.0, 424.0
# Cases closer than this share a point; the more cases, the coarser.
GRIDS = ((300, 0.005), (2_000, 0.02))
COARSEST = 0.04
SMALLEST, LARGEST = 5.5, 15.0
# The table lists the cases that changed most.
LISTED = 100
WORSE, BETTER, SAME = "worse", "better", "same"
# From the better verdict of each pair to the worse.
FALLS = tuple(combinations(("pass", "borderline", "fail"), 2))
CHANGES = dict.fromkeys(FALLS, WORSE) | {(low, high): BETTER for high, low in FALLS}
# A changed verdict has a shape of its own, so that its colour need not be seen.
SHAPES: Mapping[str, tuple[str, str]] = {
    SAME: ("circle", "Same verdict"),
    BETTER: ("triangle", "Better verdict"),
    WORSE: ("square", "Worse verdict"),
}


# Not frozen, as CaseFigures.
@dataclass(slots=True)
class CasePair:
    """A case with a score in both runs."""

    key: str
    before: float
    after: float
    verdicts: tuple[str, str]

    @property
    def change(self) -> str:
        """Tell whether its verdict is worse, better or the same."""
        return CHANGES.get(self.verdicts, SAME)


def score_pairs(
    baseline: Sequence[CaseFigures], candidate: Sequence[CaseFigures]
) -> list[CasePair]:
    """Return the cases that have a score in both runs, in the order of the candidate."""
    before = {case.key: case for case in baseline}
    return [
        CasePair(case.key, old.score, case.score, (old.state, case.state))
        for case in candidate
        if (old := before.get(case.key)) and old.score is not None and case.score is not None
    ]


def scatter(
    baseline: Side,
    candidate: Side,
    *,
    scale: int,
    case_address: Callable[[str], str],
    address: Callable[[str], str],
) -> Picture:
    """Return score against score; a point opens its case, one of several cases lists them."""
    pairs = score_pairs(baseline.cases, candidate.cases)
    keys = {case.key for side in (baseline, candidate) for case in side.cases}
    picture = Picture(
        name="scatter",
        title=f"Score in {candidate.name} against {baseline.name}",
        note=f"{figures.thousands(len(pairs))} of {figures.counted(len(keys), 'case')}",
        empty="No case has a score in both runs.",
    )
    if not pairs:
        return picture
    lowest = min(min(pair.before, pair.after) for pair in pairs)
    low = float(min(Decimal(repr(lowest)) // SCORE_TICK * SCORE_TICK, Decimal("0.8")))
    changes = Counter(pair.change for pair in pairs)
    below = sum(pair.after < pair.before for pair in pairs)
    by_change = sorted(pairs, key=lambda pair: pair.after - pair.before)
    return Picture(
        name=picture.name,
        title=picture.title,
        note=picture.note,
        label=(
            f"Score in {candidate.name} against score in {baseline.name}: {figures.counted(below, 'case')} lower, "
            f"{changes[WORSE]} with a worse verdict, {changes[BETTER]} with a better one"
        ),
        drawing=Drawing(
            HEIGHT,
            _axes(low, scale, baseline.name, candidate.name),
            _spots(pairs, low, scale, (baseline.name, candidate.name), case_address, address),
        ),
        legend=[
            LegendEntry(f"pair {kind}", words, SYMBOLS[symbol].format(5, 10))
            for kind, (symbol, words) in SHAPES.items()
        ],
        caption="Cases by the change of their score, the largest drop first"
        + (f"; the first {LISTED}" if len(pairs) > LISTED else ""),
        columns=[
            PictureColumn("Case", "case", is_number=False),
            PictureColumn(f"In {baseline.name}", "score_before"),
            PictureColumn(f"In {candidate.name}", "score_after"),
            PictureColumn("Change", "change"),
        ],
        rows=[
            _row(pair, scale, case_address if place < LISTED else None)
            for place, pair in enumerate(by_change)
        ],
        listed=LISTED,
    )


def _row(pair: CasePair, scale: int, case_address: Callable[[str], str] | None) -> PictureRow:
    """Return a row of the table; one that only the file has needs no texts and no address."""
    change = pair.after - pair.before
    values = [pair.key, pair.before, pair.after, change]
    if case_address is None:
        return PictureRow((), values)
    scores = (figures.score(score, scale) for score in (pair.before, pair.after))
    return PictureRow(
        [pair.key, *scores, figures.delta(change, "score")], values, case_address(pair.key)
    )


def _place(score: float, low: float) -> float:
    return (score - low) / (1 - low)


def _axes(low: float, scale: int, baseline: str, candidate: str) -> list[Mark]:
    marks: list[Mark] = []
    ticks = [low + 0.2 * step for step in range(round((1 - low) / 0.2) + 1)]
    for tick in ticks:
        x = _place(tick, low)
        y = BASE - (BASE - TOP) * x
        words = figures.bound(round(tick, 9), scale)
        marks.append(line((0, y), (1, y), "grid"))
        marks.append(line((x, TOP), (x, BASE), "grid"))
        marks.append(text(0, y + 4, words, anchor="end", shift=-8))
        marks.append(text(x, BASE + 18, words, anchor="end" if x > 0.97 else "middle"))
    marks.append(line((0, BASE), (1, TOP), "limit"))
    marks.append(text(0.5, BASE + 36, f"Score in {baseline}"))
    marks.append(text(0, TOP + 10, f"better in {candidate}", anchor="start", shift=6))
    marks.append(text(1, BASE - 8, f"worse in {candidate}", anchor="end", shift=-6))
    return marks


def _spots(
    pairs: Sequence[CasePair],
    low: float,
    scale: int,
    names: tuple[str, str],
    case_address: Callable[[str], str],
    address: Callable[[str], str],
) -> list[Spot]:
    """Return the points from left to right, large ones first so that they hide no small ones."""
    size = next((size for most, size in GRIDS if len(pairs) <= most), COARSEST)
    groups: dict[tuple[int, int, str], list[CasePair]] = defaultdict(list)
    for pair in pairs:
        groups[round(pair.before / size), round(pair.after / size), pair.change].append(pair)
    spots = []
    for (across, up, change), group in sorted(groups.items()):
        x = min(_place(across * size, low), 1.0)
        y = BASE - (BASE - TOP) * min(_place(up * size, low), 1.0)
        radius = min(SMALLEST + math.sqrt(len(group) - 1) * 1.2, LARGEST)
        mark = point(x, y, round(radius, 1), symbol=SHAPES[change][0], kind=f"pair {change}")
        spots.append(
            (radius, Spot(_label(group, scale, names), _url(group, case_address, address), [mark]))
        )
    # Only cases of the same verdict are many at one place, and those that changed lie above them.
    return [spot for _, spot in sorted(spots, key=lambda found: -found[0])]


def _label(group: Sequence[CasePair], scale: int, names: tuple[str, str]) -> str:
    first = group[0]
    change = f"{figures.score(first.before, scale)} in {names[0]}, {figures.score(first.after, scale)} in {names[1]}"
    words = "" if first.change == SAME else f", {SHAPES[first.change][1].lower()}"
    if len(group) == 1:
        return f"{first.key}: {change}{words}"
    return f"{figures.counted(len(group), 'case')} near {change}{words}"


def _url(
    group: Sequence[CasePair], case_address: Callable[[str], str], address: Callable[[str], str]
) -> str:
    """Return the address of a case, or of the list of several; too many to name have none."""
    if len(group) == 1:
        return case_address(group[0].key)
    if sum(len(pair.key) for pair in group) > MAX_LENGTH:
        return ""
    named = str(FieldComparison("case", Operator.EQUAL, tuple(pair.key for pair in group)))
    return address(named) if len(named) <= MAX_LENGTH else ""
