"""What a run that is over means for whoever started it: an exit code with its reason, and a file."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.scoring.numbers import is_at_least
from runs.models import Run, RunStatus
from runs.reports.purses import purses
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
        return Conclusion(PASSED, "Both gates passed.")
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
    gates = f"The {' gate and the '.join(names)} gate failed."
    return Conclusion(GATE_FAILED, gates)


def summary_document(run: Run, conclusion: Conclusion, *, url: str) -> dict[str, Any]:
    """Return the run in plain JSON values: what it was, how it ended, every figure of its summary.

    Costs are numbers of US dollars as in files of results, None where no price is known.
    """
    spent = purses(run)
    return {
        "suite": run.suite.slug,
        "run": run.number,
        "url": url,
        "target": run.target_name,
        "judge": run.judge_name or None,
        "suite_version": run.suite_version,
        "repetitions": run.repetitions,
        "status": run.status,
        "status_reason": run.status_reason,
        "exit_code": conclusion.code,
        "conclusion": conclusion.sentence,
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "executions": run.execution_count,
        "done": run.done_count,
        "errors": run.error_count,
        "run_cost_usd": _number(spent.run.usd),
        "evaluation_cost_usd": _number(spent.evaluation.usd),
        "summary": _with_numbers(run.summary),
    }


def _number(usd: Decimal | str | None) -> float | None:
    """Return dollars; a billionth is the least and 15 digits are exact, so none is lost."""
    return None if usd is None else float(usd)


def _with_numbers(value: Any) -> Any:
    """Return figures with the costs that are stored as text as numbers."""
    if isinstance(value, dict):
        return {
            name: _number(part)
            if name.endswith("_usd") and isinstance(part, str)
            else _with_numbers(part)
            for name, part in value.items()
        }
    return [_with_numbers(part) for part in value] if isinstance(value, list) else value


def _why_it_ended(run: Run) -> str:
    if run.is_active:
        return "the workers go on with this run."
    reason = run.status_reason or RunStatus(run.status).label
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
