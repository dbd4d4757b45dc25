"""What a run that is over means for whoever started it: an exit code with its reason, and a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluators.scoring.numbers import is_at_least
from evaluators.templatetags.figures import counted
from runs.models import Run, RunStatus
from runs.reports.run_document import run_document
from runs.summary import Summary

PASSED, GATE_FAILED, NOT_EVALUATED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Conclusion:
    """An exit code and the sentence that explains it."""

    code: int
    sentence: str


def conclude(run: Run) -> Conclusion:
    """Return what came out of a run that is over.

    A gate counts as failed only where it fails whatever the errors would have been: a run in which
    they decide could not evaluate its target.
    """
    if run.status != RunStatus.COMPLETED or not run.summary:
        return Conclusion(NOT_EVALUATED, f"Not evaluated: {_why_it_ended(run)}")
    summary = Summary.from_json(run.summary)
    metrics, cases = summary.metrics_gate, summary.cases_gate
    if metrics.passed and cases.passed:
        return Conclusion(PASSED, f"Both gates passed{_with_reviews(summary)}.")
    if metrics.passed is None:
        return Conclusion(
            NOT_EVALUATED, f"Not evaluated: none of {summary.executions} executions has a score."
        )
    best = (summary.passed + summary.errors) / summary.executions
    if metrics.passed and is_at_least(best, cases.threshold):
        return Conclusion(
            NOT_EVALUATED,
            f"Not evaluated: the cases gate fails by errors alone, {summary.errors} of "
            f"{summary.executions} executions. See what went wrong and try them again.",
        )
    names = [name for name, gate in (("metrics", metrics), ("cases", cases)) if not gate.passed]
    gates = f"The {' gate and the '.join(names)} gate failed{_with_reviews(summary)}."
    return Conclusion(GATE_FAILED, gates)


def _with_reviews(summary: Summary) -> str:
    return f", with {counted(summary.reviews, 'review')}" if summary.reviews else ""


def summary_document(run: Run, conclusion: Conclusion, *, url: str) -> dict[str, Any]:
    """Return the run in plain JSON values: what it was, how it ended, every figure of its summary."""
    return {
        **run_document(run, url=url),
        "exit_code": conclusion.code,
        "conclusion": conclusion.sentence,
    }


def _why_it_ended(run: Run) -> str:
    if run.is_active:
        return "the workers go on with this run."
    reason = run.status_reason or RunStatus(run.status).label
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
