"""A run in its few figures that decide: cases by state, both gates, the mean score (SCORING §8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evaluators.scoring.numbers import mean
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.summary.cases import distribution_of, state_of
from runs.summary.figures import SCORED, Execution, GateResult
from runs.summary.gates import gates_of
from runs.summary.verdicts import case_verdict


@dataclass(frozen=True, slots=True)
class Brief:
    """`cases` holds by key the state of a case and its mean score; `passed` counts executions."""

    passed: int
    distribution: Mapping[str, int]
    mean_score: float | None
    with_score: int
    metrics_gate: GateResult
    cases_gate: GateResult
    cases: Mapping[str, tuple[str, float | None]]


def brief(executions: Iterable[Execution], policy: Policy, *, is_completed: bool) -> Brief:
    """Return what `summarise` says of verdicts, scores and gates, in a fraction of its time."""
    rows = list(executions)
    by_case: dict[str, list[Execution]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    cases = {case: _standing(group, policy) for case, group in by_case.items()}
    scores = [row.score for row in rows if row.score is not None and row.status == SCORED]
    average = mean(scores)
    gates = gates_of(rows, policy, (average, len(scores)), is_completed=is_completed)
    return Brief(
        passed=gates.passed,
        distribution=distribution_of(state for state, _ in cases.values()),
        mean_score=average,
        with_score=len(scores),
        metrics_gate=gates.metrics,
        cases_gate=gates.cases,
        cases=cases,
    )


def _standing(group: list[Execution], policy: Policy) -> tuple[str, float | None]:
    verdict: Verdict | None = case_verdict(group, policy)
    scores = [row.score for row in group if row.score is not None and row.status == SCORED]
    return state_of(group, verdict), mean(scores)
