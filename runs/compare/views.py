"""Two runs side by side, the choice of them, and their comparison as files."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.contrib import messages
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError
from runs.compare.case_page import case_side_by_side
from runs.compare.cases import Tolerances
from runs.compare.choice import (
    TolerancesForm,
    in_order,
    named,
    rescoring_of,
    runs_beside,
    runs_offered,
    usual_baseline,
)
from runs.compare.comparison import EVERY, LIMITS, SHARED, Compared, ComparisonQuery, compared
from runs.compare.page import changes_of, comparison_csv, comparison_jsonl, comparison_page
from runs.engine.plan import read_plan
from runs.lists import read_integer
from runs.models.runs import Run
from runs.requests import MemberRequest, may_change_suites, may_start, may_view, run_of
from runs.results.run_list import run_word
from runs.what_if.services import score_alike

TWO = "Tick two runs to compare them."
CHANGES = "changes"
ITSELF = "That is one run twice. Choose another to hold it against."


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@may_view
def compare(request: MemberRequest) -> HttpResponse:
    """Compare the two runs an address names; without two, let them be chosen."""
    query = ComparisonQuery.read(request.GET)
    if ticked := request.GET.getlist("run"):
        return _ticked(request, ticked)
    if "choose" in request.GET:
        return _choice(request, query)
    if query.candidate and not query.baseline:
        usual = usual_baseline(_run(query.candidate))
        return _to(query, baseline=usual) if usual else _choice(request, query)
    if not (query.baseline and query.candidate):
        return _choice(request, query)
    baseline, candidate = _run(query.baseline), _run(query.candidate)
    if baseline.pk == candidate.pk:
        return _choice(request, query, ITSELF)
    try:
        return _page(request, query, baseline, candidate)
    except DomainError as refusal:
        return _choice(request, query, str(refusal))


def _page(
    request: MemberRequest, query: ComparisonQuery, baseline: Run, candidate: Run
) -> HttpResponse:
    form = TolerancesForm(Tolerances.of(read_plan(candidate.snapshot).policy), dict(query.limits))
    found = compared(baseline, candidate, form.tolerances, only_shared=query.cases == SHARED)
    context = {
        "query": query,
        "scale": candidate.scale,
        "query_all": query.address(show=EVERY, cell="", text=""),
    }
    if request.htmx.target == CHANGES:
        context["changes"] = changes_of(found, query)
        # A part has the address of its page: a browser that goes back must not show it as one.
        headers = {"Cache-Control": "no-store"}
        return HttpResponse(
            render_to_string("compare/_swaps.html", context, request), headers=headers
        )
    page = comparison_page(found, query)
    context |= {
        "page": page,
        "form": form,
        "rescoring": rescoring_of(baseline, candidate, request.user),
        "beside": runs_beside(query, baseline, candidate),
        "swap_url": query.address(baseline=query.candidate, candidate=query.baseline),
        "query_whole": query.address(cases=""),
        "query_shared": query.address(cases=SHARED),
        "query_usual": query.address(**dict.fromkeys(LIMITS, "")),
    }
    response = render(request, "compare/compare.html", context)
    if page.is_rescoring:
        response["Refresh"] = "3"
    return response


def _choice(request: HttpRequest, query: ComparisonQuery, problem: str = "") -> HttpResponse:
    context = {
        "query": query,
        "offered": runs_offered(query.baseline, query.candidate),
        "problem": problem,
    }
    return render(request, "compare/choice.html", context)


def _ticked(request: HttpRequest, words: list[str]) -> HttpResponse:
    if len(set(words)) != 2:
        messages.error(request, TWO)
        return HttpResponseRedirect(reverse("runs:run-list"))
    baseline, candidate = in_order([_run(word) for word in set(words)])
    return _to(ComparisonQuery(), baseline=baseline, candidate=candidate)


def _to(query: ComparisonQuery, **changes: str) -> HttpResponse:
    return HttpResponseRedirect(reverse("runs:compare") + query.address(**changes))


def _run(word: str) -> Run:
    place = named(word)
    if place is None:
        raise Http404(f"{word!r} names no run")
    return run_of(*place)


@require_POST
@may_start
@may_change_suites
def compare_score(request: MemberRequest) -> HttpResponse:
    """Score whichever of both runs has other rules under those of the other, and compare what comes of it."""
    query = ComparisonQuery.read(request.POST)
    baseline, candidate = _run(query.baseline), _run(query.candidate)
    like = baseline if request.POST.get("like") == "baseline" else candidate
    try:
        made = [score_alike(run, like, by=request.user) for run in (baseline, candidate)]
    except DomainError as refusal:
        messages.error(request, f"Not scored again. {refusal}")
        return _to(query)
    words = [run_word(run) for run in made]
    return _to(query, baseline=words[0], candidate=words[1])


@require_safe
@may_view
def compare_case(request: HttpRequest) -> HttpResponse:
    """Show one case of both runs side by side."""
    query, key = ComparisonQuery.read(request.GET), request.GET.get("case", "")
    repetition = read_integer(request.GET.get("repetition", "")) or 0
    page = case_side_by_side(_run(query.baseline), _run(query.candidate), key, repetition)
    if page is None:
        raise Http404(f"neither run has the case {key!r}")
    context = {"page": page, "back": query.here, "scale": page.candidate.scale}
    return render(request, "compare/case.html", context)


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
