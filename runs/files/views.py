"""The pages that import suites and results, and the download of a suite."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from evaluators.templatetags.figures import counted
from runs.files.forms import ResultsImportForm, SuiteImportForm, dump_answer, load_answer
from runs.formats.suite_files import pack_suite
from runs.requests import (
    REFUSED,
    MemberRequest,
    form_data,
    form_files,
    get_suite_or_404,
    may_change_suites,
    may_start,
    may_view,
)
from runs.suites.services import UnknownVersionError, suite_with_cases

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
def suite_file(
    request: HttpRequest, slug: str, version: int | None = None
) -> StreamingHttpResponse:
    """Download a suite as a file that can be imported again, as it is or as it was at a version."""
    suite = get_suite_or_404(slug=slug)
    try:
        content = suite_with_cases(suite, version=version)
    except UnknownVersionError as error:
        raise Http404(str(error)) from error
    file = pack_suite(content, f"{slug}-v{version or suite.version}")
    headers = {"Content-Disposition": str(content_disposition_header(True, file.name))}
    return StreamingHttpResponse(file.parts, content_type=file.media_type, headers=headers)


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
