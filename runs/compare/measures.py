"""The figures of a comparison as its page shows them: headlines, metrics with intervals, and changed settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any

from evaluators.scoring.numbers import is_at_least
from evaluators.scoring.tree import pass_marks
from evaluators.templatetags.figures import (
    MISSING,
    at_least,
    bound,
    counted,
    delta,
    down,
    duration,
    money,
    nearest,
    p_value,
    pct,
    sign,
)
from evaluators.templatetags.ui import as_text
from runs.compare.comparison import Comparison
from runs.compare.conclusion import chance_text
from runs.compare.evidence import (
    DIMENSION,
    EVALUATOR,
    METRIC,
    MeasuredChange,
    MeasuredFigure,
    Paired,
)
from runs.compare.rules import format_drop_limit, format_growth_limit
from runs.compare.sides import ComparisonSide
from runs.engine.plan import read_plan
from runs.models.runs import Run
from runs.specs.suites import VersionSpec
from runs.suites.differences import FileChange, compare_specs
from runs.suites.version_pages import ChangedEvaluatorRow, setting_rows
from runs.texts import ChangedValueRow, ChangedValues

# The ends that an axis can have; the last one is the whole scale.
AXIS_OF_POINTS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
HALF = 50
NO_BREAK = "\u00a0"
BAD, GOOD, SAME = "bad", "good", "same"


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """A bar: where it begins, its width, and the ends of its whisker or "", as percent of the drawing."""

    x: str = field(default="", kw_only=True)
    width: str = field(default="", kw_only=True)
    bar_tone: str = field(default="", kw_only=True)
    low: str = field(default="", kw_only=True)
    high: str = field(default="", kw_only=True)


def axis_end(values: Iterable[float], ends: Iterable[float]) -> float:
    """Return the smallest end that no value exceeds, or the last one."""
    largest = max((abs(value) for value in values), default=0.0)
    choices = list(ends)
    return next((end for end in choices if largest <= end), choices[-1])


def interval_bar(
    value: float,
    axis: float,
    interval: tuple[float, float] | None = None,
    *,
    is_coloured: bool = True,
) -> IntervalBar:
    """Return the bar of a change on an axis from −`axis` to `axis`."""
    width = _along(abs(value), axis)
    tone = BAD if value < 0 else GOOD if value > 0 else SAME
    low, high = (f"{HALF + _along(end, axis):.1f}%" for end in interval) if interval else ("", "")
    return IntervalBar(
        x=f"{HALF - width if value < 0 else HALF:.1f}%",
        width=f"{width:.1f}%",
        bar_tone=tone if is_coloured else SAME,
        low=low,
        high=high,
    )


def _along(value: float, axis: float) -> float:
    return max(-1.0, min(value / axis, 1.0)) * HALF


TONES = {"regressed": "bad", "improved": "good"}


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of both runs: its change, whether its limit is met, and what the evidence means.

    `note` says how many results count where these are not all. `method` explains the evidence.
    """

    name: str
    change: str
    before: str
    after: str
    note: str
    limit: str
    state: str
    tone: str
    notes: Sequence[str] = ()
    method: Sequence[str] = ()


def headline_measures(comparison: Comparison, *, is_conclusive: bool) -> tuple[Measure, ...]:
    """Return the four figures, each run's own over all its results (SCORING §9).

    Where nothing can be concluded, no limit counts as met.
    """
    limits, evidence = comparison.tolerances, comparison.evidence
    before, after, runs = comparison.baseline.figures, comparison.candidate.figures, comparison.runs
    slower = runs.latency_change_pct
    exceeded = {reason.measure for reason in runs.reasons}
    latency = before.mean_latency_ms, after.mean_latency_ms
    sides = comparison.baseline, comparison.candidate
    met = "pass" if is_conclusive else ""
    return (
        Measure(
            "Pass rate",
            delta(runs.pass_rate_change, "pts"),
            pct(before.pass_rate),
            pct(after.pass_rate),
            f"{before.passed} of {before.total} → {after.passed} of {after.total} results"
            f"{_with_reviews(sides)}",
            _sentence(format_drop_limit(limits.max_pass_rate_drop)),
            _state("pass rate", exceeded, runs.pass_rate_change, met),
            TONES.get(evidence.pass_rate.change, ""),
            _chance(evidence.pass_rate),
            _method("Pass rate", evidence.pass_rate),
        ),
        Measure(
            "Mean score",
            delta(runs.score_change, "pts"),
            pct(before.mean_score),
            pct(after.mean_score),
            _counted("with a score", [(side.scored, side.figures.total) for side in sides]),
            _sentence(format_drop_limit(limits.max_avg_score_drop)),
            _state("mean score", exceeded, runs.score_change, met),
            TONES.get(evidence.mean_score.change, ""),
            _chance(evidence.mean_score),
            _method("Mean score", evidence.mean_score),
        ),
        Measure(
            "Mean latency",
            delta(None if slower is None else slower / 100, "pct"),
            duration(latency[0]),
            duration(latency[1]),
            _counted("with a latency", [(side.timed, side.figures.total) for side in sides]),
            _sentence(format_growth_limit(limits.max_latency_increase_pct)),
            _state("mean latency", exceeded, slower, met),
            "",
            (f"p95 {duration(sides[0].p95_ms)} → {duration(sides[1].p95_ms)}",),
        ),
        _cost(comparison.baseline, comparison.candidate),
    )


def _with_reviews(sides: Sequence[ComparisonSide]) -> str:
    """Say how many reviews the figures of both runs count, "" where neither counts any."""
    if not any(side.reviews for side in sides):
        return ""
    return f", with {sides[0].reviews} → {counted(sides[1].reviews, 'review')}"


def _cost(before: ComparisonSide, after: ComparisonSide) -> Measure:
    is_partial = before.costs_are_partial or after.costs_are_partial
    return Measure(
        "Total cost",
        delta(cost_change(before, after), "pct"),
        format_cost(before),
        format_cost(after),
        "Some answers have no known price" if is_partial else "",
        "No limit",
        "",
        "",
        (
            f"Target {money(before.run_cost_usd)} → {money(after.run_cost_usd)}",
            f"Judge {money(before.evaluation_cost_usd)} → {money(after.evaluation_cost_usd)}",
        ),
    )


def cost_change(before: ComparisonSide, after: ComparisonSide) -> Decimal | None:
    """Return the change of the total cost as a share; None where a side is not known in full."""
    was, now = before.cost_usd, after.cost_usd
    if not was or now is None or before.costs_are_partial or after.costs_are_partial:
        return None
    return now / was - 1


def format_cost(side: ComparisonSide) -> str:
    """Format the total cost of a side, marked where more was spent than is known."""
    return at_least(side.cost_usd) if side.costs_are_partial else money(side.cost_usd)


def _counted(property_: str, counts: Sequence[tuple[int, int]]) -> str:
    """Say how many results a figure counts on both sides, "" where it counts all."""
    if all(count == total for count, total in counts):
        return ""
    (was, before), (now, after) = counts
    return f"{was} of {before} → {now} of {after} {property_}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _state(measure: str, exceeded: set[str], change: float | None, met: str) -> str:
    if change is None:
        return ""
    return "fail" if measure in exceeded else met


def _chance(paired: Paired) -> Sequence[str]:
    if paired.mean is None:
        return ("No shared case has a verdict on both sides",)
    text = _sentence(chance_text(paired))
    return (f"{text} ({p_value(paired.p)})" if paired.p is not None else text,)


def _method(name: str, paired: Paired) -> Sequence[str]:
    """Return the interval over the shared cases, and the smallest change they can show."""
    if paired.mean is None or paired.low is None or paired.high is None:
        return ()
    ends = f"{_signed(paired.low)} to {_signed(paired.high)} pts"
    cases = counted(paired.cases, "shared case")
    notes = [f"{name} over {cases}: {_signed(paired.mean)} pts, 95% CI {ends}."]
    if paired.smallest is not None:
        smallest = f"{paired.smallest * 100:.1f}{NO_BREAK}pts"
        notes.append(f"{cases} can only show changes of {smallest} or more (80% power).")
    return (" ".join(notes),)


def _signed(share: float) -> str:
    return delta(share, "pts").removesuffix(f"{NO_BREAK}pts")


# By kind: the heading of its group, its scale in words, and the ends that its axis can have.
GROUPS: Mapping[str, tuple[str, str, Sequence[float]]] = {
    METRIC: ("Metrics", "0 to 5", (0.5, 1, 2, 5)),
    DIMENSION: ("Dimensions", "0 to 10", (1, 2, 5, 10)),
    EVALUATOR: ("Evaluators", "0 to 1", (0.1, 0.2, 0.5, 1)),
}
DIGITS = 2


@dataclass(frozen=True, slots=True)
class MetricRow(IntervalBar):
    """One figure: means of the shared cases, the change with its tone, the interval with its p, and its bar.

    Without a change its bar has no width. `mark` holds the candidate's mean against its pass mark. `inner` are the
    evaluators inside a composite, named by their path within it.
    """

    name: str
    path: str
    means: str
    change: str
    tone: str
    interval: str
    note: str
    mark: str = ""
    mark_tone: str = ""
    inner: Sequence[MetricRow] = ()


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """The figures of one kind; `axis` is the end of their bars."""

    title: str
    scale: str
    axis: str
    rows: Sequence[MetricRow]


def metric_groups(comparison: Comparison) -> Sequence[MetricGroup]:
    """Return the figures by kind, in tree order; a figure of only one run has no change.

    Evaluators inside a composite are in its row, or in rows of their own where it has no score.
    """
    groups = []
    marks = pass_marks(read_plan(comparison.candidate.run.snapshot).root)
    for kind, (title, scale, ends) in GROUPS.items():
        measured = [change for change in comparison.evidence.measured if change.figure.kind == kind]
        if measured:
            values = (
                value
                for change in measured
                for value in (change.paired.low, change.paired.high, change.paired.mean)
            )
            axis = axis_end((value for value in values if value is not None), ends)
            names = [change.name for change in measured]
            rows = {
                change.figure: _metric_row(comparison, change, axis, names.count(change.name) > 1)
                for change in measured
            }
            if kind == EVALUATOR:
                rows = {
                    change.figure: _with_mark(rows[change.figure], change, marks)
                    for change in measured
                }
            groups.append(MetricGroup(title, scale, f"{axis:g}", _with_inner_rows(rows)))
    return groups


def _with_mark(row: MetricRow, change: MeasuredChange, marks: Mapping[str, float]) -> MetricRow:
    mark = marks.get(change.figure.path)
    after = change.own[1].mean if change.after is None else change.after
    if mark is None or after is None:
        return row
    is_reached = is_at_least(after, mark)
    text = f"{'at or above' if is_reached else 'below'} its pass mark {bound(mark)}"
    return replace(row, mark=text, mark_tone="good" if is_reached else "warn")


def _with_inner_rows(rows: Mapping[MeasuredFigure, MetricRow]) -> Sequence[MetricRow]:
    """Return the rows with those of inner evaluators inside the rows of their outermost composites."""
    outer = {figure.path: row for figure, row in rows.items() if not figure.is_inner}
    inner: dict[str, list[MetricRow]] = {}
    for figure, row in rows.items():
        top, _, below = figure.path.partition("/")
        if figure.is_inner and top in outer:
            inner.setdefault(top, []).append(replace(row, name=below))
    return [
        row if figure.is_inner else replace(row, inner=inner.get(figure.path, ()))
        for figure, row in rows.items()
        if not (figure.is_inner and figure.path.partition("/")[0] in outer)
    ]


def _metric_row(
    comparison: Comparison, change: MeasuredChange, axis: float, is_named_twice: bool
) -> MetricRow:
    paired = change.paired
    path = change.figure.path if is_named_twice else ""
    if paired.mean is None or paired.low is None or paired.high is None:
        means = " → ".join(format_mean(side.mean) for side in change.own)
        note = _why_unpaired(comparison, change)
        return MetricRow(change.name, path, means, MISSING, "", "", note)
    ends = paired.low, paired.high
    is_clear = paired.change in TONES
    bar = interval_bar(paired.mean, axis, ends, is_coloured=is_clear)
    low, high = map(format_mean_change, ends)
    p = p_value(paired.p) if paired.p is not None else "too few cases to test"
    return MetricRow(
        name=change.name,
        path=path,
        means=f"{format_mean(change.before)} → {format_mean(change.after)}",
        change=format_mean_change(paired.mean),
        tone=bar.bar_tone if is_clear else "",
        interval=f"95% CI {low} to {high}, {p}",
        note=f"n{NO_BREAK}={NO_BREAK}{paired.cases}",
        **asdict(bar),
    )


def _why_unpaired(comparison: Comparison, change: MeasuredChange) -> str:
    sides = zip(change.own, (comparison.baseline, comparison.candidate), strict=True)
    runs = [side.run for own, side in sides if own.executions]
    if len(runs) == 1:
        count = max(own.executions for own in change.own)
        return f"only in #{runs[0].number}, n = {counted(count, 'result')}"
    return "no shared case has it on both sides"


def format_mean(value: float | None) -> str:
    """Format a mean with two decimals, rounded down: `4.39`."""
    return MISSING if value is None else down(value, DIGITS)


def format_mean_change(value: float) -> str:
    """Format a change with its sign and two decimals: `−0.35`."""
    rounded = nearest(value, DIGITS)
    return sign(rounded, f"{abs(rounded):f}")


JUDGE_FIELDS = ("name", "base_url", "model_id", "reply_mode", "parameters")
MAX_VALUE_LENGTH = 20_000


@dataclass(frozen=True, slots=True)
class ConfigurationComparison:
    """The settings that differ, by part; empty where both runs have the same settings."""

    parts: Sequence[tuple[str, Sequence[ChangedValueRow]]]
    evaluators: Sequence[ChangedEvaluatorRow]
    files: Sequence[FileChange]

    @property
    def count(self) -> int:
        """Return how many values, evaluators and files differ."""
        values = sum(len(rows) for _, rows in self.parts)
        return values + len(self.evaluators) + len(self.files)


def configuration_comparison(baseline: Run, candidate: Run) -> ConfigurationComparison:
    """Compare the frozen settings of two runs; no query."""
    page = ChangedValues()
    before, after = baseline.snapshot, candidate.snapshot
    policy: Sequence[ChangedValueRow] = ()
    evaluators: Sequence[ChangedEvaluatorRow] = ()
    files: Sequence[FileChange] = ()
    # Most runs that are compared differ in their target alone.
    if any(before.get(name) != after.get(name) for name in FROZEN):
        difference = compare_specs(_frozen(before), _frozen(after))
        policy, evaluators = setting_rows(difference, (baseline.scale, candidate.scale), page)
        files = difference.files
    parts = (
        ("Target", _rows(_flat(before["target"]), _flat(after["target"]), page)),
        ("Judge", _rows(_flat(_judge(before)), _flat(_judge(after)), page)),
        ("Prompt versions", _rows(_flat(before["prompts"]), _flat(after["prompts"]), page)),
        ("Policy", policy),
    )
    return ConfigurationComparison(
        parts=[(name, rows) for name, rows in parts if rows],
        evaluators=evaluators,
        files=files,
    )


FROZEN = ("policy", "evaluators", "files")


def _frozen(snapshot: Mapping[str, Any]) -> VersionSpec:
    """Return the settings in the shape of a suite version, without cases."""
    return VersionSpec.model_validate({name: snapshot.get(name) for name in FROZEN})


def _judge(snapshot: Mapping[str, Any]) -> Mapping[str, Any]:
    judge = snapshot.get("judge") or {}
    return {name: judge[name] for name in JUDGE_FIELDS if name in judge}


def _flat(values: Mapping[str, Any]) -> dict[str, str]:
    return dict(_pairs(values))


def _pairs(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        label = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{label}, ")
        elif value not in (None, ""):
            yield label, as_text(value)[:MAX_VALUE_LENGTH]


def _rows(
    before: Mapping[str, str], after: Mapping[str, str], page: ChangedValues
) -> list[ChangedValueRow]:
    return [
        page.row(name, old, new, is_text=" " in (old or ""))
        for name in dict.fromkeys((*before, *after))
        for old, new in ((before.get(name), after.get(name)),)
        if old != new
    ]
