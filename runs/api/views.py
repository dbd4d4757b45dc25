"""The calls of the API, each one reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework import serializers
from rest_framework.decorators import api_view
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from runs.api.documents import (
    case_facts,
    case_revision,
    cases_asked,
    counted,
    suite_facts,
    suites_asked,
    version_facts,
    whole_case,
    whole_result,
    whole_suite,
    whole_version,
)
from runs.api.params import (
    CampaignsAsked,
    CaseAsked,
    CasesAsked,
    ComparisonAsked,
    NothingAsked,
    PageAsked,
    ResultsAsked,
    RunsAsked,
    SuitesAsked,
    page_of,
    result_numbered,
    run_named,
)
from runs.api.schema import CAMPAIGN, KEY, NUMBER, RESULT, RUN, SLUG, reads
from runs.api.serializers import (
    CampaignSerializer,
    CaseSerializer,
    ComparisonSerializer,
    ResultSerializer,
    RunSerializer,
    SuiteSerializer,
    VersionSerializer,
    WholeCampaignSerializer,
    WholeCaseSerializer,
    WholeOutputSerializer,
    WholeResultSerializer,
    WholeRunSerializer,
    WholeSuiteSerializer,
    WholeVersionSerializer,
)
from runs.campaigns.documents import campaign_facts, whole_campaign
from runs.compare.cases import Tolerances
from runs.compare.choice import with_limits
from runs.compare.comparison import compared
from runs.compare.documents import comparison_document
from runs.engine.plan import read_plan
from runs.models.results import ResultOutput
from runs.models.runs import ACTIVE_RUN_STATUSES, Campaign, Run
from runs.models.suites import Suite, SuiteVersion
from runs.requests import may_view
from runs.results.documents import result_facts, results_asked, run_facts, whole_run
from runs.results.result_page import whole_output
from runs.results.run_list import ACTIVE, listed

BEGINNINGS = {
    "suites": "runs:api-suites",
    "runs": "runs:api-runs",
    "compare": "runs:api-compare",
    "campaigns": "runs:api-campaigns",
    "schema": "runs:api-schema",
    "docs": "runs:api-docs",
}


class BeginningsSerializer(serializers.Serializer[Any]):
    """Where the API begins."""

    suites = serializers.URLField(help_text="The suites.")
    runs = serializers.URLField(help_text="The runs.")
    compare = serializers.URLField(help_text="Two runs compared.")
    campaigns = serializers.URLField(help_text="The campaigns.")
    schema = serializers.URLField(help_text="This description.")
    docs = serializers.URLField(help_text="The page to try it on.")


@reads("Where the API begins", BeginningsSerializer, asked=NothingAsked, tag="about")
def beginnings(request: Request) -> Response:
    """Give the addresses to begin at."""
    NothingAsked.of(request)
    return Response({name: reverse(view, request=request) for name, view in BEGINNINGS.items()})


@extend_schema(exclude=True)
@api_view(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def nothing_here(request: Request, rest: str) -> Response:
    """Say that there is nothing at an address."""
    raise Http404


class SchemaView(SpectacularJSONAPIView):
    """The schema of the API, for whoever may use it."""

    schema = None


@require_safe
@may_view
def docs(request: HttpRequest) -> HttpResponse:
    """Show every call of the API with a form to try it."""
    return render(request, "api/docs.html")


@reads("Suites", SuiteSerializer, asked=SuitesAsked, tag="suites", pages=True)
def suites(request: Request) -> Response:
    """List the suites by slug, those that are not archived unless they are asked for."""
    asked = SuitesAsked.of(request)
    found = suites_asked(tag=asked.get("tag", ""), archived=asked["archived"])
    by = {"slug": str}
    return Response(page_of(found, by=by, request=request, asked=asked, told=_each(suite_facts)))


@reads("One suite", WholeSuiteSerializer, asked=NothingAsked, place=[SLUG], tag="suites")
def suite(request: Request, slug: str) -> Response:
    """Give a suite with its policy, its evaluators and the paths of its files."""
    NothingAsked.of(request)
    return Response(whole_suite(get_object_or_404(counted(Suite.objects.all()), slug=slug)))


@reads(
    "Versions of a suite",
    VersionSerializer,
    asked=PageAsked,
    place=[SLUG],
    tag="suites",
    pages=True,
)
def suite_versions(request: Request, slug: str) -> Response:
    """List the versions of a suite, newest first."""
    asked, found = PageAsked.of(request), get_object_or_404(Suite, slug=slug)
    versions = found.versions.select_related("author").defer("content")
    return Response(
        page_of(
            versions,
            by={"number": int},
            request=request,
            asked=asked,
            told=lambda rows: [version_facts(found, row) for row in rows],
            is_descending=True,
        )
    )


@reads(
    "One version of a suite",
    WholeVersionSerializer,
    asked=NothingAsked,
    place=[SLUG, NUMBER],
    tag="suites",
)
def suite_version(request: Request, slug: str, number: int) -> Response:
    """Give what a suite was at a version, its cases by key and revision."""
    NothingAsked.of(request)
    found = get_object_or_404(
        SuiteVersion.objects.select_related("author", "suite"), suite__slug=slug, number=number
    )
    return Response(whole_version(found.suite, found))


@reads("Cases of a suite", CaseSerializer, asked=CasesAsked, place=[SLUG], tag="suites", pages=True)
def suite_cases(request: Request, slug: str) -> Response:
    """List the current cases of a suite in its order."""
    asked, found = CasesAsked.of(request), get_object_or_404(Suite, slug=slug)
    cases = cases_asked(found, tag=asked.get("tag", ""), q=asked.get("q", ""))
    by = {"position": int, "pk": int}
    return Response(page_of(cases, by=by, request=request, asked=asked, told=_each(case_facts)))


@reads("One case", WholeCaseSerializer, asked=CaseAsked, place=[SLUG, KEY], tag="suites")
def suite_case(request: Request, slug: str, key: str) -> Response:
    """Give a case in full: the current revision, the last of a deleted one, or the one asked for."""
    asked, found = CaseAsked.of(request), get_object_or_404(Suite, slug=slug)
    return Response(whole_case(case_revision(found, key, asked.get("revision"))))


def _each(tell: Callable[[Any], dict[str, Any]]) -> Callable[[Sequence[Any]], list[dict[str, Any]]]:
    return lambda rows: [tell(row) for row in rows]


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


FILTERS = ("verdict", "status", "tag", "case")


@reads(
    "Results of a run", ResultSerializer, asked=ResultsAsked, place=[RUN], tag="results", pages=True
)
def run_results(request: Request, run: str) -> Response:
    """List the results of a run in the order of its suite, repetition after repetition."""
    asked, found = ResultsAsked.of(request), run_named(run)
    narrowed = {name: asked[name] for name in FILTERS if name in asked}
    return Response(
        page_of(
            results_asked(found, **narrowed),
            by={"position": int, "repetition": int, "pk": int},
            request=request,
            asked=asked,
            told=lambda rows: [result_facts(found, row) for row in rows],
        )
    )


@reads("One result", WholeResultSerializer, asked=NothingAsked, place=[RESULT], tag="results")
def result(request: Request, result: int) -> Response:
    """Give a result in full: its case, the answer, the evaluators, outcomes, metrics and costs."""
    NothingAsked.of(request)
    found = result_numbered(result)
    return Response(whole_result(found.run, found))


@reads("The whole answer", WholeOutputSerializer, asked=NothingAsked, place=[RESULT], tag="results")
def result_output(request: Request, result: int) -> Response:
    """Give all of what the target answered, however long it is."""
    NothingAsked.of(request)
    found = result_numbered(result)
    try:
        text = whole_output(found.run, found.case.key, found.repetition)
    except ResultOutput.DoesNotExist:
        raise Http404 from None
    return Response({"text": text, "characters": len(text)})
