"""The page that brings results of another tool in as finished runs."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from evaluators.templatetags.figures import counted
from runs.forms.importing_results import ResultsImportForm
from runs.views._requests import (
    REFUSED,
    MemberRequest,
    may_change_suites,
    may_start,
    posted,
    uploaded,
)


@may_start
@may_change_suites
def results_import(request: MemberRequest) -> HttpResponse:
    """Store the results of a file, or say everything that is wrong with it."""
    first = {"suite": request.GET.get("suite", "")}
    form = ResultsImportForm(posted(request), uploaded(request), initial=first)
    done = form.save(imported_by=request.user) if form.is_valid() else None
    if done is None:
        status = REFUSED if form.is_bound else 200
        return render(request, "suites/import_results.html", {"form": form}, status=status)
    for note in done.notes:
        messages.warning(request, note)
    count = sum(run.execution_count for run in done.runs)
    where = f" in {len(done.runs)} runs" if len(done.runs) > 1 else ""
    messages.success(request, f"{counted(count, 'result')} imported{where}.")
    if len(done.runs) > 1:
        return redirect("runs:suite", done.suite.slug)
    return redirect("runs:run", done.suite.slug, done.runs[0].number)
