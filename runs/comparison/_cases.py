"""Compare the cases of two runs one by one (SCORING §9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.scoring.types import Verdict
from runs.comparison._changes import difference

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

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, costs as US dollars spelt out."""
        costs = (
            ("run_cost_usd", self.run_cost_usd),
            ("evaluation_cost_usd", self.evaluation_cost_usd),
        )
        return {
            "verdict": None if self.verdict is None else self.verdict.value,
            "state": self.state,
            "machine_verdict": None if self.machine is None else self.machine.value,
            "reviewed_verdict": None if self.reviewed is None else self.reviewed.value,
            "mean_score": self.mean_score,
            "passed": self.passed,
            "scored": self.scored,
            "executions": self.executions,
            "flaky": self.is_flaky,
            "outcomes": self.outcomes,
            "outcomes_met": self.outcomes_met,
            "latency_ms": self.latency_ms,
            **{
                name: None if cost is None else f"{cost:f}"
                for name, cost in (*costs, ("total_cost_usd", self.cost_usd))
            },
        }


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

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; a side that does not have the case is None."""
        return {
            "case": self.case,
            "status": self.status,
            "has_flipped": self.has_flipped,
            "score_change": self.score_change,
            "baseline": None if self.baseline is None else self.baseline.as_json(),
            "candidate": None if self.candidate is None else self.candidate.as_json(),
        }


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
