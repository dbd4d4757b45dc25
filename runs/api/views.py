"""The calls of the API that read, and those that give files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from pydantic import Field
from rest_framework.decorators import api_view
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.utils.urls import replace_query_param

from runs import waiting
from runs.api.params import (
    UNREADABLE,
    CaseComparisonParams,
    CaseParams,
    ComparisonParams,
    ConcludedComparisonParams,
    ListRequest,
    ManyRunsParams,
    NoParams,
    ResultsFileParams,
    ResultsTableParams,
    ReviewsParams,
    RunParams,
    SuiteFileParams,
    get_run,
)
from runs.api.queries import (
    BY_EXECUTION,
    ExecutionsQuery,
    SuiteCasesQuery,
    SuitesQuery,
    UnknownSortError,
    case_revision,
    get_result,
)
from runs.api.safe_changes import ETAG, tagged
from runs.api.schema import (
    CAMPAIGN,
    EXPORT,
    KEY,
    NUMBER,
    RESULT,
    RUN,
    SLUG,
    CannotBeAnswered,
    reads,
    sends,
    writes,
)
from runs.campaigns.documents import (
    CampaignDetailDoc,
    CampaignDoc,
    campaign_detail_document,
    campaign_documents,
)
from runs.campaigns.page import CampaignsQuery
from runs.cases.queries import SUITE_ORDER
from runs.comments.documents import CommentDoc, comment_document
from runs.comments.queries import CommentsQuery
from runs.compare.case_page import case_comparison_document, case_side_by_side
from runs.compare.changes import EVERY, ComparisonQuery
from runs.compare.comparison import Comparison, SameRunError, build_comparison
from runs.compare.conclusion import Conclusion, conclude
from runs.compare.documents import CaseComparisonDoc, ComparisonDoc, comparison_document
from runs.compare.files import comparison_file
from runs.compare.many import (
    ManyQuery,
    ManyRunsDoc,
    ManyRunsError,
    case_order,
    many_runs,
)
from runs.compare.report import (
    comparison_path,
    comparison_report,
    conclude_comparison,
    pull_request_comment,
)
from runs.compare.rules import Tolerances
from runs.documents import Document
from runs.engine.plan import read_policy
from runs.exports.documents import ExportDoc, export_document
from runs.exports.services import drop_request, request_export
from runs.exports.specs import ExportSpec
from runs.exports.views import own_export, send_export, send_now
from runs.filters.queries import ResultsQuery
from runs.lists import NEWEST_FIRST, Key, Keyset, UnreadablePlaceError
from runs.models.results import ResultOutput
from runs.models.reviews import QueueQuery
from runs.models.runs import Campaign, Run
from runs.models.suites import Suite, SuiteVersion
from runs.requests import LIMITS, SHARED, may_view, site_address
from runs.results import files as run_files
from runs.results import report
from runs.results.documents import RunDetailDoc, RunDoc, run_detail_document, run_document
from runs.results.result_documents import (
    ResultDetailDoc,
    ResultDoc,
    WholeOutputDoc,
    result_detail_document,
    result_documents,
)
from runs.results.runs import RunsQuery, run_word
from runs.results.runs import conclude as conclude_run
from runs.results.whole_output import whole_output
from runs.reviews.files import reviews_file
from runs.saved_views.documents import SavedViewDoc, saved_view_document
from runs.saved_views.queries import ViewsQuery
from runs.suites import files as suite_files
from runs.suites.documents import (
    CaseDetailDoc,
    CaseDoc,
    SuiteDetailDoc,
    SuiteDoc,
    VersionDetailDoc,
    VersionDoc,
)
from runs.suites.queries import with_counts
from runs.suites.version_pages import BY_NUMBER, VersionsQuery

BY_SLUG = Keyset(Key("slug", str))


class ApiDoc(Document):
    """The addresses to start from."""

    suites: str
    """The suites."""
    runs: str
    """The runs."""
    compare: str
    """Two runs compared."""
    campaigns: str
    """The campaigns."""
    openapi: str = Field(alias="schema")
    """The schema."""
    docs: str
    """The page to try the API on."""


@reads("API root", ApiDoc, tag="about")
def api(request: Request) -> Response:
    """Give the addresses to start from."""
    NoParams.read(request)
    names = (field.alias or name for name, field in ApiDoc.model_fields.items())
    return Response({name: reverse(f"runs:api-{name}", request=request) for name in names})


@extend_schema(exclude=True)
@api_view(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def nothing_here(request: Request, rest: str) -> Response:
    """Answer an unknown address."""
    raise Http404


@cache
def api_schema() -> dict[str, Any]:
    """Return the schema, the same for everybody; describing all calls takes half a second."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    schema: dict[str, Any] = generator.get_schema(public=True)
    return schema


class SchemaView(SpectacularJSONAPIView):
    """The schema of the API."""

    schema = None

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Give the schema, whatever the parameters are."""
        return Response(
            api_schema(), headers={"Content-Disposition": 'inline; filename="Evalsite.json"'}
        )


@require_safe
@may_view
def docs(request: HttpRequest) -> HttpResponse:
    """Show every call of the API with a form to try it."""
    return render(request, "api/docs.html")


@reads("Suites", SuiteDoc, lists=SuitesQuery, tag="suites")
def suites(request: Request) -> Response:
    """List the suites by slug; archived ones only on request."""
    params = ListRequest.read(request, SuitesQuery)
    return params.page(
        params.query.suites(), BY_SLUG, lambda rows: [SuiteDoc.make(row) for row in rows]
    )


@reads("One suite", SuiteDetailDoc, path=[SLUG, ETAG], tag="suites")
def suite(request: Request, slug: str) -> Response:
    """Give a suite with its policy, its evaluators and the paths of its files."""
    NoParams.read(request)
    found = get_object_or_404(with_counts(Suite.objects.all()), slug=slug)
    return tagged(SuiteDetailDoc.make(found), found.version)


@reads("Versions of a suite", VersionDoc, lists=VersionsQuery, path=[SLUG], tag="suites")
def suite_versions(request: Request, slug: str) -> Response:
    """List the versions of a suite, newest first."""
    params, suite = ListRequest.read(request, VersionsQuery), get_object_or_404(Suite, slug=slug)
    versions = suite.versions.select_related("author", "suite").defer("content")
    return params.page(versions, BY_NUMBER, lambda rows: [VersionDoc.make(row) for row in rows])


@reads("One version of a suite", VersionDetailDoc, path=[SLUG, NUMBER], tag="suites")
def suite_version(request: Request, slug: str, number: int) -> Response:
    """Give a version of a suite, its cases by key and revision."""
    NoParams.read(request)
    versions = SuiteVersion.objects.select_related("author", "suite")
    found = get_object_or_404(versions, suite__slug=slug, number=number)
    return Response(VersionDetailDoc.make(found).as_json())


@reads("Saved views of a suite", SavedViewDoc, lists=ViewsQuery, path=[SLUG], tag="suites")
def suite_views(request: Request, slug: str) -> Response:
    """List your saved views of a suite and those that others share, newest first."""
    params, suite = ListRequest.read(request, ViewsQuery), get_object_or_404(Suite, slug=slug)
    member: Any = request.user
    return params.page(
        params.query.views(suite, member),
        NEWEST_FIRST,
        lambda rows: [saved_view_document(row, member) for row in rows],
    )


@reads("Cases of a suite", CaseDoc, lists=SuiteCasesQuery, path=[SLUG], tag="suites")
def suite_cases(request: Request, slug: str) -> Response:
    """List the current cases of a suite in its order."""
    params, suite = ListRequest.read(request, SuiteCasesQuery), get_object_or_404(Suite, slug=slug)
    cases = params.query.cases(suite).only(*CaseDoc.model_fields, "suite_id")
    return params.page(
        cases, SUITE_ORDER, lambda rows: [CaseDoc.model_validate(row) for row in rows]
    )


@reads("One case", CaseDetailDoc, params=CaseParams, path=[SLUG, KEY, ETAG], tag="suites")
def suite_case(request: Request, slug: str, key: str) -> Response:
    """Give a case in full: the requested revision, else the current one, or the last one of a deleted case."""
    params, found = CaseParams.read(request), get_object_or_404(Suite, slug=slug)
    case = case_revision(found, key, params.get("revision"))
    return tagged(CaseDetailDoc.model_validate(case), case.revision)


@reads("Runs", RunDoc, lists=RunsQuery, tag="runs")
def runs(request: Request) -> Response:
    """List the runs of all suites, newest first."""
    params = ListRequest.read(request, RunsQuery)
    return params.page(
        params.query.runs(), NEWEST_FIRST, lambda rows: [run_document(row) for row in rows]
    )


@reads("One run", RunDetailDoc, params=RunParams, path=[RUN], tag="runs")
def run(request: Request, run: str) -> Response:
    """Give a run with its policy, both gates, its summary and its costs; with `wait`, once it has ended."""
    params, found = RunParams.read(request), get_run(run)
    waits = params["wait"] and found.is_active
    headers = {waiting.HEADER: str(params["wait"])} if waits else {}
    return Response(run_detail_document(found).as_json(), headers=headers)


class RunReportDoc(Document):
    """The figures of a run as text, as the command line prints them."""

    text: str
    """The table of figures, the cases that failed or errored, and the conclusion."""
    exit_code: int | None
    """0 if it passed, 1 if a gate failed, 3 if it was not evaluated; null until it ended."""
    url: str
    """The address of its page."""


@reads("A run as text", RunReportDoc, path=[RUN], tag="runs")
def run_report(request: Request, run: str) -> Response:
    """Give the figures of a run as text, with its worst cases and its conclusion."""
    NoParams.read(request)
    found = get_run(run)
    conclusion = None if found.is_active else conclude_run(found)
    document = RunReportDoc(
        text=report.run_report(found, conclusion.sentence if conclusion else ""),
        exit_code=conclusion.code if conclusion else None,
        url=_run_address(request, found),
    )
    return Response(document.as_json())


def _run_address(request: Request, run: Run) -> str:
    place = {"slug": run.suite.slug, "number": run.number}
    return site_address(request, reverse("runs:run", kwargs=place))


@reads("Compare two runs", ComparisonDoc, params=ConcludedComparisonParams, tag="runs")
def compare_runs(request: Request) -> HttpResponse:
    """Compare two runs: tolerances, evidence over the shared cases, and every case.

    Tolerances that are left out are those of the candidate's suite at the time of the run. The answer
    repeats the applied ones, each with its unit.
    """
    # Written at once: a copy of twenty thousand cases as Python values takes longer than their JSON.
    document = comparison_document(*_read_comparison(request)).model_dump_json()
    return HttpResponse(document, content_type="application/json")


class ComparisonReportDoc(Document):
    """A comparison as text, as the command line prints it."""

    text: str
    """The figures of both runs, the cases that got worse, the conclusion and its evidence."""
    comment: str
    """A comment for a pull request, in Markdown."""
    conclusion: str
    """The sentence that concludes it."""
    exit_code: int
    """0 without a regression, 1 with one, 2 if it is inconclusive."""


@reads("A comparison as text", ComparisonReportDoc, params=ConcludedComparisonParams, tag="runs")
def comparison_text(request: Request) -> Response:
    """Give a comparison as text and as a comment for a pull request, with its conclusion."""
    comparison, result = _read_comparison(request)
    conclusion = conclude_comparison(result)
    url = site_address(request, comparison_path(comparison))
    document = ComparisonReportDoc(
        text=comparison_report(comparison, result),
        comment=pull_request_comment(comparison, conclusion, url=url),
        conclusion=conclusion.sentence,
        exit_code=conclusion.code,
    )
    return Response(document.as_json())


def _read_comparison(request: Request) -> tuple[Comparison, Conclusion]:
    params = ConcludedComparisonParams.read(request)
    baseline, candidate = _two_runs(params)
    usual = Tolerances.from_policy(read_policy(candidate.snapshot))
    tolerances = usual.with_entered(params)
    only_shared = params["cases"] == "shared"
    comparison = build_comparison(baseline, candidate, tolerances, only_shared=only_shared)
    return comparison, conclude(
        comparison, is_forced=params["force"], least_cases=params["min_cases"]
    )


def _two_runs(params: Mapping[str, Any]) -> tuple[Run, Run]:
    """Return baseline and candidate; raises NotFound, and ValidationError where both are the same run."""
    baseline, candidate = get_run(params["baseline_run_id"]), get_run(params["candidate_run_id"])
    if baseline == candidate:
        raise ValidationError({"candidate_run_id": [str(SameRunError())]})
    return baseline, candidate


@reads("Several runs side by side", ManyRunsDoc, params=ManyRunsParams, tag="runs")
def compare_many(request: Request) -> Response:
    """Put two to six runs of a suite side by side: their figures, then a page of cases with a cell for each run."""
    params = ManyRunsParams.read(request)
    pairs = (("runs", "runs"), ("baseline", "baseline"), ("filter", "q"), ("sort", "sort"))
    values = {name: params[param] for param, name in pairs if params.get(param)}
    after = params.get("cursor", "")
    query = ManyQuery.read({**values, "after": after, "differences": "1" * params["differences"]})
    if params.get("baseline", query.names[:1]) not in (*query.names, query.names[:1]):
        raise ValidationError({"baseline": ["This run is not one of the compared runs."]})
    try:
        if after:
            case_order(query.sort).read(after)
        page = many_runs(query, params["limit"])
    except ManyRunsError as refusal:
        raise ValidationError({"runs": [str(refusal)]}) from None
    except UnreadablePlaceError:
        raise ValidationError({"cursor": [UNREADABLE]}) from None
    if page.problem:
        raise page.problem
    here = request.build_absolute_uri()
    following = replace_query_param(here, "cursor", page.after) if page.after else None
    return Response(ManyRunsDoc.make(page, following).as_json())


@reads(
    "Compare a case of two runs",
    CaseComparisonDoc,
    params=CaseComparisonParams,
    path=[KEY],
    tag="runs",
)
def compare_case(request: Request, key: str) -> Response:
    """Compare one case of two runs: every evaluator of one repetition, with its metrics and dimensions."""
    params = CaseComparisonParams.read(request)
    page = case_side_by_side(*_two_runs(params), key, params.get("repetition", 0))
    if page is None:
        raise Http404
    return Response(case_comparison_document(page).as_json())


@reads("Campaigns", CampaignDoc, lists=CampaignsQuery, tag="campaigns")
def campaigns(request: Request) -> Response:
    """List the campaigns, newest first: runs of one suite that were started together."""
    params = ListRequest.read(request, CampaignsQuery)
    return params.page(params.query.campaigns(), NEWEST_FIRST, campaign_documents)


@reads("One campaign", CampaignDetailDoc, path=[CAMPAIGN], tag="campaigns")
def campaign(request: Request, campaign: int) -> Response:
    """Give a campaign with its leaderboard, best first."""
    NoParams.read(request)
    found = get_object_or_404(Campaign.objects.select_related("suite", "created_by"), pk=campaign)
    return Response(campaign_detail_document(found).as_json())


@reads("Results of a run", ResultDoc, lists=ExecutionsQuery, path=[RUN], tag="results")
def run_results(request: Request, run: str) -> Response:
    """List the results of a run by case and repetition, in the order of its suite unless `sort` names another."""
    params, found = ListRequest.read(request, ExecutionsQuery), get_run(run)
    if params.query.sort == ExecutionsQuery().sort:
        return params.page(
            params.query.results(found), BY_EXECUTION, lambda rows: result_documents(found, rows)
        )
    try:
        page = params.query.sorted_page(found, params.cursor, params.limit)
    except UnreadablePlaceError:
        raise ValidationError({"cursor": [UNREADABLE]}) from None
    except UnknownSortError as error:
        raise ValidationError({"sort": [f"This run has no scores of {error}."]}) from None
    return params.answer(page, lambda rows: result_documents(found, rows))


@reads("One result", ResultDetailDoc, path=[RESULT], tag="results")
def result(request: Request, result: int) -> Response:
    """Give a result in full: its case, answer, evaluators, outcomes, metrics and costs."""
    NoParams.read(request)
    found = get_result(result)
    return Response(result_detail_document(found.run, found).as_json())


@reads("The whole answer", WholeOutputDoc, path=[RESULT], tag="results")
def result_output(request: Request, result: int) -> HttpResponseBase:
    """Give the whole answer of the target, at any length."""
    NoParams.read(request)
    found = get_result(result)
    try:
        output = whole_output(found.run, found.case.key, found.repetition)
    except ResultOutput.DoesNotExist:
        raise Http404 from None
    answer = HttpResponse if output.is_short else StreamingHttpResponse
    return answer(output.json(), content_type="application/json")


def _answer_file(request: Request, spec: ExportSpec) -> HttpResponseBase:
    """Send a small file, or one that a worker has made; else tell how far it is."""
    if spec.is_small:
        return send_now(spec)
    member: Any = request.user
    export_request = request_export(spec, by=member)
    try:
        return send_export(export_request)
    except FileNotFoundError:
        document = export_document(export_request).as_json()
        location = {"Location": request.build_absolute_uri(document["status_url"])}
        return Response(document, status=HTTPStatus.ACCEPTED, headers=location)


@sends("A suite as a file", "yaml", "zip", params=SuiteFileParams, path=[SLUG])
def suite_file(request: Request, slug: str) -> HttpResponseBase:
    """Give a suite as a file that can be imported again, a zip if it refers to files."""
    params = SuiteFileParams.read(request)
    return _answer_file(request, suite_files.suite_file(slug=slug, version=params.get("version")))


@sends("Results of a run as JSON Lines", "jsonl", params=ResultsFileParams, path=[RUN])
def run_results_file(request: Request, run: str) -> HttpResponseBase:
    """Give the results of a run in full, one JSON object a line."""
    params = ResultsFileParams.read(request)
    is_camel = params["keys"] == "camelCase"
    listed = _listed(run, params)
    return _answer_file(request, run_files.results_file(**listed, is_camel=is_camel))


@sends("Results of a run as a table", "csv", params=ResultsTableParams, path=[RUN])
def run_results_table(request: Request, run: str) -> HttpResponseBase:
    """Give the results of a run, a row each, for spreadsheets."""
    params = ResultsTableParams.read(request)
    texts = {"texts": True} if params["texts"] else {}
    return _answer_file(request, run_files.results_table_file(**_listed(run, params), **texts))


def _listed(run: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return which results of a run a file has, as pages describe it."""
    found, text = get_run(run), params.get("filter", "")
    query = {"query": ResultsQuery(text=text).parameters()} if text else {}
    return {"slug": found.suite.slug, "number": found.number, **query}


@sends("Results of a run as JUnit", "xml", path=[RUN])
def run_junit(request: Request, run: str) -> HttpResponseBase:
    """Give every result of a run as a test case of a JUnit file, for build servers."""
    NoParams.read(request)
    found = get_run(run)
    place = {"slug": found.suite.slug, "number": found.number}
    url = _run_address(request, found)
    return _answer_file(request, run_files.junit_file(**place, url=url))


@sends("Cases of a run as JSON Lines", "jsonl", path=[RUN])
def run_cases_file(request: Request, run: str) -> HttpResponseBase:
    """Give every case of a run over its repetitions, one JSON object a line."""
    NoParams.read(request)
    found = get_run(run)
    return _answer_file(request, run_files.cases_file(slug=found.suite.slug, number=found.number))


@sends("Cases of a comparison as a table", "csv", params=ComparisonParams)
def comparison_table(request: Request) -> HttpResponseBase:
    """Give every case of a comparison, a row each, for spreadsheets."""
    return _answer_file(request, _comparison_file(request, "csv"))


@sends("A comparison as JSON Lines", "jsonl", params=ComparisonParams)
def comparison_lines(request: Request) -> HttpResponseBase:
    """Give every figure of a comparison, then its cases, one JSON object a line."""
    return _answer_file(request, _comparison_file(request, "jsonl"))


def _comparison_file(request: Request, form: str) -> ExportSpec:
    params = ComparisonParams.read(request)
    baseline, candidate = _two_runs(params)
    query = ComparisonQuery.read(
        {
            "baseline": run_word(baseline),
            "candidate": run_word(candidate),
            "show": EVERY,
            "cases": SHARED if params["cases"] == "shared" else "",
            **{name: str(params[name]) for name in LIMITS if name in params},
        }
    )
    return comparison_file(query=query.parameters(), form=form)


@reads("Comments", CommentDoc, lists=CommentsQuery, tag="comments")
def comments(request: Request) -> Response:
    """List the comments on results, cases, runs and comparisons, newest first; not those that are hidden from you."""
    params = ListRequest.read(request, CommentsQuery)
    member: Any = request.user
    found = params.query.comments(member)
    return params.page(found, NEWEST_FIRST, lambda rows: [comment_document(row) for row in rows])


@sends("Decisions of reviewers as JSON Lines", "jsonl", params=ReviewsParams)
def reviews_lines(request: Request) -> HttpResponseBase:
    """Give every decision of reviewers, withdrawn ones too, one JSON object a line."""
    return _answer_file(request, _reviews_file(request, "jsonl"))


@sends("Decisions of reviewers as a table", "csv", params=ReviewsParams)
def reviews_table(request: Request) -> HttpResponseBase:
    """Give every decision of reviewers, withdrawn ones too, a row each."""
    return _answer_file(request, _reviews_file(request, "csv"))


def _reviews_file(request: Request, form: str) -> ExportSpec:
    params = ReviewsParams.read(request)
    run = get_run(params["run"]).pk if "run" in params else 0
    query = QueueQuery(suite=params.get("suite", ""), run=run)
    return reviews_file(query=query.parameters(), form=form)


@reads("The state of a file", ExportDoc, path=[EXPORT], tag="files")
def export(request: Request, export: UUID) -> Response:
    """Give the state of a file that a worker makes, with its address once it is ready."""
    NoParams.read(request)
    return Response(export_document(own_export(request, export)).as_json())


@writes("Cancel an export", None, path=[EXPORT], tag="files", method="DELETE", status=204)
def export_cancel(request: Request, export: UUID) -> None:
    """Cancel a file that is being prepared, or delete it."""
    drop_request(own_export(request, export))


@sends("The file of an export", path=[EXPORT])
def export_file(request: Request, export: UUID) -> HttpResponseBase:
    """Give a file that a worker has made, by its own media type; 409 until it is ready."""
    NoParams.read(request)
    export_request = own_export(request, export)
    grant: Any = request.auth
    if not all(
        request.user.has_perm(permission) and (grant is None or grant.allows(permission))
        for permission in export_request.export.permissions
    ):
        raise PermissionDenied
    try:
        return send_export(export_request)
    except FileNotFoundError:
        state = export_document(export_request).state
        raise CannotBeAnswered(f"The file cannot be sent: it is {state}.") from None
