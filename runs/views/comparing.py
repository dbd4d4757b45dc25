"""Two runs side by side, and the choice of them."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError
from runs.comparison import Tolerances
from runs.forms.tolerances import TolerancesForm
from runs.models import Run
from runs.plan import read_plan
from runs.reports.case_side_by_side import case_side_by_side
from runs.reports.comparison import compared
from runs.reports.comparison_changes import changes_of
from runs.reports.comparison_choice import (
    in_order,
    named,
    runs_beside,
    runs_offered,
    usual_baseline,
)
from runs.reports.comparison_page import comparison_page
from runs.reports.comparison_query import EVERY, SHARED, ComparisonQuery, run_word
from runs.reports.comparison_rescoring import rescoring_of
from runs.services.scoring_alike import score_alike
from runs.views._requests import (
    MemberRequest,
    may_change_suites,
    may_start,
    may_view,
    run_of,
)

TWO = "Tick two runs to compare them."
LONGEST_REPETITION = 6
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
            render_to_string("runs/_compare_swaps.html", context, request), headers=headers
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
        "query_usual": query.address(limits=()),
    }
    response = render(request, "runs/compare.html", context)
    if page.is_rescoring:
        response["Refresh"] = "3"
    return response


def _choice(request: HttpRequest, query: ComparisonQuery, problem: str = "") -> HttpResponse:
    context = {
        "query": query,
        "offered": runs_offered(query.baseline, query.candidate),
        "problem": problem,
    }
    return render(request, "runs/compare_choice.html", context)


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
    asked = request.GET.get("repetition", "")
    repetition = int(asked) if asked.isdecimal() and len(asked) < LONGEST_REPETITION else 0
    page = case_side_by_side(_run(query.baseline), _run(query.candidate), key, repetition)
    if page is None:
        raise Http404(f"neither run has the case {key!r}")
    context = {"page": page, "back": query.address(page=query.page), "scale": page.candidate.scale}
    return render(request, "runs/compare_case.html", context)
