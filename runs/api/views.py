"""The calls of the API, each one reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
    LISTED,
    SuitesQuery,
    case_facts,
    case_revision,
    counted,
    suite_facts,
    version_facts,
    whole_case,
    whole_result,
    whole_suite,
    whole_version,
)
from runs.api.params import (
    CaseParams,
    ComparisonParams,
    ListRequest,
    NoParams,
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
from runs.campaigns.page import CampaignsQuery
from runs.cases.queries import SUITE_ORDER, CasesQuery
from runs.compare.cases import Tolerances
from runs.compare.choice import with_limits
from runs.compare.comparison import compared
from runs.compare.documents import comparison_document
from runs.engine.plan import read_plan
from runs.lists import NEWEST_FIRST, Key, Keyset
from runs.models.results import ResultOutput
from runs.models.runs import Campaign
from runs.models.suites import Suite, SuiteVersion
from runs.requests import may_view
from runs.results.documents import ExecutionsQuery, result_facts, run_facts, whole_run
from runs.results.result_page import whole_output
from runs.results.run_list import RunsQuery
from runs.suites.version_pages import BY_NUMBER, VersionsQuery

BY_SLUG = Keyset(Key("slug", str))
BY_EXECUTION = Keyset(Key("position", int), Key("repetition", int), Key("pk", int))
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


@reads("Where the API begins", BeginningsSerializer, tag="about")
def beginnings(request: Request) -> Response:
    """Give the addresses to begin at."""
    NoParams.read(request)
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


@reads("Suites", SuiteSerializer, lists=SuitesQuery, tag="suites")
def suites(request: Request) -> Response:
    """List the suites by slug, those that are not archived unless they are asked for."""
    asked = ListRequest.read(request, SuitesQuery)
    return asked.page(asked.query.suites(), BY_SLUG, _each(suite_facts))


@reads("One suite", WholeSuiteSerializer, place=[SLUG], tag="suites")
def suite(request: Request, slug: str) -> Response:
    """Give a suite with its policy, its evaluators and the paths of its files."""
    NoParams.read(request)
    return Response(whole_suite(get_object_or_404(counted(Suite.objects.all()), slug=slug)))


@reads("Versions of a suite", VersionSerializer, lists=VersionsQuery, place=[SLUG], tag="suites")
def suite_versions(request: Request, slug: str) -> Response:
    """List the versions of a suite, newest first."""
    asked, suite = ListRequest.read(request, VersionsQuery), get_object_or_404(Suite, slug=slug)
    versions = suite.versions.select_related("author").defer("content")
    return asked.page(versions, BY_NUMBER, lambda rows: [version_facts(suite, row) for row in rows])


@reads(
    "One version of a suite",
    WholeVersionSerializer,
    place=[SLUG, NUMBER],
    tag="suites",
)
def suite_version(request: Request, slug: str, number: int) -> Response:
    """Give what a suite was at a version, its cases by key and revision."""
    NoParams.read(request)
    found = get_object_or_404(
        SuiteVersion.objects.select_related("author", "suite"), suite__slug=slug, number=number
    )
    return Response(whole_version(found.suite, found))


@reads("Cases of a suite", CaseSerializer, lists=CasesQuery, place=[SLUG], tag="suites")
def suite_cases(request: Request, slug: str) -> Response:
    """List the current cases of a suite in its order."""
    asked, suite = ListRequest.read(request, CasesQuery), get_object_or_404(Suite, slug=slug)
    cases = asked.query.cases(suite).only(*LISTED, "suite_id")
    return asked.page(cases, SUITE_ORDER, _each(case_facts))


@reads("One case", WholeCaseSerializer, params=CaseParams, place=[SLUG, KEY], tag="suites")
def suite_case(request: Request, slug: str, key: str) -> Response:
    """Give a case in full: the current revision, the last of a deleted one, or the one asked for."""
    asked, found = CaseParams.read(request), get_object_or_404(Suite, slug=slug)
    return Response(whole_case(case_revision(found, key, asked.get("revision"))))


def _each(tell: Callable[[Any], dict[str, Any]]) -> Callable[[Sequence[Any]], list[dict[str, Any]]]:
    return lambda rows: [tell(row) for row in rows]


ITSELF = "That is one run twice. Name another to hold it against."


@reads("Runs", RunSerializer, lists=RunsQuery, tag="runs")
def runs(request: Request) -> Response:
    """List the runs of all suites, newest first."""
    asked = ListRequest.read(request, RunsQuery)
    return asked.page(asked.query.runs(), NEWEST_FIRST, _each(run_facts))


@reads("One run", WholeRunSerializer, place=[RUN], tag="runs")
def run(request: Request, run: str) -> Response:
    """Give a run with its policy, both gates, its summary and both purses."""
    NoParams.read(request)
    return Response(whole_run(run_named(run)))


@reads("Compare two runs", ComparisonSerializer, params=ComparisonParams, tag="runs")
def compare_runs(request: Request) -> Response:
    """Hold a run against another: tolerances, evidence over the shared cases, and every case.

    Tolerances that are left out are those of the candidate's suite as it was when it ran. The answer
    echoes those that were applied, each with its unit.
    """
    asked = ComparisonParams.read(request)
    baseline, candidate = (run_named(asked[f"{side}_run_id"]) for side in ("baseline", "candidate"))
    if baseline.pk == candidate.pk:
        raise ValidationError({"candidate_run_id": [ITSELF]})
    usual = Tolerances.of(read_plan(candidate.snapshot).policy)
    is_of_shared = asked["cases"] == "shared"
    found = compared(baseline, candidate, with_limits(usual, asked), only_shared=is_of_shared)
    ids = {"baseline_run_id": baseline.pk, "candidate_run_id": candidate.pk}
    return Response({**ids, **comparison_document(found)})


@reads("Campaigns", CampaignSerializer, lists=CampaignsQuery, tag="campaigns")
def campaigns(request: Request) -> Response:
    """List the campaigns, newest first: runs of one suite started together."""
    asked = ListRequest.read(request, CampaignsQuery)
    return asked.page(asked.query.campaigns(), NEWEST_FIRST, campaign_facts)


@reads("One campaign", WholeCampaignSerializer, place=[CAMPAIGN], tag="campaigns")
def campaign(request: Request, campaign: int) -> Response:
    """Give a campaign with its leaderboard, the best first."""
    NoParams.read(request)
    found = Campaign.objects.select_related("suite", "created_by")
    return Response(whole_campaign(get_object_or_404(found, pk=campaign)))


@reads("Results of a run", ResultSerializer, lists=ExecutionsQuery, place=[RUN], tag="results")
def run_results(request: Request, run: str) -> Response:
    """List the results of a run in the order of its suite, repetition after repetition."""
    asked, found = ListRequest.read(request, ExecutionsQuery), run_named(run)
    results = asked.query.results(found)
    return asked.page(
        results, BY_EXECUTION, lambda rows: [result_facts(found, row) for row in rows]
    )


@reads("One result", WholeResultSerializer, place=[RESULT], tag="results")
def result(request: Request, result: int) -> Response:
    """Give a result in full: its case, the answer, the evaluators, outcomes, metrics and costs."""
    NoParams.read(request)
    found = result_numbered(result)
    return Response(whole_result(found.run, found))


@reads("The whole answer", WholeOutputSerializer, place=[RESULT], tag="results")
def result_output(request: Request, result: int) -> Response:
    """Give all of what the target answered, however long it is."""
    NoParams.read(request)
    found = result_numbered(result)
    try:
        text = whole_output(found.run, found.case.key, found.repetition)
    except ResultOutput.DoesNotExist:
        raise Http404 from None
    return Response({"text": text, "characters": len(text)})
