"""The scores of a run before and after a change as a histogram with the bands drawn in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evaluators.scoring.numbers import rounded
from evaluators.templatetags import figures
from runs.what_if import Band, Bin, Histogram

WIDE, NARROW = 760, 330
TOP, BASE = 26.0, 110.0
GAP = 0.08
TICK = 0.2
LABEL_ROOM = 104
# Where the words of a band stand, the lower band's under the upper one's, so that they never meet.
WORDS_AT = {"pass": 9, "borderline": 20, "fallback": 9}


@dataclass(frozen=True, slots=True)
class Bar:
    """One upright rectangle in units of its drawing; `verdict` is the band it lies in, "" without bands."""

    verdict: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the axis with its words; `anchor` is where the words begin: start, middle or end."""

    x: str
    words: str = ""
    words_x: str = ""
    y: int = 0
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Drawing:
    """One size of the drawing. `outlines` are the bars before, where they differ; `old` the bands before."""

    width: int
    bars: Sequence[Bar]
    outlines: Sequence[Bar]
    ticks: Sequence[Mark]
    bands: Sequence[Mark]
    old: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class BinRow:
    """One line of the table under the drawing."""

    scores: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ScoreHistogram:
    """Both sizes of the drawing, what it shows in words, and its table."""

    wide: Drawing
    narrow: Drawing
    label: str
    rows: Sequence[BinRow]

    @property
    def has_outlines(self) -> bool:
        """Tell whether any bar was higher or lower before."""
        return bool(self.wide.outlines)

    @property
    def has_old_bands(self) -> bool:
        """Tell whether a band was elsewhere before."""
        return bool(self.wide.old)


def score_histogram(found: Histogram, scale: int) -> ScoreHistogram:
    """Return the drawing of executions by score; bands and ticks are spelt on the suite's scale."""
    rows = [
        BinRow(
            f"{figures.score(one.low, scale)} to {figures.score(one.high, scale)}",
            one.before,
            one.after,
        )
        for one in found.bins
        if one.before or one.after
    ]
    bands = ", ".join(
        f"{one.name} from {figures.bound(one.limit, scale)}" for one in found.bands_after
    )
    count = sum(one.after for one in found.bins)
    return ScoreHistogram(
        wide=_drawn(found, WIDE, scale),
        narrow=_drawn(found, NARROW, scale),
        label=f"Histogram of the scores of {figures.counted(count, 'execution')}; {bands}",
        rows=rows,
    )


def _drawn(found: Histogram, width: int, scale: int) -> Drawing:
    low = _lowest(found)
    most = max((max(one.before, one.after) for one in found.bins), default=0) or 1

    def at(score: float) -> float:
        return (score - low) / (1 - low) * width

    def bar(verdict: str, left: float, right: float, count: int) -> Bar:
        height = (BASE - TOP) * count / most
        texts = (at(left), BASE - height, at(right) - at(left), height)
        return Bar(verdict, *(f"{one:.1f}" for one in texts))

    bars, outlines = [], []
    for one in found.bins:
        if one.after:
            parts = _parts(one, found.bands_after)
            bars += [bar(verdict, left, right, one.after) for verdict, left, right in parts]
        if one.before and one.before != one.after:
            left, right = _inside(one)
            outlines.append(bar("", left, right, one.before))
    after = {one.name: one.limit for one in found.bands_after}
    old = [one for one in found.bands_before if after.get(one.name) != one.limit]
    return Drawing(
        width=width,
        bars=bars,
        outlines=outlines,
        ticks=[_tick(score, at(score), width, scale) for score in _ticks(low)],
        bands=[_band(one, at(one.limit), scale) for one in found.bands_after],
        old=[Mark(f"{at(one.limit):.1f}") for one in old],
    )


def _lowest(found: Histogram) -> float:
    """Return where the axis begins: a tick at or below everything that is drawn."""
    drawn = [one.low for one in found.bins if one.before or one.after]
    drawn += [one.limit for one in (*found.bands_before, *found.bands_after)]
    ticks = int(rounded(min(drawn, default=0.0) / TICK))
    return rounded(min(ticks, 4) * TICK)


def _ticks(low: float) -> Iterator[float]:
    first = round(low / TICK)
    yield from (rounded(number * TICK) for number in range(first, round(1 / TICK) + 1))


def _inside(one: Bin) -> tuple[float, float]:
    gap = (one.high - one.low) * GAP / 2
    return one.low + gap, one.high - gap


def _parts(one: Bin, bands: Sequence[Band]) -> list[tuple[str, float, float]]:
    """Return a bar in parts, cut where a band begins inside it."""
    left, right = _inside(one)
    cuts = sorted({band.limit for band in bands if left < band.limit < right})
    ends = [left, *cuts, right]
    return [(_verdict((start + end) / 2, bands), start, end) for start, end in pairwise(ends)]


def _verdict(score: float, bands: Sequence[Band]) -> str:
    """Return the band a score lies in, "" where scores alone do not decide."""
    limits = {one.name: one.limit for one in bands}
    if "pass" not in limits:
        return ""
    if score >= limits["pass"]:
        return "pass"
    return "borderline" if score >= limits["borderline"] else "fail"


def _tick(score: float, x: float, width: int, scale: int) -> Mark:
    anchor = "start" if x <= 1 else "end" if x >= width - 1 else "middle"
    return Mark(f"{x:.1f}", figures.score(score, scale), anchor=anchor)


def _band(one: Band, x: float, scale: int) -> Mark:
    words, y = f"{one.name} {figures.bound(one.limit, scale)}", WORDS_AT[one.name]
    if x > LABEL_ROOM:
        return Mark(f"{x:.1f}", words, f"{x - 5:.1f}", y, "end")
    return Mark(f"{x:.1f}", words, f"{x + 5:.1f}", y, "start")
