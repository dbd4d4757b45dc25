"""Campaigns as the API tells of them: who leads, and the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from runs.models import Campaign
from runs.reports.campaign_files import leaderboard_lines
from runs.reports.campaign_list import campaign_rows
from runs.reports.campaign_page import CampaignPage
from runs.reports.campaign_query import CampaignQuery
from runs.reports.run_facts import spelt_time, spelt_usd

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
    lines = [{**_line(line), "run_id": ids[line["run"]]} for line in leaderboard_lines(page.rows)]
    return {**facts, "headline": page.headline, "leaderboard": lines}


def _line(line: Mapping[str, Any]) -> dict[str, Any]:
    told = {
        name: spelt_usd(value) if isinstance(value, Decimal) else value
        for name, value in line.items()
    }
    return told | {name: WORDS.get(told[name]) for name in YES_OR_NO}
