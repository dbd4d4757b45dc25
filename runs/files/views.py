"""The pages that import suites and results, and the download of a suite."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.exports.views import answer_file
from runs.files.forms import ResultsImportForm
from runs.files.importing import import_sample
from runs.requests import (
    REFUSED,
    MemberRequest,
    form_data,
    form_files,
    may_change_suites,
    may_start,
    may_view,
)
from runs.suites.files import suite_file as suite_export


@require_POST
@may_change_suites
def suite_sample(request: MemberRequest) -> HttpResponse:
    """Import the sample with its recorded outputs, and lead to the form that starts its run."""
    try:
        suite = import_sample(imported_by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:suite-import")
    may_run = request.user.has_perm("runs.start_run")
    return redirect("runs:run-new" if may_run else "runs:suite", suite.slug)


@require_safe
@may_view
def suite_file(request: HttpRequest, slug: str, version: int | None = None) -> HttpResponseBase:
    """Download a suite as a file that can be imported again, as it is or as it was at a version."""
    return answer_file(request, suite_export(slug=slug, version=version))


@may_start
@may_change_suites
def results_import(request: MemberRequest) -> HttpResponse:
    """Import a file of results, or show everything that is wrong with it."""
    first = {"suite": request.GET.get("suite", "")}
    form = ResultsImportForm(form_data(request), form_files(request), initial=first)
    done = form.save(imported_by=request.user) if form.is_valid() else None
    if done is None:
        status = REFUSED if form.is_bound else 200
        return render(request, "files/import_results.html", {"form": form}, status=status)
    for note in done.notes:
        messages.warning(request, note)
    count = sum(run.execution_count for run in done.runs)
    where = f" in {len(done.runs)} runs" if len(done.runs) > 1 else ""
    messages.success(request, f"{counted(count, 'result')} imported{where}.")
    if len(done.runs) > 1:
        return redirect("runs:suite", done.suite.slug)
    return redirect("runs:run", done.suite.slug, done.runs[0].number)
