"""The pages of campaigns: the list, one campaign with its parts, and its files."""

from __future__ import annotations

from typing import Any

from csp.decorators import csp_update
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.campaigns import page as listing
from runs.campaigns.board import CampaignQuery
from runs.campaigns.documents import campaign_detail_document, leaderboard_csv
from runs.campaigns.page import CampaignPage
from runs.charts.queries import score_cost_csv
from runs.charts.views import EMPTY_STYLE
from runs.models.runs import Campaign
from runs.requests import (
    REFUSED,
    STOP_POLLING,
    MemberRequest,
    csv_answer,
    follow_address,
    may_start,
    may_view,
)
from runs.running.services import rename_campaign, stop_campaign


class CampaignNameForm(forms.Form):
    """A name, or none."""

    name = forms.CharField(
        required=False, max_length=200, label="Name", help_text="leave it empty to use the number"
    )

    @classmethod
    def of(cls, campaign: Campaign) -> CampaignNameForm:
        """Return the form with the name of the campaign."""
        return cls(initial={"name": campaign.name})


@require_safe
@may_view
def campaign_list(request: HttpRequest) -> HttpResponse:
    """List campaigns, newest first."""
    report = listing.campaign_list(listing.CampaignsQuery.read(request.GET))
    return render(request, "campaigns/campaign_list.html", {"list": report})


@require_safe
@may_view
@csp_update({"style-src": [EMPTY_STYLE]})  # type: ignore[arg-type]  # its types know no address with parts
def campaign(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one campaign."""
    return _shown(request, _page(request, pk))


@require_safe
@never_cache
@may_view
def campaign_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Return what changes while runs are running; polling ends with the last of them."""
    page = _page(request, pk)
    status = 200 if page.active else STOP_POLLING
    earlier = request.GET.get("was", page.state)
    ended = page.ended_since(earlier)
    response = _part(request, page, "live", status=status, ended=ended)
    if earlier != page.state:
        response["HX-Trigger"] = "campaign-changed"
    return response


@require_safe
@never_cache
@may_view
def campaign_head(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the head of the page, after a run started or ended."""
    page = _page(request, pk)
    context = {"page": page, "form": CampaignNameForm.of(page.campaign)}
    return render(request, "campaigns/_head.html", context)


@require_safe
@never_cache
@may_view
def campaign_chart(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the chart with its table, after its cost was chosen or a run ended."""
    return _part(request, _page(request, pk), "chart")


@require_safe
@never_cache
@may_view
def campaign_cases(request: HttpRequest, pk: int) -> HttpResponse:
    """Return one page of the cases."""
    return _part(request, _page(request, pk), "cases")


@require_POST
@may_start
def campaign_stop(request: MemberRequest, pk: int) -> HttpResponse:
    """Stop every active run and keep what is finished."""
    campaign = _campaign(pk)
    try:
        stopped = stop_campaign(campaign, stopped_by=request.user)
        messages.info(request, f"{counted(stopped, 'run')} cancelled. Finished results are kept.")
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect("runs:campaign", pk)


@require_POST
@may_start
def campaign_name(request: MemberRequest, pk: int) -> HttpResponse:
    """Name a campaign."""
    page, form = _page(request, pk), CampaignNameForm(request.POST)
    if not form.is_valid():
        return _shown(request, page, form=form, status=REFUSED)
    rename_campaign(page.campaign, form.cleaned_data["name"], renamed_by=request.user)
    return redirect("runs:campaign", pk)


@require_safe
@may_view
def campaign_file(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the leaderboard as a CSV file."""
    return csv_answer(leaderboard_csv(_page(request, pk).rows), f"campaign-{pk}.csv")


@require_safe
@may_view
def campaign_json(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the leaderboard as a JSON file."""
    headers = {"Content-Disposition": f'attachment; filename="campaign-{pk}.json"'}
    document = campaign_detail_document(_campaign(pk)).as_json()
    return JsonResponse(document, json_dumps_params={"indent": 2}, headers=headers)


@require_safe
@may_view
def campaign_cost_file(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the table of score and cost as a CSV file."""
    page = _page(request, pk)
    return csv_answer(score_cost_csv(page.chart, page.query.cost), f"campaign-{pk}-score-cost.csv")


def _campaign(pk: int) -> Campaign:
    return get_object_or_404(Campaign.objects.select_related("suite", "created_by"), pk=pk)


def _page(request: HttpRequest, pk: int) -> CampaignPage:
    return CampaignPage(_campaign(pk), CampaignQuery.read(request.GET.dict()))


def _shown(
    request: HttpRequest,
    page: CampaignPage,
    *,
    form: CampaignNameForm | None = None,
    status: int = 200,
) -> HttpResponse:
    context: dict[str, Any] = {"page": page, "form": form or CampaignNameForm.of(page.campaign)}
    return render(request, "campaigns/campaign.html", context, status=status)


def _part(
    request: HttpRequest, page: CampaignPage, part: str, *, status: int = 200, **more: object
) -> HttpResponse:
    """Return a part of the page, at the address of the page."""
    context = {"page": page, **more}
    response = render(request, f"campaigns/_{part}.html", context, status=status)
    if "was" not in request.GET:
        follow_address(request, response, (page.url + page.address).rstrip("?"))
    return response
