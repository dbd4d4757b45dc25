"""The tables of a suite's charts as CSV files: exact figures, dollars, milliseconds, shares of 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runs.reports.charted_runs import ChartedRun
from runs.reports.cost_chart import CostChart, CostRow
from runs.reports.csv_text import csv_text

COST_COLUMNS = (
    "run",
    "target",
    "suite_version",
    "score",
    "cost",
    "cost_usd",
    "known_cost_usd",
    "unpriced",
    "cost_per_execution_usd",
    "cost_per_passed_case_usd",
    "mean_latency_ms",
    "pareto",
    "dominated_by_run",
    "reviews",
)
TREND_COLUMNS = (
    "run",
    "target",
    "suite_version",
    "created_at",
    "mean_score",
    "mean_score_low",
    "mean_score_high",
    "metrics_gate",
    "pass_rate",
    "pass_rate_low",
    "pass_rate_high",
    "cases_gate",
    "reviews",
)


def cost_file(chart: CostChart, cost: str) -> str:
    """Return the runs of the score/cost chart by `cost`, also those that could not be drawn."""
    return csv_text(COST_COLUMNS, (_cost_line(row, cost) for row in (*chart.drawn, *chart.beside)))


def trend_file(runs: Sequence[ChartedRun]) -> str:
    """Return the runs of the trend, the oldest first."""
    return csv_text(TREND_COLUMNS, (_trend_line(run) for run in runs))


def _cost_line(row: CostRow, cost: str) -> Sequence[Any]:
    place = ("dominated" if row.beaten_by else "front") if row.is_drawn else ""
    run = row.run
    unpriced = [
        f"{name}: {purse.priced} of {purse.answers} {purse.noun}s priced"
        for name, purse in row.unpriced
    ]
    return (
        *(run.number, run.target, run.suite_version, run.metrics.share, cost),
        *(row.cost_usd, row.known_usd, "; ".join(unpriced)),
        *(row.execution_usd, row.passed_case_usd, run.latency_ms, place),
        row.beaten_by.number if row.beaten_by else None,
        run.cases.reviews,
    )


def _trend_line(run: ChartedRun) -> Sequence[Any]:
    low, high = run.interval or (None, None)
    score_low, score_high = run.score_interval or (None, None)
    return (
        *(run.number, run.target, run.suite_version, run.created_at.isoformat()),
        *(run.metrics.share, score_low, score_high, run.metrics.state),
        *(run.cases.share, low, high, run.cases.state, run.cases.reviews),
    )
