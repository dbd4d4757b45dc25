"""Compare two whole runs by tolerances (SCORING §9)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from evaluators.scoring.numbers import percent, rounded, spelt
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import SCORE_DIGITS, ScoreOutOfRangeError
from runs.comparison._changes import difference, spelt_change


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How much worse a run may be: drops as shares from 0 to 1, latency in percent; reaching one is allowed.

    Raises ScoreOutOfRangeError naming the field and the value.
    """

    max_pass_rate_drop: float = 0.0
    max_avg_score_drop: float = 0.05
    max_latency_increase_pct: float = 20.0

    def __post_init__(self) -> None:
        """Refuse what is no tolerance."""
        for name, most in (
            ("max_pass_rate_drop", 1.0),
            ("max_avg_score_drop", 1.0),
            ("max_latency_increase_pct", math.inf),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= most):
                bounds = "0 or more" if math.isinf(most) else "a number from 0 to 1"
                raise ScoreOutOfRangeError(f"{name} {value!r} is not {bounds}")

    @classmethod
    def of(cls, policy: Policy) -> Tolerances:
        """Return the tolerances of a policy."""
        return cls(
            policy.max_pass_rate_drop, policy.max_avg_score_drop, policy.max_latency_increase_pct
        )

    def as_json(self) -> dict[str, Any]:
        """Return each tolerance in the unit it is asked for in, and that unit."""
        return {
            "max_pass_rate_drop": {"value": self.max_pass_rate_drop, "unit": "share, 0 to 1"},
            "max_avg_score_drop": {
                "value": percent(self.max_avg_score_drop),
                "unit": "points of 100",
            },
            "max_latency_increase_pct": {
                "value": self.max_latency_increase_pct,
                "unit": "percent",
            },
        }


@dataclass(frozen=True, slots=True)
class RunSide:
    """One run's own figures over all its executions; scores are 0 to 1, None where there is none."""

    passed: int
    total: int
    mean_score: float | None = None
    mean_latency_ms: float | None = None

    @property
    def pass_rate(self) -> float | None:
        """Return passed ÷ total, errors being not passed; None of nothing."""
        return self.passed / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class Reason:
    """A tolerance that was exceeded: `change` beyond `limit`, as shares, or percent for latency."""

    measure: str
    baseline: float
    candidate: float
    change: float
    limit: float
    text: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """What changed from baseline to candidate. A change is None where a side has no figure."""

    regression_detected: bool
    reasons: tuple[Reason, ...]
    pass_rate_change: float | None
    score_change: float | None
    latency_change_pct: float | None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"reasons": [asdict(reason) for reason in self.reasons]}


def compare_runs(
    baseline: RunSide, candidate: RunSide, tolerances: Tolerances = Tolerances()
) -> RunComparison:
    """Return the changes of pass rate, mean score and latency, and which tolerances they exceed."""
    rate = difference(baseline.pass_rate, candidate.pass_rate)
    score = difference(baseline.mean_score, candidate.mean_score)
    latency = _increase_pct(baseline.mean_latency_ms, candidate.mean_latency_ms)
    found = (
        _drop(
            "pass rate", (baseline.pass_rate, candidate.pass_rate), tolerances.max_pass_rate_drop
        ),
        _drop(
            "mean score", (baseline.mean_score, candidate.mean_score), tolerances.max_avg_score_drop
        ),
        _slower(baseline, candidate, latency, tolerances.max_latency_increase_pct),
    )
    reasons = tuple(reason for reason in found if reason is not None)
    return RunComparison(bool(reasons), reasons, rate, score, latency)


def _increase_pct(before: float | None, after: float | None) -> float | None:
    """Return by how many percent it grew; None when missing or when there is no base to grow from."""
    if before is None or after is None or before <= 0:
        return None
    return rounded((after / before - 1.0) * 100)


def _drop(measure: str, sides: tuple[float | None, float | None], limit: float) -> Reason | None:
    before, after = sides
    change = difference(before, after)
    if before is None or after is None or change is None or -change <= rounded(limit):
        return None
    points = percent(-change)
    digits = _digits_beyond(points, percent(limit))
    was, now = spelt(percent(before), digits), spelt(percent(after), digits)
    text = (
        f"{measure} fell by {spelt_change(points, digits)} points, from {was}% to {now}%; "
        f"{_tolerated(percent(limit))} are tolerated"
    )
    return Reason(measure, before, after, change, limit, text)


def _slower(
    baseline: RunSide, candidate: RunSide, change: float | None, limit: float
) -> Reason | None:
    before, after = baseline.mean_latency_ms, candidate.mean_latency_ms
    if change is None or before is None or after is None or change <= rounded(limit):
        return None
    digits = _digits_beyond(change, limit)
    shown = digits if digits > 1 else 0
    text = (
        f"mean latency grew by {spelt_change(change, digits)}%, "
        f"from {before:,.{shown}f} ms to {after:,.{shown}f} ms; {limit:g}% are tolerated"
    )
    return Reason("mean latency", before, after, change, limit, text)


def _digits_beyond(change: float, limit: float) -> int:
    """Return with how many decimals, rounded down, a change reads as more than its limit."""
    return next((d for d in range(1, SCORE_DIGITS) if float(spelt(change, d)) > limit), 1)


def _tolerated(points: float) -> str:
    """Return a tolerance with all the decimals it has, and at least one."""
    whole, _, decimals = f"{points:.7f}".rstrip("0").partition(".")
    return f"{whole}.{decimals or 0}"
