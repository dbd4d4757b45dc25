"""Runs, their campaigns, and two of them compared."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.shortcuts import get_object_or_404
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.asking import CampaignsAsked, ComparisonAsked, NothingAsked, RunsAsked
from runs.api.describing import CAMPAIGN, RUN, reads
from runs.api.paging import page_of
from runs.api.places import run_named
from runs.api.serializers.campaigns import CampaignSerializer, WholeCampaignSerializer
from runs.api.serializers.comparison import ComparisonSerializer
from runs.api.serializers.runs import RunSerializer, WholeRunSerializer
from runs.comparison import Tolerances
from runs.forms.tolerances import with_limits
from runs.models import ACTIVE_RUN_STATUSES, Campaign, Run
from runs.plan import read_plan
from runs.reports.campaign_document import campaign_facts, whole_campaign
from runs.reports.comparison import compared, comparison_document
from runs.reports.run_facts import run_facts, whole_run
from runs.reports.run_list import ACTIVE, listed

ITSELF = "That is one run twice. Name another to hold it against."


@reads("Runs", RunSerializer, asked=RunsAsked, tag="runs", pages=True)
def runs(request: Request) -> Response:
    """List the runs of all suites, newest first."""
    asked = RunsAsked.of(request)
    return Response(
        page_of(
            _matching(asked),
            by={"pk": int},
            request=request,
            asked=asked,
            told=lambda rows: [run_facts(row) for row in rows],
            is_descending=True,
        )
    )


@reads("One run", WholeRunSerializer, asked=NothingAsked, place=[RUN], tag="runs")
def run(request: Request, run: str) -> Response:
    """Give a run with its policy, both gates, its summary and both purses."""
    NothingAsked.of(request)
    return Response(whole_run(run_named(run)))


@reads("Compare two runs", ComparisonSerializer, asked=ComparisonAsked, tag="runs")
def compare_runs(request: Request) -> Response:
    """Hold a run against another: tolerances, evidence over the shared cases, and every case.

    Tolerances that are left out are those of the candidate's suite as it was when it ran. The answer
    echoes those that were applied, each with its unit.
    """
    asked = ComparisonAsked.of(request)
    baseline, candidate = (run_named(asked[f"{side}_run_id"]) for side in ("baseline", "candidate"))
    if baseline.pk == candidate.pk:
        raise ValidationError({"candidate_run_id": [ITSELF]})
    usual = Tolerances.of(read_plan(candidate.snapshot).policy)
    is_of_shared = asked["cases"] == "shared"
    found = compared(baseline, candidate, with_limits(usual, asked), only_shared=is_of_shared)
    ids = {"baseline_run_id": baseline.pk, "candidate_run_id": candidate.pk}
    return Response({**ids, **comparison_document(found)})


@reads("Campaigns", CampaignSerializer, asked=CampaignsAsked, tag="campaigns", pages=True)
def campaigns(request: Request) -> Response:
    """List the campaigns, newest first: runs of one suite started together."""
    asked = CampaignsAsked.of(request)
    found = Campaign.objects.select_related("suite", "created_by")
    if "suite" in asked:
        found = found.filter(suite__slug=asked["suite"])
    by = {"pk": int}
    page = page_of(
        found, by=by, request=request, asked=asked, told=campaign_facts, is_descending=True
    )
    return Response(page)


@reads(
    "One campaign", WholeCampaignSerializer, asked=NothingAsked, place=[CAMPAIGN], tag="campaigns"
)
def campaign(request: Request, campaign: int) -> Response:
    """Give a campaign with its leaderboard, the best first."""
    NothingAsked.of(request)
    found = Campaign.objects.select_related("suite", "created_by")
    return Response(whole_campaign(get_object_or_404(found, pk=campaign)))


def _matching(asked: dict[str, Any]) -> QuerySet[Run]:
    columns = {
        "suite": "suite__slug",
        "target": "target_name",
        "campaign": "campaign",
        "since": "created_at__gte",
    }
    narrow = Q(**{columns[name]: value for name, value in asked.items() if name in columns})
    if status := asked.get("status"):
        narrow &= Q(status__in=ACTIVE_RUN_STATUSES if status == ACTIVE else (status,))
    return listed(Run.objects.filter(narrow))
