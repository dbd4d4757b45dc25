"""Compare the cases of two runs one by one, and rank whole runs (SCORING §9)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from evaluators.scoring.numbers import format_number, percent, rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import SCORE_DIGITS, ScoreOutOfRangeError, Verdict

# Every float has fewer digits than this.
WIDE = Context(prec=400)


def difference(before: float | None, after: float | None) -> float | None:
    """Return after − before, to 9 decimals; None where a side has no figure."""
    return None if before is None or after is None else rounded(after - before)


def spelt_change(size: float, digits: int) -> str:
    """Return the size of a change with so many decimals, to the nearest, as every change is shown; halves away from zero."""
    exact = Decimal(repr(rounded(size)))
    return f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, context=WIDE):f}"


@dataclass(frozen=True, slots=True)
class Standing:
    """A completed run: its pass rate over all executions and its mean score, 0 to 1, None without one."""

    key: int
    rate: float
    score: float | None = None


def ranks(standings: Sequence[Standing]) -> Mapping[int, int]:
    """Return the rank of each run by its key, 1 for the best.

    The higher pass rate stands first, of equal ones the higher mean score, both to 9 decimals; equal
    in both share a rank, and the next one is as many places below. No score is below every score.
    """
    order = sorted((_place(one) for one in standings), reverse=True)
    return {one.key: order.index(_place(one)) + 1 for one in standings}


def _place(one: Standing) -> tuple[float, float]:
    return rounded(one.rate), -1.0 if one.score is None else rounded(one.score)


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
    def of(cls, policy: PolicySpec) -> Tolerances:
        """Return the tolerances of a policy."""
        return cls(
            policy.max_pass_rate_drop, policy.max_avg_score_drop, policy.max_latency_increase_pct
        )


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
    was, now = format_number(percent(before), digits), format_number(percent(after), digits)
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
    return next((d for d in range(1, SCORE_DIGITS) if float(format_number(change, d)) > limit), 1)


def _tolerated(points: float) -> str:
    """Return a tolerance with all the decimals it has, and at least one."""
    whole, _, decimals = f"{points:.7f}".rstrip("0").partition(".")
    return f"{whole}.{decimals or 0}"


CASE_TOLERANCE = 0.05
UNCHANGED, REGRESSION, IMPROVEMENT = "unchanged", "regression", "improvement"
ERROR, ADDED, REMOVED = "error", "added", "removed"
HARM = (REGRESSION, ERROR, UNCHANGED, IMPROVEMENT, ADDED, REMOVED)
DEPTH = {Verdict.FAIL: 0, Verdict.BORDERLINE: 1, Verdict.PASS: 2}


@dataclass(frozen=True, slots=True)
class CaseSide:
    """A case as one run left it; without a verdict it is errored.

    Of its `executions` so many are `scored`, of which so many `passed`; costs and latency are None
    where none was reported. `state` is its verdict, or how it came to have none. Of its `outcomes`
    so many were `outcomes_met` in every repetition that judged them. It `is_flaky` when the verdicts
    of its executions differ. Where people decided any of them, `reviewed` is its verdict with what
    they decided and `machine` that without; both are None elsewhere.
    """

    verdict: Verdict | None
    mean_score: float | None = None
    passed: int = 0
    scored: int = 0
    executions: int = 0
    latency_ms: float | None = None
    cost_usd: Decimal | None = None
    state: str = ""
    run_cost_usd: Decimal | None = None
    evaluation_cost_usd: Decimal | None = None
    outcomes: int = 0
    outcomes_met: int = 0
    is_flaky: bool = False
    machine: Verdict | None = None
    reviewed: Verdict | None = None

    @property
    def pass_share(self) -> float | None:
        """Return the share of its scored executions that passed; None of none."""
        return self.passed / self.scored if self.scored else None


@dataclass(frozen=True, slots=True)
class CaseChange:
    """How a case changed: regression, improvement, unchanged, error, added or removed.

    `has_flipped` tells that it went from pass to not-pass or back; `score_change` is candidate
    minus baseline, −1 to 1.
    """

    case: str
    status: str
    has_flipped: bool = False
    score_change: float | None = None
    baseline: CaseSide | None = None
    candidate: CaseSide | None = None


def compare_case(case: str, baseline: CaseSide | None, candidate: CaseSide | None) -> CaseChange:
    """Return how one case changed; a side that is None does not have it."""
    if baseline is None:
        return CaseChange(case, ADDED, candidate=candidate)
    if candidate is None:
        return CaseChange(case, REMOVED, baseline=baseline)
    change = difference(baseline.mean_score, candidate.mean_score)
    if baseline.verdict is None or candidate.verdict is None:
        return CaseChange(case, ERROR, False, change, baseline, candidate)
    was, now = baseline.verdict is Verdict.PASS, candidate.verdict is Verdict.PASS
    status = _status(was, now, change)
    return CaseChange(case, status, was != now, change, baseline, candidate)


def compare_cases(
    baseline: Mapping[str, CaseSide], candidate: Mapping[str, CaseSide]
) -> tuple[CaseChange, ...]:
    """Return every case of both runs, in the candidate's order, removed ones last."""
    names: Iterable[str] = dict.fromkeys((*candidate, *baseline))
    return tuple(compare_case(name, baseline.get(name), candidate.get(name)) for name in names)


def _status(was: bool, now: bool, change: float | None) -> str:
    if was != now:
        return IMPROVEMENT if now else REGRESSION
    if change is None or abs(change) <= CASE_TOLERANCE:
        return UNCHANGED
    return IMPROVEMENT if change > 0 else REGRESSION


def by_harm(changes: Iterable[CaseChange]) -> tuple[CaseChange, ...]:
    """Return the cases, the worst first: regressions that flipped, by how far the score fell, then the others."""
    return tuple(sorted(changes, key=_harm))


def _harm(change: CaseChange) -> tuple[int, bool, int, float, str]:
    now = change.candidate.verdict if change.candidate else None
    depth = -1 if now is None else DEPTH[now]
    return (
        HARM.index(change.status),
        not change.has_flipped,
        depth,
        change.score_change or 0.0,
        change.case,
    )
