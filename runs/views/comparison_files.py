"""A comparison to be kept: its cases as a table, and everything as JSON Lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.http import Http404, HttpRequest, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.http import require_safe

from evaluators.scoring.types import DomainError
from runs.comparison import Tolerances
from runs.forms.tolerances import TolerancesForm
from runs.models import Run
from runs.plan import read_plan
from runs.reports.comparison import Compared, compared
from runs.reports.comparison_choice import named
from runs.reports.comparison_files import comparison_csv, comparison_jsonl
from runs.reports.comparison_query import SHARED, ComparisonQuery
from runs.views._requests import may_view, run_of

Written = Callable[[Compared, ComparisonQuery], Iterator[str]]


@require_safe
@may_view
def comparison_table(request: HttpRequest) -> HttpResponseBase:
    """Give the cases that the page of the same address lists, all its pages, as CSV."""
    return _file(request, comparison_csv, "csv", "text/csv")


@require_safe
@may_view
def comparison_lines(request: HttpRequest) -> HttpResponseBase:
    """Give every figure of the page of the same address, then its cases, as JSON Lines."""
    return _file(request, comparison_jsonl, "jsonl", "application/jsonl")


def _file(request: HttpRequest, written: Written, ending: str, kind: str) -> HttpResponseBase:
    """Stream the file; what is no comparison of two runs leads to the page, which says why."""
    query = ComparisonQuery.read(request.GET)
    baseline, candidate = _run(query.baseline), _run(query.candidate)
    try:
        found = _compared(query, baseline, candidate)
    except DomainError:
        found = None
    if found is None or baseline.pk == candidate.pk:
        return HttpResponseRedirect(reverse("runs:compare") + query.address())
    name = f"{baseline.suite.slug}-{baseline.number}-{candidate.suite.slug}-{candidate.number}"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    content_type = f"{kind}; charset=utf-8"
    return StreamingHttpResponse(written(found, query), content_type=content_type, headers=headers)


def _compared(query: ComparisonQuery, baseline: Run, candidate: Run) -> Compared:
    form = TolerancesForm(Tolerances.of(read_plan(candidate.snapshot).policy), dict(query.limits))
    return compared(baseline, candidate, form.tolerances, only_shared=query.cases == SHARED)


def _run(word: str) -> Run:
    place = named(word)
    if place is None:
        raise Http404(f"{word!r} names no run")
    return run_of(*place)
