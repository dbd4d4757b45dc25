"""The headline figures of a comparison, every metric with its interval, and what was configured otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.templatetags.figures import (
    MISSING,
    counted,
    delta,
    down,
    duration,
    money,
    nearest,
    pct,
    plain,
    points,
    sign,
)
from evaluators.templatetags.ui import as_text
from runs.compare.comparison import Compared, ComparisonSide
from runs.compare.conclusion import p_words
from runs.compare.evidence import DIMENSION, EVALUATOR, METRIC, MeasuredChange, Paired
from runs.models.runs import Run
from runs.specs.suites import VersionSpec
from runs.suites.differences import FileChange, compare_specs
from runs.suites.version_pages import ChangedEvaluatorRow, ChangedValueRow, setting_rows
from runs.texts import text_diff

# The ends an axis may have; the largest is the whole of the scale.
AXIS_OF_POINTS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
HALF = 50
BAD, GOOD, SAME = "bad", "good", "same"


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """Where a bar begins and how wide it is, and both ends of its whisker, as percent of the drawing; and its tone."""

    x: str
    width: str
    tone: str
    whisker: tuple[str, str] | None = None


def axis_of(values: Iterable[float], ends: Iterable[float]) -> float:
    """Return the least of the ends that no value exceeds, the last one where all are exceeded."""
    most = max((abs(value) for value in values), default=0.0)
    known = list(ends)
    return next((end for end in known if most <= end), known[-1])


def bar_of(
    value: float,
    axis: float,
    interval: tuple[float, float] | None = None,
    *,
    is_coloured: bool = True,
) -> IntervalBar:
    """Return the bar of a change on an axis from −`axis` to `axis`."""
    width = _along(abs(value), axis)
    tone = BAD if value < 0 else GOOD if value > 0 else SAME
    ends = [f"{HALF + _along(end, axis):.1f}%" for end in interval] if interval else []
    return IntervalBar(
        x=f"{HALF - width if value < 0 else HALF:.1f}%",
        width=f"{width:.1f}%",
        tone=tone if is_coloured else SAME,
        whisker=(ends[0], ends[1]) if ends else None,
    )


def _along(value: float, axis: float) -> float:
    return max(-1.0, min(value / axis, 1.0)) * HALF


TONES = {"regressed": "bad", "improved": "good"}


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of both runs: its change, whether its tolerance is kept, and what the cases say."""

    name: str
    change: float | Decimal | None
    unit: str
    before: str
    after: str
    note: str
    limit: str
    state: str
    tone: str
    said: Sequence[str]


def headline_measures(found: Compared) -> tuple[Measure, ...]:
    """Return the four figures, each run's own over all its executions (SCORING §9)."""
    limits, said = found.tolerances, found.evidence
    before, after, runs = found.baseline.figures, found.candidate.figures, found.runs
    slower = runs.latency_change_pct
    broken = {one.measure for one in runs.reasons}
    latency = before.mean_latency_ms, after.mean_latency_ms
    sides = found.baseline, found.candidate
    return (
        Measure(
            "Pass rate",
            runs.pass_rate_change,
            "pts",
            pct(before.pass_rate),
            pct(after.pass_rate),
            f"{before.passed} of {before.total} → {after.passed} of {after.total} executions"
            f"{_with_reviews(sides)}",
            _drop(limits.max_pass_rate_drop),
            _kept("pass rate", broken, runs.pass_rate_change),
            TONES.get(said.pass_rate.change, ""),
            _said(said.pass_rate),
        ),
        Measure(
            "Mean score",
            runs.score_change,
            "pts",
            pct(before.mean_score),
            pct(after.mean_score),
            _of("with a score", [(side.scored, side.figures.total) for side in sides]),
            _drop(limits.max_avg_score_drop),
            _kept("mean score", broken, runs.score_change),
            TONES.get(said.mean_score.change, ""),
            _said(said.mean_score),
        ),
        Measure(
            "Latency, mean",
            None if slower is None else slower / 100,
            "pct",
            duration(latency[0]),
            duration(latency[1]),
            _of("with a latency", [(side.timed, side.figures.total) for side in sides]),
            f"Limit: +{plain(limits.max_latency_increase_pct)}%",
            _kept("mean latency", broken, slower),
            "",
            (f"p95 {duration(sides[0].p95_ms)} → {duration(sides[1].p95_ms)}",),
        ),
        _cost(found.baseline, found.candidate),
    )


def _with_reviews(sides: Sequence[ComparisonSide]) -> str:
    """Say how many decisions of people the figures of both runs count, "" where neither counts any."""
    if not any(side.reviews for side in sides):
        return ""
    return f", with {sides[0].reviews} → {counted(sides[1].reviews, 'review')}"


def _cost(before: ComparisonSide, after: ComparisonSide) -> Measure:
    was, now = before.cost_usd, after.cost_usd
    return Measure(
        "Total cost",
        now / was - 1 if was and now is not None else None,
        "pct",
        money(was),
        money(now),
        "",
        "No limit",
        "",
        "",
        (
            f"Run {money(before.run_cost_usd)} → {money(after.run_cost_usd)}",
            f"Evaluation {money(before.evaluation_cost_usd)} → {money(after.evaluation_cost_usd)}",
        ),
    )


def _of(words: str, counts: Sequence[tuple[int, int]]) -> str:
    """Say how many executions a figure counts on both sides; nothing where it counts all."""
    if all(count == total for count, total in counts):
        return ""
    (was, before), (now, after) = counts
    return f"{was} of {before} → {now} of {after} executions {words}"


def _drop(limit: float) -> str:
    return f"Limit: drop of {points(limit)}" if limit else "Limit: no drop"


def _kept(measure: str, broken: set[str], change: float | None) -> str:
    if change is None:
        return ""
    return "fail" if measure in broken else "pass"


def _said(one: Paired) -> Sequence[str]:
    """Return the interval over the shared cases, the p, and the least change they can show."""
    if one.mean is None or one.low is None or one.high is None:
        return ("No shared case has a verdict on both sides",)
    interval = f"{_signed(one.mean)} over shared cases, 95% CI {_signed(one.low)} to {_signed(one.high)} pts"
    tested = f", {p_words(one.p)}" if one.p is not None else ""
    told = [f"{interval}{tested}, n = {one.cases}"]
    if one.smallest is not None:
        told.append(f"Smallest change that shows at 80% power: {_in_points(one.smallest)}")
    elif one.p is None:
        told.append("Too few cases to tell a change from chance")
    return told


def _signed(share: float) -> str:
    return delta(share, "pts").removesuffix("\u00a0pts")


def _in_points(share: float) -> str:
    """Spell a size in points with one decimal: `4.2 pts`."""
    return f"{share * 100:.1f}\u00a0pts"


# By kind: the heading of its group, the unit of its scale, and the ends its axis may have.
GROUPS: Mapping[str, tuple[str, str, Sequence[float]]] = {
    METRIC: ("Metrics", "0 to 5", (0.5, 1, 2, 5)),
    DIMENSION: ("Dimensions", "0 to 10", (1, 2, 5, 10)),
    EVALUATOR: ("Evaluators", "0 to 1", (0.1, 0.2, 0.5, 1)),
}
DIGITS = 2
NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One figure: means of the shared cases, the change with its tone, interval and p in words, and its bar."""

    name: str
    path: str
    means: str
    change: str
    tone: str
    said: str
    note: str
    bar: IntervalBar | None


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """The figures of one kind; a bar reaches as far as `axis` on their scale."""

    title: str
    scale: str
    axis: str
    rows: Sequence[MetricRow]


def metric_groups(found: Compared) -> Sequence[MetricGroup]:
    """Return the figures kind by kind, in tree order; those that one run alone has are told without a change."""
    groups = []
    for kind, (title, scale, ends) in GROUPS.items():
        listed = [one for one in found.evidence.measured if one.figure.kind == kind]
        if listed:
            reach = (end for one in listed for end in (one.said.low, one.said.high, one.said.mean))
            axis = axis_of((end for end in reach if end is not None), ends)
            names = [one.name for one in listed]
            rows = [_metric_row(found, one, axis, names.count(one.name) > 1) for one in listed]
            groups.append(MetricGroup(title, scale, f"{axis:g}", rows))
    return groups


def _metric_row(
    found: Compared, one: MeasuredChange, axis: float, is_named_twice: bool
) -> MetricRow:
    said = one.said
    path = one.figure.path if is_named_twice else ""
    if said.mean is None or said.low is None or said.high is None:
        return MetricRow(one.name, path, _own(one), MISSING, "", "", _only(found, one), None)
    interval = said.low, said.high
    bar = bar_of(said.mean, axis, interval, is_coloured=said.excludes_zero)
    tested = f", {p_words(said.p)}" if said.p is not None else ", too few cases to test"
    return MetricRow(
        name=one.name,
        path=path,
        means=f"{spelt(one.before)} → {spelt(one.after)}",
        change=change_words(said.mean),
        tone=bar.tone if said.excludes_zero else "",
        said=f"95% CI {change_words(said.low)} to {change_words(said.high)}{tested}",
        note=f"n{NO_BREAK}={NO_BREAK}{said.cases}",
        bar=bar,
    )


def _own(one: MeasuredChange) -> str:
    return " → ".join(spelt(side.mean) for side in one.own)


def _only(found: Compared, one: MeasuredChange) -> str:
    sides = zip(one.own, (found.baseline, found.candidate), strict=True)
    having = [side.run for own, side in sides if own.executions]
    if len(having) == 1:
        executions = max(own.executions for own in one.own)
        return f"only in #{having[0].number}, n = {executions} executions"
    return "no shared case has it on both sides"


def spelt(value: float | None) -> str:
    """Spell a mean with two decimals, rounded down: `4.39`."""
    return MISSING if value is None else down(value, DIGITS)


def change_words(value: float) -> str:
    """Spell a change with its sign and two decimals: `−0.35`."""
    rounded = nearest(value, DIGITS)
    return sign(rounded, f"{abs(rounded):f}")


OF_A_JUDGE = ("name", "base_url", "model_id", "reply_mode", "parameters")
LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class ConfigurationComparison:
    """The values that differ, part by part; empty where both runs were set up alike."""

    parts: Sequence[tuple[str, Sequence[ChangedValueRow]]]
    evaluators: Sequence[ChangedEvaluatorRow]
    files: Sequence[FileChange]

    @property
    def count(self) -> int:
        """Return how many values, evaluators and files differ."""
        values = sum(len(rows) for _, rows in self.parts)
        return values + len(self.evaluators) + len(self.files)


def configuration_comparison(baseline: Run, candidate: Run) -> ConfigurationComparison:
    """Return what differs between the frozen settings of two runs; no query."""
    before, after = baseline.snapshot, candidate.snapshot
    difference = compare_specs(_frozen(before), _frozen(after))
    policy, evaluators = setting_rows(difference, (baseline.scale, candidate.scale))
    parts = (
        ("Target", _rows(_flat(before["target"]), _flat(after["target"]))),
        ("Judge", _rows(_flat(_judge(before)), _flat(_judge(after)))),
        ("Prompt versions", _rows(_flat(before["prompts"]), _flat(after["prompts"]))),
        ("Policy", policy),
    )
    return ConfigurationComparison(
        parts=[(name, rows) for name, rows in parts if rows],
        evaluators=evaluators,
        files=difference.files,
    )


def _frozen(snapshot: Mapping[str, Any]) -> VersionSpec:
    """Return the settings as a version of a suite has them; cases are compared one by one elsewhere."""
    return VersionSpec.model_validate(
        {name: snapshot.get(name) for name in ("policy", "evaluators", "files")}
    )


def _judge(snapshot: Mapping[str, Any]) -> Mapping[str, Any]:
    judge = snapshot.get("judge") or {}
    return {name: judge[name] for name in OF_A_JUDGE if name in judge}


def _flat(values: Mapping[str, Any]) -> dict[str, str]:
    return dict(_pairs(values))


def _pairs(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        words = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{words}, ")
        elif value not in (None, ""):
            yield words, as_text(value)[:LONGEST]


def _rows(before: Mapping[str, str], after: Mapping[str, str]) -> list[ChangedValueRow]:
    return [
        ChangedValueRow(name, old, new, text_diff(old, new) if old and new and " " in old else None)
        for name in dict.fromkeys((*before, *after))
        for old, new in ((before.get(name), after.get(name)),)
        if old != new
    ]
