"""The panel of what evaluators measured: both means, the change with its interval, and a bar of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluators.templatetags.figures import MISSING, down, nearest, sign
from runs.comparison import DIMENSION, EVALUATOR, METRIC, MeasuredChange
from runs.reports.compared import Compared
from runs.reports.comparison_conclusion import p_words
from runs.reports.diverging import Bar, axis_of, bar_of

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
    bar: Bar | None


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
            rows = [_row(found, one, axis, names.count(one.name) > 1) for one in listed]
            groups.append(MetricGroup(title, scale, f"{axis:g}", rows))
    return groups


def _row(found: Compared, one: MeasuredChange, axis: float, is_named_twice: bool) -> MetricRow:
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
