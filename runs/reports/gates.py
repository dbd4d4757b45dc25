"""The two gates of a run in words: judged when it is completed, an outlook while it is on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from evaluators.scoring.policy import Policy
from evaluators.scoring.types import SCORE_DIGITS
from runs.models import Run, RunStatus

GATE_WORDS = ("passed", "failed", "on_course", "at_risk", "out_of_reach", "open")


@dataclass(frozen=True, slots=True)
class RunGate:
    """One gate: its figure and limit as shares, its state and what that rests on."""

    name: str
    share: float | None
    limit: float
    state: str
    note: str


def metrics_gate(run: Run, policy: Policy) -> RunGate:
    """Return the mean overall score against its threshold, over the executions that have one."""
    limit, count, left = policy.metrics_pass_threshold, run.score_count, _left(run)
    share = _round(run.score_sum / count) if count else None
    basis = f"{count} of {run.execution_count} executions have a score"
    if not run.is_active:
        return RunGate("Metrics", share, limit, _ended(run, share, limit), basis)
    if not left:
        return RunGate("Metrics", share, limit, _course(share, limit), basis)
    needed = _round((limit * (count + left) - run.score_sum) / left)
    if needed > 1:
        note = f"The remaining {_executions(left)} cannot lift the mean that far"
        return RunGate("Metrics", share, limit, "out_of_reach", note)
    if needed <= 0:
        return RunGate("Metrics", share, limit, "on_course", "Reached whatever the rest scores")
    note = f"The remaining {_executions(left)} must average {math.ceil(needed * 1000) / 10:.1f}%"
    return RunGate("Metrics", share, limit, _course(share, limit), note)


def cases_gate(run: Run, policy: Policy) -> RunGate:
    """Return the share of executions that passed against its threshold; errors have not passed."""
    limit, left = policy.cases_pass_threshold, _left(run)
    done = (
        run.done_count
        if run.is_active or run.status != RunStatus.COMPLETED
        else run.execution_count
    )
    share = _round(run.pass_count / done) if done else None
    basis = f"{run.pass_count} of {done} passed"
    if not run.is_active:
        return RunGate("Cases", share, limit, _ended(run, share, limit), basis)
    needed = math.ceil(_round(limit * run.execution_count)) - run.pass_count
    if needed > left:
        return RunGate(
            "Cases", share, limit, "out_of_reach", f"{basis} · {needed} more needed, {left} left"
        )
    if needed <= 0:
        return RunGate(
            "Cases", share, limit, "on_course", f"{basis} · enough whatever the rest does"
        )
    note = f"{basis} · {needed} of the last {left} must pass"
    return RunGate("Cases", share, limit, _course(share, limit), note)


def _left(run: Run) -> int:
    return max(run.execution_count - run.done_count, 0)


def _executions(count: int) -> str:
    return "execution" if count == 1 else f"{count} executions"


def _ended(run: Run, share: float | None, limit: float) -> str:
    """Judge a completed run; any other keeps its gates open (SCORING §8)."""
    if run.status != RunStatus.COMPLETED or share is None:
        return "open"
    return "passed" if share >= _round(limit) else "failed"


def _course(share: float | None, limit: float) -> str:
    return "on_course" if share is None or share >= _round(limit) else "at_risk"


def _round(value: float) -> float:
    return round(value, SCORE_DIGITS)
