"""The tables of a suite's charts as CSV files: exact figures, dollars, milliseconds, shares of 0 to 1."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from runs.reports.charted_runs import ChartedRun
from runs.reports.cost_chart import CostChart, CostRow

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
)
# What a spreadsheet would take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
DIGITS = 9


def cost_file(chart: CostChart, cost: str) -> str:
    """Return the runs of the score/cost chart by `cost`, also those that could not be drawn."""
    return _written(COST_COLUMNS, (_cost_line(row, cost) for row in (*chart.drawn, *chart.beside)))


def trend_file(runs: Sequence[ChartedRun]) -> str:
    """Return the runs of the trend, the oldest first."""
    return _written(TREND_COLUMNS, (_trend_line(run) for run in runs))


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
    )


def _trend_line(run: ChartedRun) -> Sequence[Any]:
    low, high = run.interval or (None, None)
    score_low, score_high = run.score_interval or (None, None)
    return (
        *(run.number, run.target, run.suite_version, run.created_at.isoformat()),
        *(run.metrics.share, score_low, score_high, run.metrics.state),
        *(run.cases.share, low, high, run.cases.state),
    )


def _written(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in line] for line in lines)
    return file.getvalue()


def _cell(value: Any) -> str:
    """Return a value as it is read back; what is missing is empty, never zero."""
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{round(value, DIGITS):f}"
    if isinstance(value, float):
        return repr(round(value, DIGITS))
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA) else text
