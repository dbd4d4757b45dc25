"""The pages that import suites and results, and the download of a suite."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from evaluators.templatetags.figures import counted
from runs.exports.views import answer_file
from runs.files.forms import ResultsImportForm, SuiteImportForm, dump_answer, load_answer
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

ANSWER = "import_answer"


@may_change_suites
def suite_import(request: MemberRequest) -> HttpResponse:
    """Import suites from files, or show everything that is wrong with them."""
    form = SuiteImportForm(form_data(request), form_files(request))
    done = form.save(imported_by=request.user) if form.is_valid() else None
    if done is None:
        status = REFUSED if form.is_bound else 200
        return render(request, "files/import.html", {"form": form}, status=status)
    answer = dump_answer(done.files, done.target, done.warnings)
    if len(done.files) > 1 or done.warnings:
        request.session[ANSWER] = answer
        return redirect("runs:suite-imported")
    imported = done.files[0].imported
    is_new_version = imported.is_changed and not imported.is_new
    suite, note = imported.suite, f": {imported.note}" if is_new_version else ""
    outputs = f" Target {done.target.name} has its outputs." if done.target else ""
    messages.success(request, f"{suite.title} is at version {suite.version}{note}.{outputs}")
    return redirect("runs:suite", suite.slug)


@may_change_suites
@require_safe
def suite_imported(request: HttpRequest) -> HttpResponse:
    """Show the result for each suite of the last import, with warnings."""
    kept = request.session.get(ANSWER)
    if kept is None:
        return redirect("runs:suite-import")
    return render(request, "files/imported.html", {"answer": load_answer(kept)})


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
