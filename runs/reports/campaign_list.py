"""All campaigns, or those of one suite, newest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.urls import reverse

from runs.models import ACTIVE_RUN_STATUSES, Campaign, Run, Suite
from runs.reports.campaign_board import board
from runs.reports.campaign_headline import headline
from runs.reports.run_list import listed

PAGE_SIZE = 50
LONGEST_NUMBER = 18


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """One campaign as lists show it: its targets by rank, and what came out in a sentence."""

    pk: int
    name: str
    suite_title: str
    suite_slug: str
    targets: Sequence[str]
    states: Sequence[str]
    headline: str
    is_active: bool
    created_at: datetime
    started_by: str

    @property
    def title(self) -> str:
        """Return the name, or what it is."""
        return self.name or f"Campaign {self.pk}"


@dataclass(frozen=True, slots=True)
class CampaignList:
    """One page of campaigns. `suite` narrows them, None for all."""

    rows: Sequence[CampaignRow]
    suite: Suite | None
    next_address: str
    is_first: bool


def campaign_list(parameters: Mapping[str, str]) -> CampaignList:
    """Return 50 campaigns of the suite that is asked for, or of all, in a fixed number of queries."""
    slug, after = parameters.get("suite", ""), parameters.get("after", "")
    suite = Suite.objects.filter(slug=slug).first() if slug else None
    found = Campaign.objects.select_related("suite", "created_by").order_by("-pk")
    if slug:
        found = found.filter(suite=suite)
    is_later = after.isdecimal() and len(after) < LONGEST_NUMBER
    if is_later:
        found = found.filter(pk__lt=int(after))
    campaigns = list(found[: PAGE_SIZE + 1])
    shown = campaigns[:PAGE_SIZE]
    asked = {"suite": slug} if slug else {}
    more = {**asked, "after": str(shown[-1].pk)} if len(campaigns) > PAGE_SIZE else {}
    return CampaignList(
        rows=campaign_rows(shown),
        suite=suite,
        next_address=f"{reverse('runs:campaign-list')}?{urlencode(more)}" if more else "",
        is_first=not is_later,
    )


def campaign_rows(campaigns: Sequence[Campaign]) -> Sequence[CampaignRow]:
    """Return the campaigns as lists show them, in a fixed number of queries."""
    runs: dict[int | None, list[Run]] = defaultdict(list)
    for run in listed(Run.objects.filter(campaign__in=campaigns)).order_by("pk"):
        runs[run.campaign_id].append(run)
    return [_row(campaign, runs[campaign.pk]) for campaign in campaigns]


def _row(campaign: Campaign, runs: Sequence[Run]) -> CampaignRow:
    rows = board(runs, {})
    return CampaignRow(
        pk=campaign.pk,
        name=campaign.name,
        suite_title=campaign.suite.title,
        suite_slug=campaign.suite.slug,
        targets=[row.run.target for row in rows],
        states=[row.run.status for row in rows],
        headline=headline(rows),
        is_active=any(run.status in ACTIVE_RUN_STATUSES for run in runs),
        created_at=campaign.created_at,
        started_by=campaign.created_by.get_username() if campaign.created_by else "",
    )
