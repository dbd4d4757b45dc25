"""The list of runs, and one run: its head, what changes while it is on, and its results."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs.formats.results import write_results
from runs.forms import ResumeForm
from runs.models import Run
from runs.models.clock import database_now
from runs.reports import run_list as listing
from runs.reports.case_groups import policy_of
from runs.reports.result_lines import result_lines
from runs.reports.result_rows import results_table
from runs.reports.results_query import ResultsQuery
from runs.reports.run_document import run_document
from runs.reports.run_evaluators import evaluators_of
from runs.reports.run_files import results_csv
from runs.reports.run_head import run_head as head_of
from runs.reports.run_page import run_live as live_of
from runs.views._requests import STOP_POLLING, may_view, run_of


@require_safe
@may_view
def run_list(request: HttpRequest) -> HttpResponse:
    """List all runs, newest first."""
    report = listing.run_list(listing.RunsQuery.read(request.GET))
    return render(request, "runs/run_list.html", {"list": report})


@require_safe
@never_cache
@may_view
def run_rows(request: HttpRequest) -> HttpResponse:
    """Give the rows of the list again while runs are on."""
    report = listing.run_list(listing.RunsQuery.read(request.GET))
    status = 200 if report.has_active else STOP_POLLING
    response = render(request, "runs/_run_rows.html", {"list": report}, status=status)
    response["HX-Replace-Url"] = (reverse("runs:run-list") + report.live_address).rstrip("?")
    return response


@require_safe
@may_view
def run(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Show one run with the first of its results."""
    found = run_of(slug, number)
    return show_run(request, found, resume=ResumeForm(found))


def show_run(
    request: HttpRequest, run: Run, *, resume: ResumeForm, status: int = 200
) -> HttpResponse:
    """Show the page of a run with the form that lets it go on."""
    now = database_now()
    context = {
        "run": run,
        "head": head_of(run, now=now),
        "live": live_of(run, now=now),
        "table": results_table(run, ResultsQuery.read(request.GET)),
        "resume": resume,
        "scripts_problem": resume.scripts_problem(request.user),
    }
    return render(request, "runs/run.html", context, status=status)


@require_safe
@never_cache
@may_view
def run_head(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Give the head of a run's page, after its status changed."""
    found = run_of(slug, number)
    return render(
        request, "runs/_run_head.html", {"run": found, "head": head_of(found, now=database_now())}
    )


@require_safe
@never_cache
@may_view
def run_live(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Give what changes while a run is on; polling ends with the run."""
    found = run_of(slug, number)
    live = live_of(found, now=database_now())
    context = {"run": found, "live": live, "resume": ResumeForm(found)}
    status = 200 if live.is_moving else STOP_POLLING
    response = render(request, "runs/_run_live.html", context, status=status)
    if request.GET.get("was") != found.status:
        response["HX-Trigger"] = "run-changed"
    return response


@require_safe
@may_view
def run_evaluators(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Give the mean of every evaluator over a run too large to read them with the page."""
    found = run_of(slug, number)
    context = {"run": found, "evaluators": evaluators_of(found), "policy": policy_of(found)}
    return render(request, "runs/_run_evaluators.html", context | {"is_active": found.is_active})


@require_safe
@never_cache
@may_view
def run_results(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Give one page of a run's results."""
    found = run_of(slug, number)
    table = results_table(found, ResultsQuery.read(request.GET))
    response = render(request, "runs/_run_results.html", {"run": found, "table": table})
    if not table.query.after:
        response["HX-Replace-Url"] = (table.page_url + table.here).rstrip("?")
    return response


@require_safe
@may_view
def run_summary_file(request: HttpRequest, slug: str, number: int) -> JsonResponse:
    """Give every figure of a run, and each case over its repetitions, as JSON."""
    found = run_of(slug, number)
    url = request.build_absolute_uri(reverse("runs:run", args=(slug, number)))
    headers = {"Content-Disposition": f'attachment; filename="{slug}-{number}-summary.json"'}
    return JsonResponse(
        run_document(found, url=url), headers=headers, json_dumps_params={"indent": 2}
    )


@require_safe
@may_view
def run_results_file(request: HttpRequest, slug: str, number: int) -> StreamingHttpResponse:
    """Give every result of a run as JSON Lines, as they are read."""
    is_camel = request.GET.get("keys") == "camelCase"
    lines = write_results(result_lines(run_of(slug, number)), is_camel=is_camel)
    headers = {"Content-Disposition": f'attachment; filename="{slug}-{number}.jsonl"'}
    kind = "application/jsonl; charset=utf-8"
    return StreamingHttpResponse(lines, content_type=kind, headers=headers)


@require_safe
@may_view
def run_results_table(request: HttpRequest, slug: str, number: int) -> StreamingHttpResponse:
    """Give every result of a run as a table for spreadsheets, as they are read."""
    headers = {"Content-Disposition": f'attachment; filename="{slug}-{number}.csv"'}
    kind = "text/csv; charset=utf-8"
    return StreamingHttpResponse(
        results_csv(run_of(slug, number)), content_type=kind, headers=headers
    )
