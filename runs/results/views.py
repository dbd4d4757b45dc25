"""The list of runs, one run and one result, with their live parts and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from django.contrib import messages
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    JsonResponse,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.text import get_valid_filename
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError
from runs.exports.specs import FileKind
from runs.exports.views import answer_file
from runs.filters.language import FilterError
from runs.filters.queries import ResultsQuery
from runs.lists import read_display
from runs.models.database import database_now
from runs.models.results import Artifact, ModelCall, Result, ResultOutput
from runs.models.reviews import ReviewItem
from runs.models.runs import RESUMABLE_RUN_STATUSES, Run
from runs.requests import (
    REFUSED,
    STOP_POLLING,
    MemberRequest,
    follow_address,
    get_run_or_404,
    may_change_suites,
    may_start,
    may_view,
    site_address,
)
from runs.results import runs as listing
from runs.results.breakdown import BreakdownQuery, read_breakdown
from runs.results.case_rows import results_table
from runs.results.display import run_display as build_display
from runs.results.documents import run_file_document
from runs.results.files import (
    cases_file,
    displayed_table_file,
    junit_file,
    results_file,
    results_table_file,
)
from runs.results.result_page import (
    is_finished,
    one_call,
    one_file,
    result_page,
)
from runs.results.result_page import (
    result_calls as list_calls,
)
from runs.results.result_state import hidden_parts, hides_machine, review_item
from runs.results.run_figures import evaluator_rows
from runs.results.run_page import lacks_figures
from runs.results.run_page import run_head as build_head
from runs.results.run_page import run_live as build_live
from runs.results.whole_output import whole_output
from runs.running.retry_forms import ResumeForm
from runs.saved_views.queries import PlaceQuery, ViewState, names_nothing, view_state
from runs.suites.services import drop_baseline, make_baseline


@require_safe
@may_view
def run_list(request: HttpRequest) -> HttpResponse:
    """List all runs, newest first."""
    report = listing.run_list(listing.RunsQuery.read(request.GET), now=timezone.localtime())
    return render(request, "results/run_list.html", {"list": report})


@require_safe
@never_cache
@may_view
def run_rows(request: HttpRequest) -> HttpResponse:
    """Return the rows of the list again while runs are active."""
    report = listing.run_list(listing.RunsQuery.read(request.GET), now=timezone.localtime())
    status = 200 if report.has_active else STOP_POLLING
    response = render(request, "results/_run_rows.html", {"list": report}, status=status)
    follow_address(request, response, report.query.at(reverse("runs:run-list")))
    return response


@require_safe
@may_view
def run(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show one run with the first of its results."""
    return show_run(request, get_run_or_404(slug, number))


def show_run(
    request: MemberRequest, run: Run, *, resume: ResumeForm | None = None, status: int = 200
) -> HttpResponse:
    """Show the page of a run, with a refused form to resume it; where its address names nothing, its default view."""
    now = database_now()
    query, view = _with_view(request, run)
    if view.default_url and names_nothing(request.GET) and request.method != "POST":
        return redirect(view.default_url)
    table = results_table(run, query)
    context = {
        "run": run,
        "head": build_head(run, now=now),
        "live": build_live(run, now=now, counts=table.run_counts),
        "table": table,
        "view": view,
    }
    context |= _resume_context(request, run, resume)
    return render(request, "results/run.html", context, status=status)


def _resume_context(
    request: MemberRequest, run: Run, refused: ResumeForm | None = None
) -> dict[str, Any]:
    """Return the form to resume a run that ended early, and why its reader may not; nothing for other runs."""
    if run.status not in RESUMABLE_RUN_STATUSES:
        return {}
    form = refused or ResumeForm(run)
    return {"resume": form, "scripts_problem": form.scripts_problem(request.user)}


@require_safe
@never_cache
@may_view
def run_head(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Return the head of a run's page, after its status changed."""
    run = get_run_or_404(slug, number)
    return render(
        request,
        "results/_run_head.html",
        {"run": run, "head": build_head(run, now=database_now())},
    )


@require_safe
@never_cache
@may_view
def run_live(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Return what changes while a run is active; polling ends with the run."""
    run = get_run_or_404(slug, number)
    if lacks_figures(run):
        # The page asks again as it is, so that it still learns that the run ended, and how.
        return HttpResponse(status=204)
    live = build_live(run, now=database_now())
    was = request.GET.get("was")
    context = {"run": run, "live": live, "was": was, **_resume_context(request, run)}
    status = 200 if live.is_moving else STOP_POLLING
    response = render(request, "results/_run_live.html", context, status=status)
    if was != run.status:
        response["HX-Trigger"] = "run-changed"
    return response


@require_safe
@may_view
def run_evaluators(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Return the mean of every evaluator over a large run, which its page leaves out."""
    run = get_run_or_404(slug, number)
    context = {"run": run, "evaluators": evaluator_rows(run), "policy": run.policy}
    return render(request, "results/_run_evaluators.html", context | {"is_active": run.is_active})


@require_safe
@never_cache
@may_view
def run_results(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Return one page of a run's results."""
    run = get_run_or_404(slug, number)
    query, view = _with_view(request, run)
    table = results_table(run, query)
    context = {"run": run, "table": table, "view": view}
    response = render(request, "results/_run_results.html", context)
    if not table.query.after:
        follow_address(request, response, table.query.at(table.page_url))
    return response


def _with_view(request: MemberRequest, run: Run) -> tuple[ResultsQuery, ViewState]:
    """Return the query of an address, and what it says about saved views."""
    query = ResultsQuery.read(read_display(request.GET))
    place = PlaceQuery(run=run.number)
    state = view_state(run.suite, place, query.parameters(), request.user)
    return replace(query, view=state.word), state


@require_safe
@vary_on_headers("HX-Request")
@may_view
def run_display(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show how the table of results can be displayed, beside it or as a page."""
    run = get_run_or_404(slug, number)
    query = ResultsQuery.read(read_display(request.GET))
    moved = {name: request.GET.get(name, "") for name in ("up", "down")}
    context = {"run": run, "display": build_display(run, query, **moved)}
    is_part = bool(request.htmx)
    template = "results/_display.html" if is_part else "results/run_display.html"
    return render(request, template, context | {"is_part": is_part})


@require_safe
@vary_on_headers("HX-Request")
@may_view
def run_breakdown(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show a run by tag or by metadata; its page loads it when it is opened."""
    run = get_run_or_404(slug, number)
    breakdown = read_breakdown([run], BreakdownQuery.read(request.GET).by)
    context = {"run": run, "breakdown": breakdown, "here": request.path}
    template = "results/_breakdown.html" if request.htmx else "results/breakdown.html"
    return render(request, template, context)


@require_safe
@may_view
def run_summary_file(request: HttpRequest, slug: str, number: int) -> JsonResponse:
    """Return every figure of a run as JSON."""
    run = get_run_or_404(slug, number)
    url = request.build_absolute_uri(reverse("runs:run", args=(slug, number)))
    headers = {"Content-Disposition": f'attachment; filename="{slug}-{number}-summary.json"'}
    document = run_file_document(run, url=url).as_json()
    return JsonResponse(document, headers=headers, json_dumps_params={"indent": 2})


@require_safe
@may_view
def run_cases_file(request: HttpRequest, slug: str, number: int) -> HttpResponseBase:
    """Return every case of a run over its repetitions as JSON Lines."""
    return answer_file(request, cases_file(slug=slug, number=number))


@require_safe
@may_view
def run_results_file(request: HttpRequest, slug: str, number: int) -> HttpResponseBase:
    """Return the results of a run, or those that its page lists, as JSON Lines."""
    is_camel = request.GET.get("keys") == "camelCase"
    return _listed_file(request, results_file, slug=slug, number=number, is_camel=is_camel)


@require_safe
@may_view
def run_junit(request: HttpRequest, slug: str, number: int) -> HttpResponseBase:
    """Return every result of a run as a JUnit file."""
    url = site_address(request, reverse("runs:run", args=(slug, number)))
    return answer_file(request, junit_file(slug=slug, number=number, url=url))


@require_safe
@may_view
def run_results_table(request: HttpRequest, slug: str, number: int) -> HttpResponseBase:
    """Return the results of a run, or those that its page lists, as a table for spreadsheets."""
    texts = {"texts": True} if request.GET.get("texts") == "1" else {}
    return _listed_file(request, results_table_file, slug=slug, number=number, **texts)


@require_safe
@may_view
def run_displayed_table(request: HttpRequest, slug: str, number: int) -> HttpResponseBase:
    """Return the cases that the page of a run lists, with its columns and in its order, for spreadsheets."""
    query = ResultsQuery.read(request.GET)
    parameters = query.changed().parameters()
    listed = {"query": parameters} if parameters else {}
    try:
        return answer_file(request, displayed_table_file(slug=slug, number=number, **listed))
    except FilterError:
        return redirect(query.at(reverse("runs:run", args=(slug, number))))


def _listed_file(request: HttpRequest, kind: FileKind, **params: Any) -> HttpResponseBase:
    """Send a file of the listed results; redirect to the page if the filter is wrong, for it says why."""
    query = ResultsQuery.read(request.GET)
    # A file is in the order of the suite, however the page sorts.
    filters = query.only_filters.parameters()
    listed = {"query": filters} if filters else {}
    try:
        return answer_file(request, kind(**params, **listed))
    except FilterError:
        page = reverse("runs:run", args=(params["slug"], params["number"]))
        return redirect(query.at(page))


@require_safe
@may_view
def result(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Show one result in full."""
    try:
        page = result_page(get_run_or_404(slug, number), key, repetition, request.GET)
    except Result.DoesNotExist:
        raise Http404(f"Run #{number} has no repetition {repetition} of {key}.") from None
    item = review_item(page.result)
    hidden = hidden_parts(request.user, page.result, item, page.policy)
    left = ReviewItem.objects.waiting().filter(run=page.run).count() if item else 0
    context = {"page": page, "run": page.run, "item": item, "kept": hidden, "review_left": left}
    is_blind = hidden.machine and not (hidden.may_look and request.GET.get("shown"))
    template = "results/result_blind.html" if is_blind else "results/result.html"
    return render(request, template, context)


@require_safe
@never_cache
@may_view
def result_progress(
    request: HttpRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Reload the page of a result once it has ended."""
    run = get_run_or_404(slug, number)
    try:
        is_over = is_finished(run, key, repetition)
    except Result.DoesNotExist:
        raise Http404 from None
    if is_over:
        return HttpResponse(status=STOP_POLLING, headers={"HX-Refresh": "true"})
    return HttpResponse(status=204)


@require_safe
@vary_on_headers("HX-Request")
@may_view
def result_calls(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Return every call of a result with request and reply, inside its page or as a page."""
    run = get_run_or_404(slug, number)
    if hides_machine(request.user, run, key, repetition):
        return redirect("runs:result", slug, number, key, repetition)
    calls = list_calls(run, key, repetition)
    if not calls.total and not run.results.filter(case__key=key, repetition=repetition).exists():
        raise Http404
    context = {"calls": calls, "run": run, "key": key, "repetition": repetition}
    template = "results/_result_calls.html" if request.htmx else "results/result_calls.html"
    return render(request, template, context)


@require_safe
@may_view
def result_call(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int, pk: int
) -> HttpResponse:
    """Return one call with whole texts as a file."""
    run = get_run_or_404(slug, number)
    if hides_machine(request.user, run, key, repetition):
        return redirect("runs:result", slug, number, key, repetition)
    try:
        call = one_call(run, key, repetition, pk)
    except ModelCall.DoesNotExist:
        raise Http404 from None
    name = get_valid_filename(f"{slug}-{number}-{key}-{repetition}-call-{pk}.json")
    disposition = f'attachment; filename="{name}"'
    return JsonResponse(
        call,
        json_dumps_params={"indent": 2, "ensure_ascii": False},
        headers={"Content-Disposition": disposition},
    )


@require_safe
@may_view
def result_output(
    request: HttpRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponseBase:
    """Return the whole answer of the target as a file."""
    try:
        output = whole_output(get_run_or_404(slug, number), key, repetition)
    except ResultOutput.DoesNotExist:
        raise Http404 from None
    name = get_valid_filename(f"{slug}-{number}-{key}-{repetition}.txt")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    answer = HttpResponse if output.is_short else StreamingHttpResponse
    return answer(output.pieces, content_type="text/plain; charset=utf-8", headers=headers)


@require_safe
@may_view
def result_file(
    request: HttpRequest, slug: str, number: int, key: str, repetition: int, file: str
) -> HttpResponse:
    """Return a file that the target left, as a download that no browser shows as a page."""
    try:
        content = one_file(get_run_or_404(slug, number), key, repetition, file)
    except Artifact.DoesNotExist:
        raise Http404 from None
    name = get_valid_filename(f"{slug}-{number}-{key}-{repetition}-{PurePosixPath(file).name}")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type="application/octet-stream", headers=headers)


@require_POST
@may_change_suites
def run_baseline(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Make a run the baseline of its suite, or with `drop` no longer."""
    run = get_run_or_404(slug, number)
    try:
        if "drop" in request.POST:
            if drop_baseline(run, by=request.user):
                messages.info(request, f"{run.suite.title} has no baseline now.")
        else:
            make_baseline(run, by=request.user)
            messages.info(request, f"Run {run} is the baseline of {run.suite.title} now.")
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect("runs:run", slug, number)


@require_POST
@may_start
def run_resume(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Resume a run that ended early; show its page again where the budget is refused."""
    run = get_run_or_404(slug, number)
    form = ResumeForm(run, request.POST)
    if message := form.resume(request.user):
        messages.info(request, message)
    elif form.has_error("budget"):
        return show_run(request, run, resume=form, status=REFUSED)
    for refusal in form.non_field_errors():
        messages.error(request, str(refusal))
    return redirect("runs:run", slug, number)
