"""How scores, latencies and costs of cases are distributed: columns that each name the filter of their cases."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise

from evaluators.scoring.numbers import rank_index
from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags import figures
from evaluators.templatetags.marks import VERDICT_WORDS
from runs.charts.drawing import (
    Drawing,
    LegendEntry,
    Mark,
    Picture,
    PictureColumn,
    PictureRow,
    Spot,
    flag,
    line,
    rect,
    text,
)
from runs.charts.figures import nice_step

HEIGHT, TOP, BASE = 166, 32.0, 144.0
LINES_ACROSS = 4
SCORE_STEP, SCORE_TICK = Decimal("0.05"), Decimal("0.2")
HIGHEST_START = Decimal("0.6")
MAX_COLUMNS, MAX_TICKS, MAX_COUNTS = 16, 4, 11
# A few values so many times higher than most share the last column.
TAIL = 3
GAP = 0.06
LEAST_HEIGHT = 2
# From the bottom of a column to its top.
ALL = "all"
STACK = ("pass", "borderline", "fail", "error", "running", "waiting", "cancelled")


# Not frozen, as ExecutionRecord: a picture of two runs creates forty thousand.
@dataclass(slots=True)
class CaseFigures:
    """A case of a run over its repetitions; None for a figure that it lacks.

    `passes` counts the repetitions that passed, once all have ended.
    """

    key: str
    state: str
    score: float | None
    latency_ms: float | None
    cost_usd: Decimal | None
    passes: int | None = None


@dataclass(frozen=True, slots=True)
class CaseMeasure:
    """A figure of cases: the field that filters by it, and how its values are shown and written in a filter."""

    name: str
    title: str
    field: str
    noun: str
    value: Callable[[CaseFigures], float | Decimal | None]
    show: Callable[[Decimal], str]
    write: Callable[[Decimal], str]
    joined: str = "mean"
    # Of a count the highest, which it can reach.
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """A run of a picture: its name, as in `#2`, and its cases."""

    name: str
    cases: Sequence[CaseFigures]


@dataclass(frozen=True, slots=True)
class Bin:
    """The cases from `low` up to `high`, None for all above: their number by state, and that of the baseline."""

    low: Decimal
    high: Decimal | None
    counts: Mapping[str, int]
    before: int = 0

    @property
    def total(self) -> int:
        """Return the number of cases."""
        return sum(self.counts.values())


def plain(value: Decimal) -> str:
    """Write a number without an exponent or trailing zeros."""
    return f"{value.normalize():f}"


def scores(scale: int) -> CaseMeasure:
    """Return the final score, shown on the scale of its suite."""
    return CaseMeasure(
        name="scores",
        title="Scores",
        field="score",
        noun="score",
        value=lambda case: case.score,
        show=lambda score: figures.bound(score, scale),
        write=plain,
    )


LATENCY = CaseMeasure(
    name="latency",
    title="Latency",
    field="latency",
    noun="latency",
    value=lambda case: case.latency_ms,
    show=figures.duration,
    write=lambda ms: f"{plain(ms)}ms",
)
COST = CaseMeasure(
    name="cost",
    title="Cost",
    field="cost",
    noun="cost",
    value=lambda case: case.cost_usd,
    show=lambda usd: "$" + plain(usd),
    write=lambda usd: "$" + plain(usd),
    joined="sum",
)


def passes(repetitions: int) -> CaseMeasure:
    """Return how many repetitions passed: cases at both ends always agree."""
    return CaseMeasure(
        name="repetitions",
        title="Agreement of repetitions",
        field="passes",
        noun="number of passes",
        value=lambda case: case.passes,
        show=plain,
        write=plain,
        most=repetitions,
    )


def distribution(
    measure: CaseMeasure,
    run: Side,
    *,
    baseline: Side | None = None,
    policy: PolicySpec | None = None,
    repetitions: int = 1,
    address: Callable[[str], str],
) -> Picture:
    """Return how a figure of cases is distributed; `address` is that of the cases of a filter.

    `policy` draws its thresholds; without one the median and the 95th percentile are drawn.
    """
    known = [
        (case.state, float(value))
        for case in run.cases
        if (value := measure.value(case)) is not None
    ]
    before = [
        float(value)
        for case in (baseline.cases if baseline else ())
        if (value := measure.value(case)) is not None
    ]
    missing = len(run.cases) - len(known)
    note = f"{figures.thousands(len(known))} of {figures.counted(len(run.cases), 'case')}"
    if baseline:
        of_baseline = (
            f"{figures.thousands(len(before))} of {figures.thousands(len(baseline.cases))}"
        )
        of_run = f"{figures.thousands(len(known))} of {figures.thousands(len(run.cases))}"
        note = f"{run.name} {of_run}, {baseline.name} {of_baseline}"
        if measure.field != "score":
            # Two runs of one colour each are easier to compare than their verdicts.
            known = [(ALL, value) for _, value in known]
    if measure.most is not None:
        agreeing = sum(value in (0, measure.most) for _, value in known)
        note += f", {figures.thousands(agreeing)} agree in every repetition"
    elif repetitions > 1:
        note += f", {measure.joined} of {repetitions} repetitions"
    has_rest = bool(missing and known)
    picture = Picture(
        name=measure.name,
        title=measure.title,
        note=note,
        rest=f"{figures.thousands(missing)} without" if has_rest else "",
        rest_url=address(f"{measure.field} = none") if has_rest else "",
    )
    if not known:
        return replace(picture, empty=f"No case has a {measure.noun}.")
    limits = [*_bands(policy).values()] if policy else []
    edges, is_open = _edges(measure, [*(value for _, value in known), *before], limits)
    if not edges:
        return replace(picture, empty=f"Every case has a {measure.noun} of 0.")
    bins = _bins(edges, known, before, is_open=is_open)
    states = [state for state in STACK if any(state in bin_.counts for bin_ in bins)]
    flags = (
        [
            (limit, f"{name} {measure.show(Decimal(str(limit)))}")
            for name, limit in _bands(policy).items()
        ]
        if policy
        else _middle(measure, [value for _, value in known])
        if measure.most is None
        else []
    )
    legend = [LegendEntry(state, VERDICT_WORDS[state]) for state in states]
    if baseline:
        legend += [] if states else [LegendEntry("after", run.name)]
        legend.append(LegendEntry("before", baseline.name))
    marked = ", ".join(words for _, words in flags) or note
    return replace(
        picture,
        label=f"{measure.title} of {figures.counted(len(known), 'case')} of {run.name}: {marked}",
        drawing=_draw(measure, bins, edges, flags, (run, baseline), address),
        caption=f"Cases by {measure.noun}",
        legend=legend,
        columns=_columns(measure, states, baseline),
        rows=[
            _row(measure, bin_, states, baseline, address)
            for bin_ in bins
            if bin_.total or bin_.before
        ],
    )


def _bands(policy: PolicySpec) -> Mapping[str, float]:
    """Return the thresholds of scores by name, the lower first."""
    if policy.outcomes_decide:
        return {"fallback": policy.fallback_threshold}
    return {"borderline": policy.borderline_threshold, "pass": policy.pass_threshold}


def _middle(measure: CaseMeasure, values: Sequence[float]) -> list[tuple[float, str]]:
    """Return the median and the 95th percentile with their texts."""
    ordered = sorted(values)
    named = (("median", 0.5), ("p95", 0.95))
    ranks = [(name, ordered[rank_index(share, len(ordered))]) for name, share in named]
    show = figures.money if measure is COST else figures.duration
    return [(value, f"{name} {show(Decimal(repr(value)))}") for name, value in ranks]


def _edges(
    measure: CaseMeasure, values: Sequence[float], limits: Sequence[float]
) -> tuple[list[Decimal], bool]:
    """Return the edges of the columns, and whether the last column has no end; no edges if all values are 0."""
    if measure.field == "score":
        least = Decimal(repr(min([*values, *limits])))
        low = min(least // SCORE_TICK * SCORE_TICK, HIGHEST_START)
        return [low + SCORE_STEP * place for place in range(int((1 - low) / SCORE_STEP) + 1)], True
    if measure.most is not None:
        step = max(nice_step(Decimal(measure.most + 1), MAX_COLUMNS), Decimal(1))
        return [step * place for place in range(measure.most // int(step) + 2)], False
    ordered = sorted(values)
    high, usual = ordered[-1], ordered[rank_index(0.95, len(ordered))]
    if not high:
        return [], False
    is_open = bool(usual) and high > TAIL * usual
    end = Decimal(repr(usual)) * Decimal("1.25") if is_open else Decimal(repr(high))
    step = nice_step(end, MAX_COLUMNS)
    count = int(end // step) + 1
    return [step * place for place in range(count + 1 + is_open)], is_open


def _bins(
    edges: Sequence[Decimal],
    known: Sequence[tuple[str, float]],
    before: Sequence[float],
    *,
    is_open: bool,
) -> list[Bin]:
    places = [float(edge) for edge in edges[:-1]]
    counts: list[Counter[str]] = [Counter() for _ in places]
    earlier: Counter[int] = Counter()
    for state, value in known:
        counts[bisect_right(places, value) - 1][state] += 1
    for value in before:
        earlier[bisect_right(places, value) - 1] += 1
    ends = [*edges[1:-1], None if is_open else edges[-1]]
    return [
        Bin(low, high, count, earlier[place])
        for place, (low, high, count) in enumerate(zip(edges[:-1], ends, counts, strict=True))
    ]


def _count_axis(highest: int, top: float, base: float) -> tuple[int, list[Mark]]:
    """Return the end of an axis of counts, and its lines with their numbers."""
    step = max(int(nice_step(Decimal(max(highest, 1)), LINES_ACROSS)), 1)
    end = -(-max(highest, 1) // step) * step
    marks: list[Mark] = []
    for count in range(0, end + 1, step):
        y = base - (base - top) * count / end
        marks.append(line((0, y), (1, y), "axis" if count == 0 else "grid"))
        marks.append(text(0, y + 4, f"{count:,}".replace(",", "\u202f"), anchor="end", shift=-8))
    return end, marks


def _draw(
    measure: CaseMeasure,
    bins: Sequence[Bin],
    edges: Sequence[Decimal],
    flags: Sequence[tuple[float, str]],
    sides: tuple[Side, Side | None],
    address: Callable[[str], str],
) -> Drawing:
    highest = max(max(bin_.total, bin_.before) for bin_ in bins)
    end, below = _count_axis(highest, TOP, BASE)
    first, last = float(edges[0]), float(edges[-1])

    def across(value: float) -> float:
        return min(max((value - first) / (last - first), 0.0), 1.0)

    def down(count: float) -> float:
        # A single case among thousands is still seen.
        return BASE - max((BASE - TOP) * count / end, LEAST_HEIGHT if count else 0)

    spots, above = [], []
    for bin_, (low, high) in zip(bins, pairwise(edges), strict=True):
        gap = float(high - low) * GAP
        left, right = across(float(low) + gap), across(float(high) - gap)
        if bin_.total or bin_.before:
            marks = [rect(left, right, TOP, BASE, kind="hit"), *_stack(bin_, left, right, down)]
            spots.append(
                Spot(
                    _label(measure, bin_, *sides),
                    address(_filter(measure, bin_)) if bin_.total else "",
                    marks,
                )
            )
        if bin_.before:
            above.append(rect(left, right, down(bin_.before), BASE, kind="before"))
    step = edges[1] - edges[0]
    # A count is named below its column, other figures where they begin.
    shift = 0 if measure.most is None else step / 2
    ticks = _ticks(measure, edges)
    below += [
        text(x, BASE + 18, _tick(measure, edge, ticks), anchor="end" if x > 0.97 else "middle")
        for edge in ticks
        for x in [across(float(edge + shift))]
    ]
    for row, (value, words) in enumerate(reversed(flags)):
        x = across(value)
        above += [line((x, 2.0 + 13 * row), (x, BASE + 3), "mark-line"), flag(x, row, words)]
    return Drawing(HEIGHT, below, spots, above)


def _stack(bin_: Bin, left: float, right: float, down: Callable[[float], float]) -> list[Mark]:
    if count := bin_.counts.get(ALL, 0):
        return [rect(left, right, down(count), BASE, kind="after")]
    marks, below = [], 0
    for state in STACK:
        if count := bin_.counts.get(state, 0):
            marks.append(rect(left, right, down(below + count), down(below), verdict=state))
            below += count
    return marks


def _ticks(measure: CaseMeasure, edges: Sequence[Decimal]) -> list[Decimal]:
    """Return the edges that have a text, few enough for the narrowest picture."""
    if measure.field == "score":
        return [edge for edge in edges if not edge % SCORE_TICK]
    if measure.most is not None:
        return list(edges[:-1][:: max(len(edges) // MAX_COUNTS, 1)])
    every = -(-(len(edges) - 1) // MAX_TICKS)
    return list(edges[::every])


def _tick(measure: CaseMeasure, edge: Decimal, ticks: Sequence[Decimal]) -> str:
    if measure is COST and edge:
        # All with the same decimals, so that they read as one scale.
        decimals = max(-int(tick.normalize().as_tuple().exponent) for tick in ticks)
        return f"${edge:.{max(decimals, 0)}f}"
    return "0" if not edge and measure.field != "score" else measure.show(edge)


def _filter(measure: CaseMeasure, bin_: Bin) -> str:
    """Write the filter that lists exactly the cases of a column."""
    lower = f"{measure.field} >= {measure.write(bin_.low)}"
    return lower if bin_.high is None else f"{lower} {measure.field} < {measure.write(bin_.high)}"


def _span(measure: CaseMeasure, bin_: Bin) -> str:
    if measure.most is not None and bin_.high is not None:
        last = min(bin_.high - 1, Decimal(measure.most))
        span = plain(last) if last == bin_.low else f"{plain(bin_.low)} to {plain(last)}"
        return f"{span} of {measure.most}"
    if bin_.high is None and measure.field != "score":
        return f"{measure.show(bin_.low)} or more"
    high = Decimal(1) if bin_.high is None else bin_.high
    return f"{measure.show(bin_.low)} to {measure.show(high)}"


def _label(measure: CaseMeasure, bin_: Bin, run: Side, baseline: Side | None) -> str:
    parts = ", ".join(
        f"{bin_.counts[state]} {VERDICT_WORDS[state].lower()}"
        for state in STACK
        if state in bin_.counts
    )
    head = f"{_span(measure, bin_)}: {figures.counted(bin_.total, 'case')}"
    if baseline:
        return f"{head} in {run.name}{f' ({parts})' if parts else ''}, {figures.thousands(bin_.before)} in {baseline.name}"
    return f"{head} ({parts})"


def _columns(
    measure: CaseMeasure, states: Sequence[str], baseline: Side | None
) -> list[PictureColumn]:
    return [
        PictureColumn(
            measure.title.removesuffix("s") if measure.most is None else "Repetitions passed",
            f"{measure.field}_from",
            is_number=False,
        ),
        *(PictureColumn(VERDICT_WORDS[state], state) for state in states),
        PictureColumn("Cases", "cases"),
        *([PictureColumn(f"Cases in {baseline.name}", "cases_in_baseline")] if baseline else []),
    ]


def _row(
    measure: CaseMeasure,
    bin_: Bin,
    states: Sequence[str],
    baseline: Side | None,
    address: Callable[[str], str],
) -> PictureRow:
    counts = [bin_.counts.get(state, 0) for state in states]
    numbers = [*counts, bin_.total, *([bin_.before] if baseline else [])]
    return PictureRow(
        cells=[_span(measure, bin_), *(figures.thousands(number) for number in numbers)],
        values=[float(bin_.low), *numbers],
        url=address(_filter(measure, bin_)) if bin_.total else "",
    )
