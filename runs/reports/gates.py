"""The two gates of a run in words: judged when it is completed, an outlook while it is on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from evaluators.scoring.numbers import is_at_least
from evaluators.scoring.policy import Policy
from evaluators.templatetags.figures import counted
from runs.models import Run, RunStatus
from runs.summary import Progress, cases_outlook, metrics_outlook


@dataclass(frozen=True, slots=True)
class RunGate:
    """One gate: its figure and limit as shares, its state and what that rests on.

    `reviews` is how many decisions of people count in its figure, 0 where the policy counts none (SCORING §4.6).
    """

    name: str
    share: float | None
    limit: float
    state: str
    note: str
    reviews: int = 0

    @property
    def with_reviews(self) -> str:
        """Say how many decisions of people its figure counts, "" where none does."""
        return f"with {counted(self.reviews, 'review')}" if self.reviews else ""

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; its name is where it stands in the document."""
        return {
            "share": self.share,
            "threshold": self.limit,
            "state": self.state,
            "note": self.note,
            "reviews": self.reviews,
        }


def metrics_gate(run: Run, policy: Policy) -> RunGate:
    """Return the mean overall score against its threshold, over the executions that have one."""
    limit = policy.metrics_pass_threshold
    if run.is_active:
        outlook = metrics_outlook(_progress(run), policy)
        return RunGate("Metrics", outlook.so_far, limit, _live(run, outlook.state), outlook.text)
    share = run.score_sum / run.score_count if run.score_count else None
    share, state = _ended(run, "metrics_gate", share, limit)
    has = "has" if 1 in (run.score_count, run.execution_count) else "have"
    note = f"{run.score_count} of {_executions(run)} {has} a score"
    return RunGate("Metrics", share, limit, state, note)


def cases_gate(run: Run, policy: Policy) -> RunGate:
    """Return the share of executions that passed against its threshold; errors have not passed."""
    limit = policy.cases_pass_threshold
    if run.is_active:
        outlook = cases_outlook(_progress(run), policy)
        note = f"{run.pass_count} of {run.done_count} passed · {outlook.text}"
        return RunGate("Cases", outlook.so_far, limit, _live(run, outlook.state), note)
    is_completed = run.status == RunStatus.COMPLETED
    total = run.execution_count if is_completed else run.done_count
    share, state = _ended(run, "cases_gate", run.pass_count / total if total else None, limit)
    summary = run.summary or {}
    note = f"{summary.get('passed', run.pass_count)} of {total} executions passed"
    gate = RunGate("Cases", share, limit, state, note, summary.get("reviews", 0))
    return replace(gate, note=f"{note}, {gate.with_reviews}") if gate.reviews else gate


def _live(run: Run, state: str) -> str:
    """Return how a gate of a run that is on stands; before the first result nothing is on any course."""
    return state if run.done_count else "open"


def _progress(run: Run) -> Progress:
    return Progress(
        total=run.execution_count,
        ended=run.done_count,
        passed=run.pass_count,
        score_sum=run.score_sum,
        score_count=run.score_count,
        repetitions=run.repetitions,
    )


def _ended(run: Run, gate: str, share: float | None, limit: float) -> tuple[float | None, str]:
    """Judge a completed run by its summary; any other keeps its gates open (SCORING §8)."""
    if run.summary:
        share = run.summary[gate]["so_far"]
    if run.status != RunStatus.COMPLETED or share is None:
        return share, "open"
    return share, "passed" if is_at_least(share, limit) else "failed"


def _executions(run: Run) -> str:
    return f"{run.execution_count} execution{'' if run.execution_count == 1 else 's'}"
