"""Campaigns as the API and files tell of them: who leads, and the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from runs.campaigns.board import BoardRow, CampaignQuery
from runs.campaigns.page import CampaignPage, campaign_rows
from runs.formats.tables import csv_text
from runs.models.runs import Campaign
from runs.results.documents import spelt_time, spelt_usd

VERDICTS = ("pass", "borderline", "fail", "error")


def leaderboard_lines(rows: Sequence[BoardRow]) -> Sequence[Mapping[str, Any]]:
    """Return each run by rank as values by name; None is missing, never zero."""
    return [_file_line(row) for row in rows]


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


def _file_line(row: BoardRow) -> Mapping[str, Any]:
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


WORDS: Mapping[Any, bool] = {"yes": True, "no": False}
YES_OR_NO = ("cost_is_known_in_full", "told_from_first")


def campaign_facts(campaigns: Sequence[Campaign]) -> list[dict[str, Any]]:
    """Return what lists show of campaigns as plain JSON values; a fixed number of queries."""
    return [
        {
            "id": row.pk,
            "name": row.title,
            "suite": row.suite_slug,
            "headline": row.headline,
            "targets": list(row.targets),
            "is_active": row.is_active,
            "created_at": spelt_time(row.created_at),
            "created_by": row.started_by or None,
        }
        for row in campaign_rows(campaigns)
    ]


def whole_campaign(campaign: Campaign) -> dict[str, Any]:
    """Return a campaign with its leaderboard, the best first."""
    page = CampaignPage(campaign, CampaignQuery())
    ids = {run.number: run.pk for run in page.runs}
    (facts,) = campaign_facts([campaign])
    lines = [
        {**_api_line(line), "run_id": ids[line["run"]]} for line in leaderboard_lines(page.rows)
    ]
    return {**facts, "headline": page.headline, "leaderboard": lines}


def _api_line(line: Mapping[str, Any]) -> dict[str, Any]:
    told = {
        name: spelt_usd(value) if isinstance(value, Decimal) else value
        for name, value in line.items()
    }
    return told | {name: WORDS.get(told[name]) for name in YES_OR_NO}
