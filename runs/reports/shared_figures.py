"""The figures of a run as a share link freezes them, in words and exactly."""

from __future__ import annotations

from typing import Any

from evaluators.templatetags.figures import (
    counted,
    duration,
    execution_money,
    interval,
    money,
    pct,
)
from runs.models import Run
from runs.reports.gates import RunGate
from runs.reports.run_page import RunLive


def measures_of(run: Run, live: RunLive) -> list[dict[str, Any]]:
    """Return the headline in words: pass rate, score, latency and cost, each with its n of N."""
    known, usage = live.costs.purses, live.usage
    purses = (
        f"Run {money(known.run.usd)} + evaluation {money(known.evaluation.usd)}",
        *(["Some answers have no known price"] if known.is_partial else []),
    )
    done = run.done_count
    total = known.total_usd
    each = total / done if total is not None and done else None
    summary = run.summary or {}
    ends = summary.get("interval")
    return [
        {
            "name": "Pass rate",
            "value": pct(live.cases.share),
            "notes": [
                live.cases.note,
                *([f"95% CI {interval((ends[0], ends[1]))}"] if ends else []),
            ],
        },
        {
            "name": "Mean score",
            "value": pct(live.metrics.share),
            "notes": [live.metrics.note],
        },
        {
            "name": "Latency, mean",
            "value": duration(usage.mean_ms),
            "notes": [
                f"median {duration(usage.p50_ms)}, p95 {duration(usage.p95_ms)}",
                f"{usage.timed} of {counted(usage.executions, 'execution')} timed",
            ],
        },
        {
            "name": "Total cost",
            "value": f"{'≥ ' if known.is_partial and total is not None else ''}{money(total)}",
            "notes": [*purses, *([f"{execution_money(each)} an execution"] if each else [])],
        },
    ]


def figures_of(run: Run, live: RunLive) -> dict[str, Any]:
    """Return the same figures exactly; rates and scores are 0 to 1, costs US dollars spelt out."""
    known = live.costs.purses
    return {
        "run": run.number,
        "repetitions": run.repetitions,
        "status": run.status,
        "executions": run.execution_count,
        "done": run.done_count,
        "errors": run.error_count,
        "passed": run.pass_count,
        "pass_rate": live.cases.share,
        "mean_score": live.metrics.share,
        "mean_latency_ms": live.usage.mean_ms,
        "run_cost_usd": _spelled(known.run.usd),
        "evaluation_cost_usd": _spelled(known.evaluation.usd),
        "total_cost_usd": _spelled(known.total_usd),
    }


def _spelled(usd: Any) -> str | None:
    return None if usd is None else f"{usd:f}"


def gate_of(one: RunGate) -> dict[str, Any]:
    """Return a gate as plain values, its figure and limit as shares."""
    return {
        "name": one.name,
        "share": one.share,
        "limit": one.limit,
        "state": one.state,
        "note": one.note,
    }
