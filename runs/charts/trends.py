"""Runs of a suite one after another: the trend of each target, and metrics and dimensions as dots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evaluators.templatetags import figures
from evaluators.templatetags.marks import VERDICT_WORDS
from runs.charts.drawing import (
    SYMBOLS,
    Column,
    Drawing,
    Key,
    Mark,
    Picture,
    Spot,
    TableRow,
    line,
    point,
    rect,
    text,
)
from runs.charts.figures import LEAST_TREND

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
MAX_NUMBERS = 10
MAX_VERSIONS = 6

Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class TrendRun:
    """A completed run: its mean score and pass rate as shares, None where it has none, and its cases by verdict."""

    number: int
    url: str
    target: str
    suite_version: int
    score: float | None
    interval: Interval
    rate: float | None
    is_below: bool
    counts: Mapping[str, int]


def target_trends(runs: Sequence[TrendRun], *, limit: float | None) -> Picture:
    """Return the mean scores of runs, oldest first, with a line for each target that has three of them.

    `limit` is the threshold of the score gate. Below each run is the share of its verdicts.
    """
    scored = [run for run in runs if run.score is not None]
    empty = Picture(
        name="trend",
        title="Trend",
        note=f"{figures.thousands(len(scored))} of {figures.counted(len(runs), 'completed run')}",
        empty="A trend begins with the first completed run.",
    )
    if not scored:
        return empty
    looks = _looks(runs)
    low, high, step = _share_axis(runs, limit)
    below = list(_frame(runs, low, high, step, limit))
    below += _lines(runs, looks, low, high)
    named = [target for target in looks if looks[target] != OTHERS]
    legend = [Key(looks[name][0], name, SYMBOLS[looks[name][1]].format(5, 10)) for name in named]
    if len(named) < len(looks):
        legend.append(Key(OTHERS[0], "Other targets", SYMBOLS[OTHERS[1]].format(5, 10)))
    legend += [
        Key(state, VERDICT_WORDS[state])
        for state in VERDICTS
        if any(run.counts.get(state) for run in runs)
    ]
    return Picture(
        name=empty.name,
        title=empty.title,
        note=empty.note,
        label=(
            f"Mean scores of {figures.counted(len(scored), 'run')} of {figures.counted(len(looks), 'target')}, the oldest "
            "first, with their 95% intervals; below, the verdicts of each run"
        ),
        drawing=Drawing(
            HEIGHT,
            below,
            [
                _spot(run, place, len(runs), looks[run.target], low, high)
                for place, run in enumerate(runs)
            ],
        ),
        caption="Completed runs, the newest first",
        legend=legend,
        columns=[
            Column("Run", "run", is_number=False),
            Column("Target", "target"),
            Column("Suite", "suite_version"),
            Column("Mean score", "mean_score"),
            Column("95% CI", "mean_score_interval"),
            Column("Pass rate", "pass_rate"),
            *(Column(VERDICT_WORDS[state], state) for state in VERDICTS),
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


def _share_axis(runs: Sequence[TrendRun], limit: float | None) -> tuple[float, float, float]:
    """Return the ends of an axis of shares that shows scores, intervals and the limit, and its step."""
    shares = [
        share
        for run in runs
        if run.score is not None
        for share in (run.score, *(run.interval or ()))
    ]
    shares += [] if limit is None else [limit]
    low, high = min(shares), max(shares)
    step = next((size for size in STEPS if (high - low) / size <= MAX_LINES - 1), STEPS[-1])
    return (
        max(math.floor(low / step) * step, 0.0),
        min(math.ceil(high / step) * step, 1.0) or step,
        step,
    )


def _across(place: int, count: int) -> float:
    return (place + 0.5) / count


def _down(share: float, low: float, high: float) -> float:
    # Every run at one share has the line in the middle.
    part = (share - low) / (high - low) if high > low else 0.5
    return BASE - (BASE - TOP) * part


def _frame(
    runs: Sequence[TrendRun], low: float, high: float, step: float, limit: float | None
) -> Iterator[Mark]:
    """Yield the lines of shares, the gate, the numbers of runs, and where the version of the suite changed."""
    for place in range(round((high - low) / step) + 1):
        share = low + place * step
        y = _down(share, low, high)
        yield line((0, y), (1, y), "grid")
        yield text(0, y + 4, figures.threshold(round(share, 4)), anchor="end", shift=-8)
    if limit is not None:
        y = _down(limit, low, high)
        yield line((0, y), (1, y), "limit")
        yield text(1, y - 5, f"score gate {figures.threshold(limit)}", anchor="end")
    every = -(-len(runs) // MAX_NUMBERS)
    for place in range(len(runs) - 1, -1, -every):
        yield text(_across(place, len(runs)), STRIP_BASE + 18, f"#{runs[place].number}")
    changes = [
        (place, after.suite_version)
        for place, (before, after) in enumerate(pairwise(runs), start=1)
        if before.suite_version != after.suite_version
    ]
    for place, version in changes:
        x = place / len(runs)
        yield line((x, 4), (x, STRIP_BASE), "version")
        if len(changes) <= MAX_VERSIONS:
            yield text(
                x,
                13,
                f"suite v{version}",
                anchor="start" if x < 0.8 else "end",
                shift=5 if x < 0.8 else -5,
            )


def _lines(
    runs: Sequence[TrendRun], looks: Mapping[str, tuple[str, str]], low: float, high: float
) -> list[Mark]:
    marks = []
    for target, (kind, _) in looks.items():
        places = [
            (_across(place, len(runs)), _down(run.score, low, high))
            for place, run in enumerate(runs)
            if run.target == target and run.score is not None
        ]
        if len(places) >= LEAST_TREND and kind != OTHERS[0]:
            marks += [line(start, end, f"series {kind}") for start, end in pairwise(places)]
    return marks


def _spot(
    run: TrendRun, place: int, count: int, look: tuple[str, str], low: float, high: float
) -> Spot:
    kind, symbol = look
    x, room = _across(place, count), 1 / count
    marks = [rect(x - room / 2, x + room / 2, TOP - 4, STRIP_BASE, kind="hit")]
    if run.interval:
        ends = [(x, _down(end, low, high)) for end in run.interval]
        marks.append(line(ends[0], ends[1], f"whisker {kind}"))
    if run.score is not None:
        hollow = " hollow" if run.is_below else ""
        y = _down(run.score, low, high)
        marks.append(point(x, y, SIZE, symbol=symbol, kind=f"dot {kind}{hollow}"))
    total, half = (
        sum(run.counts.get(state, 0) for state in VERDICTS),
        min(room * STRIP_WIDTH, WIDEST) / 2,
    )
    done = 0
    for state in VERDICTS:
        if part := run.counts.get(state, 0):
            ends_at = [
                STRIP_BASE - (STRIP_BASE - STRIP_TOP) * share / total
                for share in (done + part, done)
            ]
            marks.append(rect(x - half, x + half, ends_at[0], ends_at[1], verdict=state))
            done += part
    return Spot(_label(run), run.url, marks)


def _label(run: TrendRun) -> str:
    within = f" (95% CI {figures.interval(run.interval)})" if run.interval else ""
    below = ", below its gate" if run.is_below else ""
    counts = ", ".join(
        f"{run.counts[state]} {VERDICT_WORDS[state].lower()}"
        for state in VERDICTS
        if run.counts.get(state)
    )
    return (
        f"#{run.number} {run.target}, suite v{run.suite_version}\n"
        f"mean score {figures.pct(run.score)}{within}{below}\n"
        f"pass rate {figures.pct(run.rate)}; {counts or 'no verdicts'}"
    )


def _row(run: TrendRun) -> TableRow:
    counts = [run.counts.get(state, 0) for state in VERDICTS]
    span = figures.interval(run.interval)
    return TableRow(
        cells=[
            f"#{run.number}",
            run.target,
            f"v{run.suite_version}",
            figures.pct(run.score),
            span,
            figures.pct(run.rate),
            *(figures.thousands(count) for count in counts),
        ],
        values=[
            run.number,
            run.target,
            run.suite_version,
            run.score,
            " to ".join(f"{end:.6f}" for end in run.interval or ()),
            run.rate,
            *counts,
        ],
        url=run.url,
    )


ROW, FIRST_ROW = 30, 26.0


@dataclass(frozen=True, slots=True)
class PartMean:
    """The mean of a metric or dimension in a run, with its 95% interval where it was computed."""

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


def part_dots(parts: Sequence[PartTrend], *, runs: int) -> Picture:
    """Return a line for each metric and dimension with a dot for each run, the latest filled and with its interval.

    Of metrics and dimensions together each is drawn on its own scale.
    """
    note = f"last {figures.counted(runs, 'completed run')}"
    if not parts:
        return Picture(
            name="metrics",
            title="Metrics and dimensions",
            empty="No completed run has metrics or dimensions.",
        )
    left = 0.32
    below: list[Mark] = []
    base = FIRST_ROW + ROW * len(parts)
    for tick in range(6):
        x = left + (1 - left) * tick / 5
        below.append(line((x, 14), (x, base - 8), "grid"))
        scales = sorted({part.scale for part in parts})
        words = " / ".join(str(scale * tick // 5) for scale in scales)
        below.append(text(x, base + 10, words, anchor="end" if tick == 5 else "middle"))
    spots: list[Spot] = []
    for row, part in enumerate(parts):
        y = FIRST_ROW + ROW * row
        below.append(line((left, y), (1, y), "grid"))
        below.append(text(left, y + 4, part.name, kind="name", anchor="end", shift=-10))
        spots += [
            _dot(part, mean, left, y, is_latest=mean is part.means[-1]) for mean in part.means
        ]
    return Picture(
        name="metrics",
        title="Metrics and dimensions",
        note=note,
        label=f"Means of {figures.counted(len(parts), 'metric or dimension,metrics and dimensions')} in the {note}",
        drawing=Drawing(round(base + 18), below, spots),
        legend=[
            Key("s1", "Latest run, 95% interval", SYMBOLS["circle"].format(5, 10)),
            Key("earlier", "Earlier runs", SYMBOLS["circle"].format(4, 8)),
        ],
        caption="Means of metrics and dimensions by run, the newest first",
        columns=[
            Column("Metric or dimension", "name", is_number=False),
            Column("Run", "run"),
            Column("Target", "target"),
            Column("Mean", "mean"),
            Column("95% CI", "interval"),
            Column("Judged", "judged"),
        ],
        rows=[_part_row(part, mean) for part in parts for mean in reversed(part.means)],
    )


def _dot(part: PartTrend, mean: PartMean, left: float, y: float, *, is_latest: bool) -> Spot:
    def across(value: float) -> float:
        return left + (1 - left) * min(max(value / part.scale, 0.0), 1.0)

    marks = []
    if is_latest and mean.interval:
        low, high = mean.interval
        marks.append(line((across(low), y), (across(high), y), "whisker s1"))
    kind = "dot s1" if is_latest else "dot earlier"
    marks.append(point(across(mean.mean), y, 5 if is_latest else 4, symbol="circle", kind=kind))
    label = f"{part.name} in #{mean.number} {mean.target}: {_mean_text(mean)} of {part.scale}"
    return Spot(label, mean.url, marks)


def _mean_text(mean: PartMean) -> str:
    within = f" (95% CI {_ends(mean)})" if mean.interval else ""
    return f"{figures.tenth(mean.mean)}{within}"


def _ends(mean: PartMean) -> str:
    if mean.interval is None:
        return figures.MISSING
    return " to ".join(figures.tenth(end) for end in mean.interval)


def _part_row(part: PartTrend, mean: PartMean) -> TableRow:
    return TableRow(
        cells=[
            part.name,
            f"#{mean.number}",
            mean.target,
            figures.tenth(mean.mean),
            _ends(mean),
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
