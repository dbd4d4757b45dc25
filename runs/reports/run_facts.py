"""One run as the API tells of it: what lists show, and in full what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from runs.models import Run
from runs.plan import CHANGED
from runs.reports.case_groups import policy_of
from runs.reports.policy_document import policy_document
from runs.reports.purses import Purse, Purses, purses
from runs.reports.run_document import run_figures
from runs.reports.run_list import RunRow, run_row


def run_facts(run: Run) -> dict[str, Any]:
    """Return a run of `listed` as plain JSON values, by the figures that the list of runs shows."""
    row = run_row(run)
    return _facts(run, row, row.costs)


def whole_run(run: Run) -> dict[str, Any]:
    """Return a run of `listed` with its policy, its summary, and both purses with their counts.

    `summary` is None until the run has ended. `changed` lists what the run did otherwise than its
    suite: evaluator (None for the policy), name, old and new.
    """
    costs = purses(run)
    return {
        **_facts(run, run_row(run), costs),
        "concurrency": run.concurrency,
        "budget_usd": spelt_usd(run.budget_usd),
        "policy": policy_document(policy_of(run)),
        "changed": run.snapshot.get(CHANGED) or [],
        "purses": {"run": _purse(costs.run), "evaluation": _purse(costs.evaluation)},
        "over_repetitions": None,
        "final_evaluation": None,
        **run_figures(run),
    }


def spelt_usd(usd: Decimal | None) -> str | None:
    """Return dollars with all their digits; None is not known."""
    return None if usd is None else f"{usd:f}"


def spelt_time(at: datetime | None) -> str | None:
    """Return a time as ISO 8601 with its zone."""
    return None if at is None else at.isoformat()


def _facts(run: Run, row: RunRow, costs: Purses) -> dict[str, Any]:
    return {
        "id": run.pk,
        "name": row.word,
        "suite": run.suite.slug,
        "number": run.number,
        "url": row.url,
        "target": row.target,
        "judge": row.judge or None,
        "is_scripted": row.is_scripted,
        "suite_version": run.suite_version,
        "is_baseline": row.is_baseline,
        "campaign": run.campaign_id,
        "scored_again_from": row.source_number,
        "note": row.note,
        "repetitions": run.repetitions,
        "status": row.status,
        "status_reason": row.reason,
        "created_at": spelt_time(run.created_at),
        "created_by": row.started_by or None,
        "started_at": spelt_time(run.started_at),
        "finished_at": spelt_time(run.finished_at),
        "cases": run.case_count,
        "executions": row.executions,
        "done": row.done,
        "counts": _counts(row.counts),
        "gates": {"metrics": row.metrics.as_json(), "cases": row.cases.as_json()},
        "run_cost_usd": spelt_usd(costs.run.usd),
        "evaluation_cost_usd": spelt_usd(costs.evaluation.usd),
        "total_cost_usd": spelt_usd(costs.total_usd),
        "costs_are_partial": costs.is_partial,
    }


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many executions stand how, every state named."""
    states = ("pass", "borderline", "fail", "error", "waiting", "cancelled")
    return {state: counts.get(state, 0) for state in states}


def _purse(purse: Purse) -> dict[str, Any]:
    return {
        "usd": spelt_usd(purse.usd),
        "answers": purse.answers,
        "priced": purse.priced,
        "input_tokens": purse.input_tokens,
        "output_tokens": purse.output_tokens,
        "is_partial": purse.is_partial,
    }
