"""The pages of a comparison: the choice of two runs, both side by side, one case of both, and the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
)
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError
from runs.compare.case_page import case_side_by_side
from runs.compare.comparison import SameRunError, build_comparison
from runs.compare.files import comparison_file
from runs.compare.page import (
    EVERY,
    LIMITS,
    SHARED,
    ComparisonQuery,
    build_changes,
    comparison_page,
    tolerances_form,
)
from runs.exports.views import answer_file
from runs.lists import read_integer, read_run_name
from runs.models.runs import Run, RunStatus
from runs.requests import (
    MemberRequest,
    get_named_run_or_404,
    may_change_suites,
    may_start,
    may_view,
)
from runs.results.runs import run_word
from runs.what_if.services import has_same_rules, score_like, score_like_problem

NOT_TWO_TICKED = "Tick two runs to compare them."
CHANGES = "changes"


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@may_view
def compare(request: MemberRequest) -> HttpResponse:
    """Compare the two runs that the address names; offer a choice where it does not name two."""
    query = ComparisonQuery.read(request.GET)
    if ticked := request.GET.getlist("run"):
        return _compare_ticked(request, ticked)
    if "choose" in request.GET:
        return _show_choice(request, query)
    if query.candidate and not query.baseline:
        usual = usual_baseline(get_named_run_or_404(query.candidate))
        return _redirect(query, baseline=usual) if usual else _show_choice(request, query)
    if not (query.baseline and query.candidate):
        return _show_choice(request, query)
    baseline, candidate = (
        get_named_run_or_404(query.baseline),
        get_named_run_or_404(query.candidate),
    )
    try:
        if baseline == candidate:
            raise SameRunError
        return _show_comparison(request, query, baseline, candidate)
    except DomainError as refusal:
        return _show_choice(request, query, str(refusal))


def _show_comparison(
    request: MemberRequest, query: ComparisonQuery, baseline: Run, candidate: Run
) -> HttpResponse:
    form = tolerances_form(query, candidate)
    comparison = build_comparison(
        baseline, candidate, form.tolerances, only_shared=query.cases == SHARED
    )
    context = {
        "query": query,
        "scale": candidate.scale,
        "query_all": query.address(show=EVERY, cell="", text=""),
    }
    if request.htmx.target == CHANGES:
        context["changes"] = build_changes(comparison, query)
        # The part has the address of its page: a browser that goes back must not show it as the page.
        headers = {"Cache-Control": "no-store"}
        return HttpResponse(
            render_to_string("compare/_swaps.html", context, request), headers=headers
        )
    page = comparison_page(comparison, query)
    context |= {
        "page": page,
        "form": form,
        "rescoring": rescoring_offer(baseline, candidate, request.user),
        "alternatives": alternative_runs(query, baseline, candidate),
        "swap_url": query.address(baseline=query.candidate, candidate=query.baseline),
        "query_whole": query.address(cases=""),
        "query_shared": query.address(cases=SHARED),
        "query_usual": query.address(**dict.fromkeys(LIMITS, "")),
    }
    response = render(request, "compare/compare.html", context)
    if page.is_rescoring:
        response["Refresh"] = "3"
    return response


def _show_choice(request: HttpRequest, query: ComparisonQuery, problem: str = "") -> HttpResponse:
    context = {
        "query": query,
        "offered": run_choices(query.baseline, query.candidate),
        "problem": problem,
    }
    return render(request, "compare/choice.html", context)


def _compare_ticked(request: HttpRequest, names: list[str]) -> HttpResponse:
    if len(set(names)) != 2:
        messages.error(request, NOT_TWO_TICKED)
        return HttpResponseRedirect(reverse("runs:run-list"))
    baseline, candidate = baseline_first([get_named_run_or_404(name) for name in set(names)])
    return _redirect(ComparisonQuery(), baseline=baseline, candidate=candidate)


def _redirect(query: ComparisonQuery, **changes: str) -> HttpResponse:
    return HttpResponseRedirect(reverse("runs:compare") + query.address(**changes))


@require_POST
@may_start
@may_change_suites
def compare_score(request: MemberRequest) -> HttpResponse:
    """Score both runs under the rules of one of them, and compare the results."""
    query = ComparisonQuery.read(request.POST)
    baseline, candidate = (
        get_named_run_or_404(query.baseline),
        get_named_run_or_404(query.candidate),
    )
    like = baseline if request.POST.get("like") == "baseline" else candidate
    try:
        rescored = [score_like(run, like, by=request.user) for run in (baseline, candidate)]
    except DomainError as refusal:
        messages.error(request, f"Not scored again. {refusal}")
        return _redirect(query)
    names = [run_word(run) for run in rescored]
    return _redirect(query, baseline=names[0], candidate=names[1])


@require_safe
@may_view
def compare_case(request: HttpRequest) -> HttpResponse:
    """Show one case of both runs side by side."""
    query, key = ComparisonQuery.read(request.GET), request.GET.get("case", "")
    repetition = read_integer(request.GET.get("repetition", "")) or 0
    page = case_side_by_side(
        get_named_run_or_404(query.baseline), get_named_run_or_404(query.candidate), key, repetition
    )
    if page is None:
        raise Http404(f"neither run has the case {key!r}")
    context = {"page": page, "back": query.here, "scale": page.candidate.scale}
    return render(request, "compare/case.html", context)


@require_safe
@may_view
def comparison_table(request: HttpRequest) -> HttpResponseBase:
    """Return every case that the page of the same address lists, on all its pages, as CSV."""
    return _file(request, "csv")


@require_safe
@may_view
def comparison_lines(request: HttpRequest) -> HttpResponseBase:
    """Return every figure of the page of the same address, then its cases, as JSON Lines."""
    return _file(request, "jsonl")


def _file(request: HttpRequest, form: str) -> HttpResponseBase:
    """Send the file; redirect to the page where there is nothing to compare, for it says why."""
    query = ComparisonQuery.read(request.GET)
    try:
        return answer_file(request, comparison_file(query=query.changed().parameters(), form=form))
    except DomainError:
        return _redirect(query)


MAX_OFFERED = 200
MAX_ALTERNATIVES = 20


@dataclass(frozen=True, slots=True)
class RunChoice:
    """A run to choose: its name in an address, and its description for readers."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RunLink:
    """A run that can take the place of one side, with the address of that comparison."""

    number: int
    text: str
    url: str
    is_on: bool


def alternative_runs(query: ComparisonQuery, *sides: Run) -> list[list[RunLink]]:
    """Return for each side the newest runs of its suite without the run of the other side; a query a side."""
    names = "baseline", "candidate"
    pairs = zip(names, sides, reversed(sides), strict=True)
    return [_alternatives(query, name, run, other) for name, run, other in pairs]


def _alternatives(query: ComparisonQuery, name: str, run: Run, other: Run) -> list[RunLink]:
    runs = Run.objects.filter(suite=run.suite_id, done_count__gt=0).exclude(pk=other.pk)
    columns = ("id", "number", "target_name", "status", "note")
    newest = runs.order_by("-number").values_list(*columns)[:MAX_ALTERNATIVES]
    links = []
    for pk, number, target, status, note in newest:
        notes = [target, note] if note else [target]
        if pk == run.suite.baseline_run_id:
            notes.append("baseline")
        if status != RunStatus.COMPLETED:
            notes.append(RunStatus(status).label.lower())
        url = query.address(**{name: f"{run.suite.slug}:{number}"})
        links.append(RunLink(number, ", ".join(notes), url, pk == run.pk))
    return links


def usual_baseline(run: Run) -> str:
    """Return the name of the suite's baseline, else of the completed run before this one, else ""."""
    others = Run.objects.filter(suite=run.suite, status=RunStatus.COMPLETED).exclude(pk=run.pk)
    marked = others.filter(pk=run.suite.baseline_run_id or 0)
    before = others.filter(number__lt=run.number).order_by("-number")
    for runs in (marked, before):
        number = runs.values_list("number", flat=True).first()
        if number is not None:
            return f"{run.suite.slug}:{number}"
    return ""


def baseline_first(runs: Sequence[Run]) -> tuple[str, str]:
    """Return the names of two runs, first the baseline of its suite, else the older run."""
    first, second = sorted(runs, key=lambda run: (run.created_at, run.pk))
    if second.pk == second.suite.baseline_run_id and first.pk != first.suite.baseline_run_id:
        first, second = second, first
    return run_word(first), run_word(second)


def run_choices(*names: str) -> list[RunChoice]:
    """Return the newest runs, and those that are named already; two queries."""
    light = Run.objects.select_related("suite").only(
        *("number", "target_name", "status", "note", "suite__slug", "suite__title"),
        "suite__baseline_run",
    )
    is_named = Q(pk__in=[])
    for slug, number in filter(None, map(read_run_name, names)):
        is_named |= Q(suite__slug=slug, number=number)
    runs = {run.pk: run for run in light.order_by("-pk")[:MAX_OFFERED]}
    runs |= {run.pk: run for run in light.filter(is_named)}
    return [_run_choice(runs[key]) for key in sorted(runs, reverse=True)]


def _run_choice(run: Run) -> RunChoice:
    notes = [run.target_name]
    if run.pk == run.suite.baseline_run_id:
        notes.append("baseline")
    if run.status != RunStatus.COMPLETED:
        notes.append(RunStatus(run.status).label.lower())
    return RunChoice(run_word(run), f"{run.suite.title} #{run.number}, {', '.join(notes)}")


RESCORING_RIGHTS = ("runs.start_run", "runs.change_suite")
NOT_ALLOWED = "Editors and admins can score both under one policy."


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy under which both runs can be scored: `like` names the side that has it."""

    like: str
    label: str


@dataclass(frozen=True, slots=True)
class RescoringOffer:
    """The policies to choose from, or the reason why there are none; both empty where the rules are the same."""

    choices: Sequence[PolicyChoice] = ()
    reason: str = ""


def rescoring_offer(baseline: Run, candidate: Run, reader: User) -> RescoringOffer:
    """Return the policies under which a reader may score both runs; no query."""
    if has_same_rules(baseline, candidate):
        return RescoringOffer()
    if reason := score_like_problem(baseline, candidate) or score_like_problem(candidate, baseline):
        return RescoringOffer(reason=reason)
    if not reader.has_perms(RESCORING_RIGHTS):
        return RescoringOffer(reason=NOT_ALLOWED)
    return RescoringOffer(
        [
            PolicyChoice(
                side, f"Score both under the policy of #{run.number}, v{run.suite_version}"
            )
            for side, run in (("candidate", candidate), ("baseline", baseline))
        ]
    )
