"""Both gates of a run (SCORING §8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluators.scoring.numbers import is_at_least
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.summary.figures import Execution, GateResult
from runs.summary.verdicts import verdict_of


@dataclass(frozen=True, slots=True)
class Gates:
    """Both gates, and how many executions passed."""

    metrics: GateResult
    cases: GateResult
    passed: int


def gates_of(
    rows: Sequence[Execution],
    policy: Policy,
    scores: tuple[float | None, int],
    *,
    is_completed: bool,
) -> Gates:
    """Return the gates over the executions; `scores` are their mean and how many have one.

    A run that is not completed is judged over what has ended, and its gates stay open.
    """
    average, scored = scores
    marks = [
        verdict_of(row, policy) is Verdict.PASS for row in rows if is_completed or row.is_ended
    ]
    passed = sum(marks)
    rate = passed / len(marks) if marks else None
    limits = policy.metrics_pass_threshold, policy.cases_pass_threshold
    return Gates(
        metrics=_gate(average, limits[0], is_completed, (scored, len(rows))),
        cases=_gate(rate, limits[1], is_completed, (len(marks), len(rows))),
        passed=passed,
    )


def _gate(
    figure: float | None, threshold: float, is_completed: bool, counts: tuple[int, int]
) -> GateResult:
    """Return a gate's result: closed once the run is completed and has a figure."""
    is_closed = is_completed and figure is not None
    return GateResult(
        share=figure if is_closed else None,
        so_far=figure,
        threshold=threshold,
        passed=is_at_least(figure, threshold) if is_closed and figure is not None else None,
        counted=counts[0],
        total=counts[1],
    )
