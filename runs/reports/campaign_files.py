"""The leaderboard of a campaign as files: exact figures, dollars, milliseconds, shares of 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from runs.reports.campaign_board import BoardRow
from runs.reports.csv_text import csv_text

VERDICTS = ("pass", "borderline", "fail", "error")


def leaderboard_lines(rows: Sequence[BoardRow]) -> Sequence[Mapping[str, Any]]:
    """Return each run by rank as values by name; None is missing, never zero."""
    return [_line(row) for row in rows]


def leaderboard_csv(rows: Sequence[BoardRow]) -> str:
    """Return the leaderboard as a CSV file."""
    lines = leaderboard_lines(rows)
    names = list(lines[0]) if lines else ["rank", "run", "target"]
    return csv_text(names, ([line[name] for name in names] for line in lines))


def leaderboard_json(rows: Sequence[BoardRow]) -> Sequence[Mapping[str, Any]]:
    """Return the leaderboard as plain JSON values; dollars are numbers."""
    return [
        {
            name: float(value) if isinstance(value, Decimal) else value
            for name, value in line.items()
        }
        for line in leaderboard_lines(rows)
    ]


def _line(row: BoardRow) -> Mapping[str, Any]:
    low, high = row.interval or (None, None)
    score_low, score_high = row.score_interval or (None, None)
    run, costs, against = row.run, row.run.costs, row.against
    place = ("dominated" if row.beaten_by else "front") if row.is_offer else None
    return {
        "rank": row.rank,
        "run": run.number,
        "target": run.target,
        "status": run.status,
        "done": run.done,
        "executions": run.executions,
        "passed": row.passed,
        "pass_rate": run.cases.share,
        "pass_rate_low": low,
        "pass_rate_high": high,
        "cases_gate": run.cases.state,
        "reviews": run.cases.reviews,
        "mean_score": run.metrics.share,
        "mean_score_low": score_low,
        "mean_score_high": score_high,
        "scored": row.scored,
        "metrics_gate": run.metrics.state,
        **{f"{name}_count": row.counts.get(name, 0) for name in VERDICTS},
        "mean_latency_ms": row.latency_ms,
        "run_cost_usd": costs.run.usd,
        "evaluation_cost_usd": costs.evaluation.usd,
        "total_cost_usd": costs.total_usd,
        "cost_is_known_in_full": "no" if costs.is_partial else "yes",
        "cost_per_passed_case_usd": row.passed_case_usd,
        "pareto": place,
        "dominated_by_run": row.beaten_by.number if row.beaten_by else None,
        "shared_cases": against.shared if against else None,
        "p_value": against.p if against else None,
        "told_from_first": None if not against or against.p is None else _yes(against.is_clear),
    }


def _yes(value: bool) -> str:
    return "yes" if value else "no"
