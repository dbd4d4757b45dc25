"""The figures of a run: executions as input, means, gates, metrics and dimensions as output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from typing import Any

from evaluators.scoring.numbers import percent, rounded, sum_known
from evaluators.scoring.types import Verdict

SCORED, ERROR = "scored", "error"
ENDED = (SCORED, ERROR)
MONEY = ("run_cost_usd", "evaluation_cost_usd")
INTERVALS = ("interval", "score_interval")


# Not frozen, because a page creates ten thousand, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class ExecutionRecord:
    """One execution as it was recorded. `score` is 0 to 1, `metrics` are 0 to 5, `dimensions` 0 to 10.

    Tokens and costs include failed and repeated calls; those without a prefix are the target's. None
    means not reported, never zero.
    """

    case: str
    status: str
    verdict: Verdict | None = None
    score: float | None = None
    is_forced: bool = False
    reviewed_verdict: Verdict | None = None
    latency_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    run_cost_usd: Decimal | None = None
    evaluation_cost_usd: Decimal | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    dimensions: Mapping[str, float] = field(default_factory=dict)
    evaluation_input_tokens: int | None = None
    evaluation_output_tokens: int | None = None

    @property
    def is_ended(self) -> bool:
        """Tell whether it ended, scored or with an error."""
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class Means:
    """Means and sums over executions; a mean is over those with a value, None without any."""

    score: float | None = None
    scored: int = 0
    latency_ms: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    dimensions: Mapping[str, float] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    run_cost_usd: Decimal | None = None
    evaluation_cost_usd: Decimal | None = None
    evaluation_input_tokens: int | None = None
    evaluation_output_tokens: int | None = None

    @property
    def total_cost_usd(self) -> Decimal | None:
        """Return both costs together, None when neither is known."""
        return sum_known((self.run_cost_usd, self.evaluation_cost_usd))


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """A case over its repetitions.

    `state` is a verdict, error (no repetition scored), waiting or not_run. Of `executions` repetitions,
    `ended` have ended, `scored` have a verdict and `passed` passed. `is_flaky` means that verdicts
    differ; for `all_passed` an errored repetition has not passed. `decided_by` states the numbers by which
    `rule` decided. `lowest` and `highest` are the extreme scores, 0 to 1.
    """

    case: str
    state: str
    verdict: Verdict | None
    executions: int
    scored: int
    passed: int
    is_flaky: bool
    all_passed: bool
    any_passed: bool
    means: Means
    decided_by: str = ""
    rule: str = ""
    ended: int = 0
    lowest: float | None = None
    highest: float | None = None

    @property
    def is_settled(self) -> bool:
        """Tell whether every repetition has ended."""
        return self.ended == self.executions

    @property
    def spread(self) -> float | None:
        """Return highest − lowest score, 0 to 1; None with fewer than two scores."""
        if self.means.scored < 2 or self.lowest is None or self.highest is None:
            return None
        return rounded(self.highest - self.lowest)


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate: `share` against `threshold`, both 0 to 1; None until the run is completed.

    `so_far` is the figure over what has ended; `counted` of `total` executions went in.
    """

    share: float | None
    so_far: float | None
    threshold: float
    passed: bool | None
    counted: int
    total: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in numbers. `interval` is the 95% interval of the pass rate, 0 to 1.

    `score_interval` is that of the mean score. `distribution` counts cases by state; `reviews` is
    how many reviewed verdicts count. `settled` to `spread_cases` are RepetitionFigures, `timed` to
    `latency_p95_ms` are Latencies.
    """

    executions: int
    ended: int
    passed: int
    errors: int
    metrics_gate: GateResult
    cases_gate: GateResult
    interval: tuple[float, float] | None
    distribution: Mapping[str, int]
    means: Means
    flaky: int
    all_passed: int
    any_passed: int
    reviews: int
    settled: int = 0
    comparable: int = 0
    spread: float | None = None
    spread_cases: int = 0
    timed: int = 0
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    cases: tuple[CaseSummary, ...] = ()
    score_interval: tuple[float, float] | None = None

    @property
    def case_count(self) -> int:
        """Return how many cases the distribution counts."""
        return sum(self.distribution.values())

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values without the cases, the gates also under their usual names in percent."""
        # Without the cases: asdict would copy thousands only to drop them.
        written = asdict(replace(self, cases=()))
        del written["cases"]
        written["means"] = _means_as_json(self.means)
        for name in INTERVALS:
            written[name] = None if written[name] is None else list(written[name])
        metrics, cases = self.metrics_gate, self.cases_gate
        return written | {
            "distribution": {"total": self.case_count, **self.distribution},
            "shares": shares(self.distribution),
            "weighted_metrics_score_pct": _percent(metrics.share),
            "metrics_pass_threshold": percent(metrics.threshold),
            "metrics_passed": metrics.passed,
            "cases_pass_rate_pct": _percent(cases.share),
            "cases_pass_threshold": percent(cases.threshold),
            "cases_passed": cases.passed,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Summary:
        """Return the summary that as_json wrote, without the cases."""
        names = [figure.name for figure in fields(cls)]
        # Older summaries lack figures that were added later.
        known = {name: values[name] for name in names if name in values}
        distribution = {k: v for k, v in values["distribution"].items() if k != "total"}
        changed = {
            "metrics_gate": GateResult(**values["metrics_gate"]),
            "cases_gate": GateResult(**values["cases_gate"]),
            **{name: tuple(ends) for name in INTERVALS if (ends := values.get(name)) is not None},
            "distribution": distribution,
            "means": _means_from_json(values["means"]),
        }
        return cls(**{**known, **changed})


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Return every count as a share of the total, 0 to 1; 0 without any."""
    total = sum(counts.values())
    return {name: count / total if total else 0.0 for name, count in counts.items()}


def _percent(share: float | None) -> float | None:
    return None if share is None else percent(share)


def _means_as_json(means: Means) -> dict[str, Any]:
    written = asdict(means)
    for name in MONEY:
        written[name] = None if written[name] is None else str(written[name])
    return written


def _means_from_json(values: Mapping[str, Any]) -> Means:
    money = {name: None if values[name] is None else Decimal(values[name]) for name in MONEY}
    return Means(**{**values, **money})


FACTS = ("key", "name", "tier", "weight", "binary")


@dataclass(frozen=True, slots=True)
class MetricMean:
    """One metric of the evaluator at a path: the mean of the executions it was judged in, 0 to 5.

    `weight` is its share of the evaluator's score, 0 to 1. A mean takes the label of its nearest
    whole score, halves up; one that is `binary` is pass or fail.
    """

    path: str
    key: str
    name: str
    tier: str
    weight: float
    binary: bool
    mean: float
    judged: int

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MetricMean:
        """Return the mean that as_json wrote."""
        return cls(**values)


@dataclass(slots=True)
class _Sum:
    facts: Mapping[str, Any]
    scores: list[float] = field(default_factory=list)


def metric_means(
    judged: Iterable[tuple[int, str, Sequence[Mapping[str, Any]]]],
) -> tuple[MetricMean, ...]:
    """Return the means by evaluator in tree order, each of its metrics in the order it judges them.

    `judged` has the evaluator's position in the tree, its path and its stored metrics for every score.
    """
    places: dict[str, int] = {}
    found: dict[str, dict[str, _Sum]] = {}
    for position, path, metrics in judged:
        places[path] = min(position, places.get(path, position))
        sums = found.setdefault(path, {})
        for metric in metrics or ():
            known = sums.get(metric["key"])
            if known is None:
                known = sums[metric["key"]] = _Sum({name: metric[name] for name in FACTS})
            known.scores.append(metric["score"])
    return tuple(
        MetricMean(
            path=path,
            mean=rounded(math.fsum(sum_.scores) / len(sum_.scores)),
            judged=len(sum_.scores),
            **sum_.facts,
        )
        for path in sorted(found, key=lambda path: (places[path], path))
        for sum_ in found[path].values()
    )


def means_by_key(metrics: Iterable[MetricMean]) -> dict[str, float]:
    """Return the mean of every key, from the first evaluator that judges it."""
    found: dict[str, float] = {}
    for metric in metrics:
        found.setdefault(metric.key, metric.mean)
    return found


SIDES = ("deterministic", "judge", "final")


@dataclass(frozen=True, slots=True)
class SideMean:
    """The mean of one side, 0 to 10, over the `counted` executions that have it; None without any."""

    mean: float | None
    counted: int


@dataclass(frozen=True, slots=True)
class DimensionMean:
    """One dimension of the evaluator at a path: the means of the checks, the judge and both together."""

    path: str
    key: str
    name: str
    deterministic: SideMean
    judge: SideMean
    final: SideMean

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> DimensionMean:
        """Return the mean that as_json wrote."""
        return cls(**{**values, **{side: SideMean(**values[side]) for side in SIDES}})


@dataclass(slots=True)
class _Sums:
    name: str
    sides: dict[str, list[float]] = field(default_factory=lambda: {side: [] for side in SIDES})


def dimension_means(
    judged: Iterable[tuple[int, str, Sequence[Mapping[str, Any]]]],
) -> tuple[DimensionMean, ...]:
    """Return the means by evaluator in tree order, each of its dimensions in the order it has them.

    `judged` has the evaluator's position in the tree, its path and its stored dimensions for every
    score. A side that is missing in an execution is left out, never 0.
    """
    places: dict[str, int] = {}
    found: dict[str, dict[str, _Sums]] = {}
    for position, path, dimensions in judged:
        places[path] = min(position, places.get(path, position))
        sums = found.setdefault(path, {})
        for part in dimensions or ():
            known = sums.setdefault(part["key"], _Sums(part["name"]))
            for side in SIDES:
                if part.get(side) is not None:
                    known.sides[side].append(part[side])
    return tuple(
        DimensionMean(
            path=path,
            key=key,
            name=sums.name,
            **{side: _mean(values) for side, values in sums.sides.items()},
        )
        for path in sorted(found, key=lambda path: (places[path], path))
        for key, sums in found[path].items()
    )


def finals_by_key(dimensions: Iterable[DimensionMean]) -> dict[str, float]:
    """Return the final mean of every key, from the first evaluator that has it."""
    found: dict[str, float] = {}
    for dimension in dimensions:
        if dimension.final.mean is not None:
            found.setdefault(dimension.key, dimension.final.mean)
    return found


def _mean(values: Sequence[float]) -> SideMean:
    return SideMean(rounded(math.fsum(values) / len(values)) if values else None, len(values))
