"""The Metrics gate and the Cases gate of a run, and what they conclude as an exit code and a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluators.scoring.numbers import is_at_least
from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags.figures import counted, thousands
from runs.models.runs import Run, RunStatus
from runs.summary.figures import Summary
from runs.summary.run import SummaryProgress, cases_forecast, metrics_forecast


@dataclass(frozen=True, slots=True)
class RunGate:
    """One gate: its figure and limit as shares, its state, and a note on what the figure counts.

    `reviews` is how many reviews count in its figure, 0 where the policy counts none (SCORING §4.6).
    """

    name: str
    share: float | None
    limit: float
    state: str
    note: str
    reviews: int = 0

    @property
    def with_reviews(self) -> str:
        """Say how many reviews its figure counts, "" for none."""
        return f"with {counted(self.reviews, 'review')}" if self.reviews else ""


def metrics_gate(run: Run, policy: PolicySpec) -> RunGate:
    """Return the mean overall score against its threshold, over the executions that have one."""
    limit = policy.metrics_pass_threshold
    if run.is_active:
        forecast = metrics_forecast(_progress(run), policy)
        return RunGate("Metrics", forecast.so_far, limit, _live(run, forecast.state), forecast.text)
    share = run.score_sum / run.score_count if run.score_count else None
    share, state = _ended(run, "metrics_gate", share, limit)
    has = "has" if 1 in (run.score_count, run.execution_count) else "have"
    note = (
        f"{thousands(run.score_count)} of {counted(run.execution_count, 'execution')} {has} a score"
    )
    return RunGate("Metrics", share, limit, state, note)


def cases_gate(run: Run, policy: PolicySpec) -> RunGate:
    """Return the share of executions that passed against its threshold; errors have not passed."""
    limit = policy.cases_pass_threshold
    if run.is_active:
        forecast = cases_forecast(_progress(run), policy)
        note = f"{run.pass_count} of {run.done_count} passed · {forecast.text}"
        return RunGate("Cases", forecast.so_far, limit, _live(run, forecast.state), note)
    is_completed = run.status == RunStatus.COMPLETED
    total = run.execution_count if is_completed else run.done_count
    share, state = _ended(run, "cases_gate", run.pass_count / total if total else None, limit)
    summary = run.summary or {}
    note = f"{summary.get('passed', run.pass_count)} of {total} executions passed"
    gate = RunGate("Cases", share, limit, state, note, summary.get("reviews", 0))
    return replace(gate, note=f"{note}, {gate.with_reviews}") if gate.reviews else gate


def _live(run: Run, state: str) -> str:
    """Return the state of a gate while its run is active; before the first result it is open."""
    return state if run.done_count else "open"


def _progress(run: Run) -> SummaryProgress:
    return SummaryProgress(
        total=run.execution_count,
        ended=run.done_count,
        passed=run.pass_count,
        score_sum=run.score_sum,
        score_count=run.score_count,
        repetitions=run.repetitions,
    )


def _ended(run: Run, gate: str, share: float | None, limit: float) -> tuple[float | None, str]:
    """Judge a completed run by its summary; other runs keep their gates open (SCORING §8)."""
    if run.summary:
        share = run.summary[gate]["so_far"]
    if run.status != RunStatus.COMPLETED or share is None:
        return share, "open"
    return share, "passed" if is_at_least(share, limit) else "failed"


PASSED, GATE_FAILED, NOT_EVALUATED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class ExitConclusion:
    """An exit code and the sentence that explains it."""

    code: int
    sentence: str


def conclude(run: Run) -> ExitConclusion:
    """Return the conclusion from a finished run.

    The cases gate counts as failed only if it would fail even with passes in place of the errors.
    Otherwise the errors decide, and the target was not evaluated.
    """
    if run.status != RunStatus.COMPLETED or not run.summary:
        return ExitConclusion(NOT_EVALUATED, f"Not evaluated: {_why_it_ended(run)}")
    summary = Summary.from_json(run.summary)
    metrics, cases = summary.metrics_gate, summary.cases_gate
    if metrics.passed and cases.passed:
        return ExitConclusion(PASSED, f"Both gates passed{_with_reviews(summary)}.")
    if metrics.passed is None:
        return ExitConclusion(
            NOT_EVALUATED, f"Not evaluated: none of {summary.executions} executions has a score."
        )
    best = (summary.passed + summary.errors) / summary.executions
    if metrics.passed and is_at_least(best, cases.threshold):
        return ExitConclusion(
            NOT_EVALUATED,
            f"Not evaluated: the cases gate fails by errors alone, {summary.errors} of "
            f"{summary.executions} executions. Check the errors and retry them.",
        )
    names = [name for name, gate in (("metrics", metrics), ("cases", cases)) if not gate.passed]
    gates = f"The {' gate and the '.join(names)} gate failed{_with_reviews(summary)}."
    return ExitConclusion(GATE_FAILED, gates)


def _with_reviews(summary: Summary) -> str:
    return f", with {counted(summary.reviews, 'review')}" if summary.reviews else ""


def _why_it_ended(run: Run) -> str:
    if run.is_active:
        return "the workers continue this run."
    reason = run.status_reason or RunStatus(run.status).label
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
