"""Runs of a suite one after another: the trend of each target, and metrics and dimensions as dots."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evaluators.templatetags import figures
from evaluators.templatetags.marks import VERDICT_WORDS
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
    rect,
    text,
)

# Two points are a difference, and no trend.
LEAST_TREND = 3
HEIGHT, TOP, BASE = 286, 22.0, 196.0
STRIP_TOP, STRIP_BASE = 214.0, 256.0
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)
MAX_LINES = 5
SIZE = 5
# The targets that ran last have a look each, the rest one in common.
LOOKS = (
    *(("s1", "circle"), ("s2", "square"), ("s3", "diamond"), ("s4", "triangle"), ("s5", "circle")),
)
OTHERS = ("others", "circle")
VERDICTS = ("pass", "borderline", "fail", "error")
# A column of verdicts takes this part of the room of its run, and no more of the width.
STRIP_WIDTH, WIDEST = 0.6, 0.04
# How many numbers of runs have room below the picture.
MAX_NUMBERS = {"wide": 12, "narrow": 6}
MAX_VERSIONS = 6
# Labels at the ends of lines, which stay apart.
END_HEIGHT, MAX_END = 15.0, 24
SHOWN: Mapping[str, str] = {"score": "Mean score", "rate": "Pass rate"}

Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class TrendFigure:
    """The mean score or the pass rate of a run as a share, None where it has none, with its 95% interval."""

    share: float | None
    interval: Interval = None
    is_below: bool = False

    @property
    def text(self) -> str:
        """Return it in words: `80.0% (95% CI 70.0% to 90.0%), below its gate`."""
        within = f" (95% CI {figures.interval(self.interval)})" if self.interval else ""
        return f"{figures.pct(self.share)}{within}{', below its gate' if self.is_below else ''}"


@dataclass(frozen=True, slots=True)
class TrendRun:
    """A completed run with both of its figures, and its cases by verdict."""

    number: int
    url: str
    target: str
    suite_version: int
    score: TrendFigure
    rate: TrendFigure
    counts: Mapping[str, int]
    is_baseline: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A run in the drawing: its place across, and what is drawn of it."""

    run: TrendRun
    x: float
    figure: TrendFigure


def target_trends(
    runs: Sequence[TrendRun], *, limit: float | None, shown: str = "score"
) -> Picture:
    """Return one figure of runs, oldest first, with a line for each target that has three of them.

    `shown` names the figure, `limit` is the threshold of its gate. Below each run is the share of its verdicts.
    """
    points = [
        Placed(run, (place + 0.5) / len(runs), run.rate if shown == "rate" else run.score)
        for place, run in enumerate(runs)
    ]
    known = sum(placed.figure.share is not None for placed in points)
    empty = Picture(
        name="trend",
        title="Trend",
        note=f"{SHOWN[shown]} of {figures.thousands(known)} of {figures.counted(len(runs), 'completed run')}",
        empty="A trend begins with the first completed run.",
    )
    if not known:
        return empty
    looks = _looks(runs)
    low, high, step = _share_axis(points, limit)
    named = [target for target in looks if looks[target] != OTHERS]
    legend = [
        LegendEntry(looks[name][0], name, SYMBOLS[looks[name][1]].format(5, 10)) for name in named
    ]
    if len(named) < len(looks):
        legend.append(LegendEntry(OTHERS[0], "Other targets", SYMBOLS[OTHERS[1]].format(5, 10)))
    legend += [
        LegendEntry(state, VERDICT_WORDS[state])
        for state in VERDICTS
        if any(run.counts.get(state) for run in runs)
    ]
    below = [*_frame(points, (low, high, step))]
    if limit is not None:
        y = _down(limit, low, high)
        below.append(line((0, y), (1, y), "limit"))
    return Picture(
        name=empty.name,
        title=empty.title,
        note=empty.note,
        label=(
            f"{SHOWN[shown]} of {figures.counted(known, 'run')} of {figures.counted(len(looks), 'target')}, the oldest "
            "first, with 95% intervals; below, the verdicts of each run"
        ),
        drawing=Drawing(
            HEIGHT,
            [*below, *_lines(points, looks, low, high)],
            [
                _spot(placed, 1 / len(runs), looks[placed.run.target], low, high)
                for placed in points
            ],
            _ends(points, looks, (low, high), limit),
        ),
        caption="Completed runs, the newest first",
        legend=legend,
        columns=[
            PictureColumn("Run", "run", is_number=False),
            PictureColumn("Target", "target", is_number=False),
            PictureColumn("Suite", "suite_version"),
            PictureColumn("Mean score", "mean_score"),
            PictureColumn("95% CI", "mean_score_interval"),
            PictureColumn("Pass rate", "pass_rate"),
            PictureColumn("95% CI", "pass_rate_interval"),
            *(PictureColumn(VERDICT_WORDS[state], state) for state in VERDICTS),
        ],
        rows=[_row(run) for run in reversed(runs)],
    )


def _looks(runs: Sequence[TrendRun]) -> Mapping[str, tuple[str, str]]:
    """Return the colour and the symbol of each target, those that ran last first."""
    targets = dict.fromkeys(run.target for run in reversed(runs))
    return {
        target: LOOKS[place] if place < len(LOOKS) else OTHERS
        for place, target in enumerate(targets)
    }


def _share_axis(points: Sequence[Placed], limit: float | None) -> tuple[float, float, float]:
    """Return the ends of an axis of shares that shows figures, intervals and the limit, and its step."""
    shares = [
        share
        for placed in points
        if placed.figure.share is not None
        for share in (placed.figure.share, *(placed.figure.interval or ()))
    ]
    shares += [] if limit is None else [limit]
    low, high = min(shares), max(shares)
    step = next((size for size in STEPS if (high - low) / size <= MAX_LINES - 1), STEPS[-1])
    return (
        max(math.floor(low / step) * step, 0.0),
        min(math.ceil(high / step) * step, 1.0) or step,
        step,
    )


def _down(share: float, low: float, high: float) -> float:
    # Every run at one share has the line in the middle.
    part = (share - low) / (high - low) if high > low else 0.5
    return BASE - (BASE - TOP) * part


def _frame(points: Sequence[Placed], axis: tuple[float, float, float]) -> Iterator[Mark]:
    """Yield the lines of shares, the numbers of runs, and where the version of the suite changed."""
    low, high, step = axis
    for place in range(round((high - low) / step) + 1):
        share = low + place * step
        y = _down(share, low, high)
        yield line((0, y), (1, y), "grid")
        yield text(0, y + 4, figures.threshold(round(share, 4)), anchor="end", shift=-8)
    for width, most in MAX_NUMBERS.items():
        every = -(-len(points) // most)
        for placed in points[::-1][::every]:
            yield text(placed.x, STRIP_BASE + 18, f"#{placed.run.number}", kind=f"tick {width}")
    changes = [
        ((before.x + after.x) / 2, after.run.suite_version)
        for before, after in pairwise(points)
        if before.run.suite_version != after.run.suite_version
    ]
    for x, version in changes:
        yield line((x, 4), (x, STRIP_BASE), "version")
        if len(changes) <= MAX_VERSIONS:
            on_left = x >= 0.8
            yield text(
                x,
                13,
                f"suite v{version}",
                anchor="end" if on_left else "start",
                shift=-5 if on_left else 5,
            )


def _lines(
    points: Sequence[Placed], looks: Mapping[str, tuple[str, str]], low: float, high: float
) -> list[Mark]:
    marks = []
    for target, (kind, _) in looks.items():
        places = [
            (placed.x, _down(placed.figure.share, low, high))
            for placed in points
            if placed.run.target == target and placed.figure.share is not None
        ]
        if len(places) >= LEAST_TREND and kind != OTHERS[0]:
            marks += [line(start, end, f"series {kind}") for start, end in pairwise(places)]
    return marks


def _ends(
    points: Sequence[Placed],
    looks: Mapping[str, tuple[str, str]],
    axis: tuple[float, float],
    limit: float | None,
) -> list[Mark]:
    """Return the labels at the right edge: the gate, and the last figure of each line and of the newest run.

    A wide picture has room for the names of targets; a narrow one has the figures alone.
    """
    known = [placed for placed in points if placed.figure.share is not None]
    runs = Counter(placed.run.target for placed in known)
    last = {placed.run.target: placed for placed in known}
    labels = (
        []
        if limit is None
        else [(_down(limit, *axis), "tick", f"gate {figures.threshold(limit)}", "")]
    )
    for target, placed in last.items():
        kind = looks[target][0]
        if kind != OTHERS[0] and (runs[target] >= LEAST_TREND or placed is known[-1]):
            name = target if len(target) <= MAX_END else f"{target[: MAX_END - 1]}…"
            share = figures.pct(placed.figure.share)
            y = _down(placed.figure.share or 0.0, *axis)
            labels.append((y, f"end {kind}", f"{name} {share}", share))
    labels.sort()
    marks = []
    for y, (_, kind, wide, narrow) in zip(
        _apart([label[0] for label in labels]), labels, strict=True
    ):
        texts = ((" wide", wide), (" narrow", narrow)) if narrow else (("", wide),)
        marks += [
            text(1, y + 4, words, kind=f"{kind}{width}", anchor="start", shift=8)
            for width, words in texts
        ]
    return marks


def _apart(places: Sequence[float]) -> Sequence[float]:
    """Return places of labels, from the top, moved until they neither meet nor leave the drawing."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + END_HEIGHT) if found else place)
    lowest = BASE
    for index in reversed(range(len(found))):
        found[index] = min(found[index], lowest)
        lowest = found[index] - END_HEIGHT
    return found


def _spot(placed: Placed, room: float, look: tuple[str, str], low: float, high: float) -> Spot:
    run, x, figure = placed.run, placed.x, placed.figure
    kind, symbol = look
    marks = [rect(x - room / 2, x + room / 2, TOP - 4, STRIP_BASE, kind="hit")]
    if figure.interval:
        ends = [(x, _down(end, low, high)) for end in figure.interval]
        marks.append(line(ends[0], ends[1], f"whisker {kind}"))
    if figure.share is not None:
        hollow = " hollow" if figure.is_below else ""
        y = _down(figure.share, low, high)
        marks.append(point(x, y, SIZE, symbol=symbol, kind=f"dot {kind}{hollow}"))
    total = sum(run.counts.get(state, 0) for state in VERDICTS)
    half = min(room * STRIP_WIDTH, WIDEST) / 2
    done = 0
    for state in VERDICTS:
        if part := run.counts.get(state, 0):
            top, base = (
                STRIP_BASE - (STRIP_BASE - STRIP_TOP) * share / total
                for share in (done + part, done)
            )
            marks.append(rect(x - half, x + half, top, base, verdict=state))
            done += part
    return Spot(_label(run), run.url, marks)


def _label(run: TrendRun) -> str:
    counts = ", ".join(
        f"{run.counts[state]} {VERDICT_WORDS[state].lower()}"
        for state in VERDICTS
        if run.counts.get(state)
    )
    return (
        f"#{run.number} {run.target}, suite v{run.suite_version}{', the baseline' if run.is_baseline else ''}\n"
        f"mean score {run.score.text}\npass rate {run.rate.text}; {counts or 'no verdicts'}"
    )


def _row(run: TrendRun) -> PictureRow:
    counts = [run.counts.get(state, 0) for state in VERDICTS]
    return PictureRow(
        cells=[
            f"#{run.number}",
            run.target,
            f"v{run.suite_version}",
            figures.pct(run.score.share),
            figures.interval(run.score.interval),
            figures.pct(run.rate.share),
            figures.interval(run.rate.interval),
            *(figures.thousands(count) for count in counts),
        ],
        values=[
            run.number,
            run.target,
            run.suite_version,
            run.score.share,
            _span(run.score.interval),
            run.rate.share,
            _span(run.rate.interval),
            *counts,
        ],
        url=run.url,
    )


def _span(ends: Interval) -> str:
    """Write an interval for a file."""
    return " to ".join(f"{end:.6f}" for end in ends or ())


# Each run has a lane in the row of a metric, the latest the lowest, so that intervals stay apart.
LANE, ROW_ROOM, FIRST_ROW = 7, 16, 14.0
# The share of the width for names, and the parts of every scale between ticks.
NAMES, TICKS = 0.32, 5


@dataclass(frozen=True, slots=True)
class PartMean:
    """The mean of a metric or dimension in a run, with its 95% interval where one was computed."""

    number: int
    url: str
    target: str
    mean: float
    judged: int
    interval: Interval = None


@dataclass(frozen=True, slots=True)
class PartTrend:
    """A metric (of 5) or dimension (of 10) with its means, the oldest run first."""

    name: str
    scale: int
    means: Sequence[PartMean]


def part_dots(parts: Sequence[PartTrend], *, runs: Sequence[int]) -> Picture:
    """Return a row for each metric and dimension with a dot and its interval for each run, the latest filled.

    `runs` are their numbers, the oldest first. Of metrics and dimensions together each is drawn on its own scale.
    """
    note = f"last {figures.counted(len(runs), 'completed run')}"
    if not parts:
        return Picture(
            name="metrics",
            title="Metrics and dimensions",
            empty="No completed run has metrics or dimensions.",
        )
    below: list[Mark] = []
    height = ROW_ROOM + LANE * len(runs)
    base = FIRST_ROW + height * len(parts) + 8
    first = _first_tick(parts)
    scales = sorted({part.scale for part in parts})
    for tick in range(first, TICKS + 1):
        x = _across(tick / TICKS, first)
        below.append(line((x, FIRST_ROW), (x, base - 8), "grid"))
        words = " / ".join(str(scale * tick // TICKS) for scale in scales)
        below.append(text(x, base + 10, words, anchor="end" if tick == TICKS else "middle"))
    spots: list[Spot] = []
    for row, part in enumerate(parts):
        top = FIRST_ROW + height * row
        below.append(line((0, top), (1, top), "grid"))
        below.append(
            text(NAMES, top + height / 2 + 4, part.name, kind="name", anchor="end", shift=-10)
        )
        for mean in part.means:
            lane = top + (ROW_ROOM + LANE) / 2 + LANE * runs.index(mean.number)
            spots.append(_dot(part, mean, first, lane, is_latest=mean.number == runs[-1]))
    return Picture(
        name="metrics",
        title="Metrics and dimensions",
        note=note,
        label=f"Means of {figures.counted(len(parts), 'metric or dimension,metrics and dimensions')} in the {note}",
        drawing=Drawing(round(base + 18), below, spots),
        legend=[
            LegendEntry("s1", f"#{runs[-1]}", SYMBOLS["circle"].format(5, 10)),
            LegendEntry("earlier", "Earlier runs", SYMBOLS["circle"].format(4, 8)),
        ][: len(runs)],
        caption="Means of metrics and dimensions by run, the newest first",
        columns=[
            PictureColumn("Metric or dimension", "name", is_number=False),
            PictureColumn("Run", "run"),
            PictureColumn("Target", "target", is_number=False),
            PictureColumn("Mean", "mean"),
            PictureColumn("95% CI", "interval"),
            PictureColumn("Judged", "judged"),
        ],
        rows=[_part_row(part, mean) for part in parts for mean in reversed(part.means)],
    )


def _first_tick(parts: Sequence[PartTrend]) -> int:
    """Return the tick that the axis begins with: the last below all means and intervals."""
    shares = [
        (mean.interval[0] if mean.interval else mean.mean) / part.scale
        for part in parts
        for mean in part.means
    ]
    return min(max(math.floor(min(shares) * TICKS), 0), TICKS - 1)


def _across(share: float, first: int) -> float:
    """Return the place of a share of a scale on an axis that begins with a tick."""
    begin = first / TICKS
    return NAMES + (1 - NAMES) * min(max((share - begin) / (1 - begin), 0.0), 1.0)


def _dot(part: PartTrend, mean: PartMean, first: int, y: float, *, is_latest: bool) -> Spot:
    def across(value: float) -> float:
        return _across(value / part.scale, first)

    marks = []
    kind = "s1" if is_latest else "earlier"
    if mean.interval:
        low, high = mean.interval
        marks.append(line((across(low), y), (across(high), y), f"whisker {kind}"))
    size = 5 if is_latest else 3.5
    marks.append(point(across(mean.mean), y, size, symbol="circle", kind=f"dot {kind}"))
    label = (
        f"{part.name} in #{mean.number} {mean.target}: {_mean_text(mean)} of {part.scale}, "
        f"{figures.counted(mean.judged, 'result')} judged"
    )
    return Spot(label, mean.url, marks)


def _mean_text(mean: PartMean) -> str:
    within = f" (95% CI {_mean_ends(mean)})" if mean.interval else ""
    return f"{figures.tenth(mean.mean)}{within}"


def _mean_ends(mean: PartMean) -> str:
    if mean.interval is None:
        return figures.MISSING
    return " to ".join(figures.tenth(end) for end in mean.interval)


def _part_row(part: PartTrend, mean: PartMean) -> PictureRow:
    return PictureRow(
        cells=[
            part.name,
            f"#{mean.number}",
            mean.target,
            figures.tenth(mean.mean),
            _mean_ends(mean),
            figures.thousands(mean.judged),
        ],
        values=[
            part.name,
            mean.number,
            mean.target,
            mean.mean,
            " to ".join(f"{end:.6f}" for end in mean.interval or ()),
            mean.judged,
        ],
        url=mean.url,
    )
