"""The pages of a comparison: the choice of two runs, both side by side, one case of both, and the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Count, Max, Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError
from runs.compare.breakdown import build_breakdown
from runs.compare.case_page import case_side_by_side
from runs.compare.changes import EVERY, ComparisonQuery, build_changes, listed_around
from runs.compare.comparison import Comparison, SameRunError, build_comparison, comparison_heading
from runs.compare.files import comparison_file
from runs.compare.many import (
    MAX_RUNS,
    MIN_RUNS,
    ManyQuery,
    ManyRuns,
    ManyRunsError,
    RunColumn,
    many_file,
    many_runs,
    run_standing,
    with_hits,
)
from runs.compare.page import comparison_display, comparison_page, tolerances_form
from runs.compare.rules import CaseChange, Tolerances
from runs.engine.plan import MEASURES_JUDGE
from runs.exports.views import answer_file
from runs.filters.queries import FROM_COMPARISON, FROM_LIST, hit_marks
from runs.lists import MAX_TEXT_LENGTH, Control, read_display, read_integer, read_run_name
from runs.models.runs import Run, RunStatus
from runs.models.saved_views import ViewPage
from runs.models.suites import Suite
from runs.requests import (
    LIMITS,
    SHARED,
    MemberRequest,
    PairQuery,
    get_named_run_or_404,
    get_suite_or_404,
    may_change_suites,
    may_start,
    may_view,
)
from runs.results.breakdown import BreakdownQuery
from runs.results.result_state import result_url
from runs.results.runs import RunRow, run_row, run_word, with_list_columns
from runs.saved_views.queries import PlaceQuery, names_nothing, view_state
from runs.what_if.services import score_like, score_like_problem

# In the address of a result, what says that it was opened from a comparison.
IN_LIST = f"{FROM_LIST}={FROM_COMPARISON}"
NOT_TICKED = "Select two runs, or up to six runs of one suite, to compare them."
CHANGES, MANY, CHOICE, BREAKDOWN = "changes", "many", "choice", "breakdown"


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@may_view
def compare(request: MemberRequest) -> HttpResponse:
    """Compare the two runs that the address names; offer a choice where it does not name two."""
    query = ComparisonQuery.read(read_display(request.GET))
    if ticked := request.GET.getlist("run"):
        return _compare_ticked(request, ticked)
    if "choose" in request.GET and "compare" not in request.GET:
        return _show_choice(request, query)
    if query.candidate and not query.baseline:
        usual = usual_baseline(get_named_run_or_404(query.candidate))
        return _redirect(query, baseline=usual) if usual else _show_choice(request, query)
    if not (query.baseline and query.candidate):
        return _show_choice(request, query)
    if "choose" in request.GET and query.baseline != query.candidate:
        return _redirect(query)
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
    place = PlaceQuery(
        **{name: getattr(query, name) for name in PairQuery.params()}, on=ViewPage.COMPARISON
    )
    view = view_state(candidate.suite, place, query.parameters(), request.user)
    if view.default_url and names_nothing(request.GET):
        return HttpResponseRedirect(view.default_url)
    query = replace(query, view=view.word)
    form = tolerances_form(query, candidate)
    comparison = build_comparison(
        baseline, candidate, form.tolerances, only_shared=query.cases == SHARED
    )
    context = {
        "query": query,
        "view": view,
        "scale": candidate.scale,
        "query_all": query.address(show=EVERY, cell="", text=""),
    }
    if request.htmx.target == CHANGES:
        context["changes"] = build_changes(comparison, query)
        # The part has the address of its page: a browser that goes back must not show it as the page.
        headers = {"Cache-Control": "no-store"}
        if "by" in request.GET:
            headers["HX-Push-Url"] = query.at(reverse("runs:compare"))
        return HttpResponse(
            render_to_string("compare/_swaps.html", context, request), headers=headers
        )
    page = comparison_page(comparison, query)
    runs = alternative_runs(query, baseline, candidate)
    context |= {
        "page": page,
        "form": form,
        "rescoring": rescoring_offer(comparison, request.user),
        "sides": zip(page.sides, runs, strict=True),
        "addable": [replace(link, url=_beside(query, link)) for link in runs[0] if not link.is_on]
        if page.is_of_one_suite
        else [],
        "swap_url": query.address(baseline=query.candidate, candidate=query.baseline),
        "query_whole": query.address(cases=""),
        "query_shared": query.address(cases=SHARED),
        "query_usual": query.address(**dict.fromkeys(LIMITS, "")),
    }
    response = render(request, "compare/compare.html", context)
    if page.is_rescoring:
        response["Refresh"] = "3"
    return response


@require_safe
@vary_on_headers("HX-Request")
@may_view
def compare_display(request: MemberRequest) -> HttpResponse:
    """Show how the table of a comparison can be displayed, beside it or as a page."""
    query = ComparisonQuery.read(read_display(request.GET))
    runs = get_named_run_or_404(query.baseline), get_named_run_or_404(query.candidate)
    moved = {name: request.GET.get(name, "") for name in ("up", "down")}
    is_part = bool(request.htmx)
    context = {
        "display": comparison_display(query, *runs, **moved),
        "heading": comparison_heading(*runs),
        "is_part": is_part,
    }
    template = "results/_display.html" if is_part else "compare/display.html"
    return render(request, template, context)


def _show_choice(request: MemberRequest, query: ComparisonQuery, problem: str = "") -> HttpResponse:
    find = request.GET.get("find", "")[:MAX_TEXT_LENGTH].strip().replace("\0", "")
    context = {
        "query": query,
        "find": find,
        "offered": run_choices(find, query.baseline, query.candidate),
        "controls": (Control("find", "Suite or target", find, id="choice-find"),),
    }
    if request.htmx.target == CHOICE:
        part = render_to_string("compare/_choice.html", context, request)
        return HttpResponse(part, headers={"Cache-Control": "no-store"})
    if "compare" in request.GET and not problem:
        problem = "Choose a baseline and a candidate."
    context |= {"problem": problem, "latest": latest_pairs()}
    return render(request, "compare/choice.html", context)


def _compare_ticked(request: HttpRequest, names: list[str]) -> HttpResponse:
    if not MIN_RUNS <= len(set(names)) <= MAX_RUNS:
        messages.error(request, NOT_TICKED)
        return HttpResponseRedirect(reverse("runs:run-list"))
    ordered = baseline_first([get_named_run_or_404(name) for name in set(names)])
    if len(ordered) == MIN_RUNS:
        return _redirect(ComparisonQuery(), baseline=ordered[0], candidate=ordered[1])
    if len({name.rpartition(":")[0] for name in ordered}) > 1:
        messages.error(request, NOT_TICKED)
        return HttpResponseRedirect(reverse("runs:run-list"))
    address = ManyQuery(baseline=ordered[0]).with_runs(ordered)
    return HttpResponseRedirect(reverse("runs:compare-many") + address)


def _redirect(query: ComparisonQuery, **changes: str) -> HttpResponse:
    return HttpResponseRedirect(reverse("runs:compare") + query.address(**changes))


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@may_view
def compare_many(request: MemberRequest) -> HttpResponse:
    """Show two to six runs of a suite side by side, the newest ones of a suite where none are named."""
    query = ManyQuery.read(request.GET)
    names = request.GET.getlist("run")
    if not (names or query.runs) and "suite" in request.GET:
        names = _newest_names(get_suite_or_404(slug=request.GET["suite"]))
    if names:
        return HttpResponseRedirect(reverse("runs:compare-many") + query.with_runs(names))
    if not query.runs:
        return _show_choice(request, ComparisonQuery())
    try:
        page = with_hits(many_runs(query))
    except ManyRunsError as refusal:
        return _show_choice(request, ComparisonQuery(), str(refusal))
    place = PlaceQuery(runs=query.runs, baseline=query.baseline, on=ViewPage.RUNS)
    view = view_state(page.suite, place, query.parameters(), request.user)
    if view.default_url and names_nothing(request.GET):
        return HttpResponseRedirect(view.default_url)
    query = replace(query, view=view.word)
    page = replace(page, query=query)
    context = {"page": page, "query": query, "view": view, "scale": page.columns[0].run.scale}
    if request.htmx.target == MANY:
        part = render_to_string("compare/_many.html", context, request)
        return HttpResponse(part, headers={"Cache-Control": "no-store"})
    columns = page.columns
    context |= {
        "addable": newest_runs(
            columns[0].run,
            [column.run for column in columns],
            lambda name: query.with_runs([*query.names, name]),
        )
        if len(columns) < MAX_RUNS
        else [],
        "links": [column_links(page, column) for column in columns],
        "controls": (query.search_box("text", "Filter cases", id="many-text"),),
    }
    return render(request, "compare/many.html", context)


def _newest_names(suite: Suite) -> list[str]:
    """Return the names of the newest runs of a suite that have results, the oldest first."""
    runs = Run.objects.filter(suite=suite, done_count__gt=0).order_by("-number")
    numbers = runs.values_list("number", flat=True)[:MAX_RUNS]
    return [f"{suite.slug}:{number}" for number in reversed(numbers)]


@require_safe
@may_view
def many_table(request: HttpRequest) -> HttpResponseBase:
    """Return every case that the page of the same address lists, on all its pages, as CSV."""
    query = ManyQuery.read(request.GET)
    if not query.runs:
        raise Http404("no run is named")
    try:
        return answer_file(request, many_file(query=query.changed().parameters()))
    except DomainError:
        return HttpResponseRedirect(reverse("runs:compare-many") + query.address())


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@may_view
def compare_breakdown(request: MemberRequest) -> HttpResponse:
    """Show a comparison by tag or by metadata; the page of the comparison loads it when it is opened."""
    query = ComparisonQuery.read(request.GET)
    baseline, candidate = (
        get_named_run_or_404(query.baseline),
        get_named_run_or_404(query.candidate),
    )
    try:
        if baseline == candidate:
            raise SameRunError
        usual = Tolerances.from_policy(candidate.readable_policy())
        comparison = build_comparison(baseline, candidate, usual)
    except DomainError:
        return _redirect(query)
    breakdown = build_breakdown(comparison, query, BreakdownQuery.read(request.GET).by)
    context = {
        "query": query,
        "breakdown": breakdown,
        "before": baseline,
        "after": candidate,
        "heading": comparison_heading(baseline, candidate),
        "hidden": query.run_fields,
        "here": reverse("runs:compare-breakdown"),
    }
    is_part = request.htmx.target == BREAKDOWN
    name = "compare/_breakdown.html" if is_part else "compare/breakdown.html"
    response = render(request, name, context)
    if is_part:
        response["Cache-Control"] = "no-store"
    return response


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
        messages.error(request, f"The runs were not rescored. {refusal}")
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
    context["marks"] = hit_marks(query.text)
    context["side_by_side"] = f"?{IN_LIST}&{query.here.lstrip('?')}"
    return render(request, "compare/case.html", context)


@require_safe
@may_view
def compare_step(request: HttpRequest) -> HttpResponse:
    """Return the links from a case to those beside it in the list of a comparison.

    They lead to results of the run whose number is `run`, else to the case in both runs side by side.
    """
    query, key = ComparisonQuery.read(request.GET), request.GET.get("case", "")
    baseline, candidate = map(get_named_run_or_404, (query.baseline, query.candidate))
    wanted = read_integer(request.GET.get("run", ""))
    run = {baseline.pk: baseline, candidate.pk: candidate}.get(wanted or 0)
    carried = query.changed(page=query.page).parameters()

    def url(change: CaseChange, repetition: int) -> str:
        side = change.baseline if run == baseline else change.candidate
        if run is None or side is None:
            return f"{reverse('runs:compare-case')}?{urlencode({**carried, 'case': change.case}, safe=':,')}"
        return (
            f"{result_url(run, change.case, repetition)}?{IN_LIST}&{urlencode(carried, safe=':,')}"
        )

    try:
        comparison = build_comparison(
            baseline, candidate, Tolerances(), only_shared=query.cases == SHARED
        )
    except DomainError:
        return HttpResponse()
    is_blind = "blind" in request.GET
    listed = listed_around(comparison, query, key, url, is_blind=is_blind)
    if listed is None:
        return HttpResponse()
    context = {"listed": listed, "is_blind": is_blind}
    return render(request, "results/_result_stepper.html", context)


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


MAX_OFFERED = 50
MAX_LATEST = 8
MAX_ALTERNATIVES = 20


@dataclass(frozen=True, slots=True)
class RunChoice:
    """A run to choose: its name in an address, its row as lists show it, and how it ended."""

    name: str
    row: RunRow
    verdict: str
    word: str


@dataclass(frozen=True, slots=True)
class LatestPair:
    """A suite of which the latest completed run can be compared with its baseline, or the run before."""

    title: str
    text: str
    url: str


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
    return [
        newest_runs(run, [other], partial(_side_address, query, name)) for name, run, other in pairs
    ]


def _beside(query: ComparisonQuery, link: RunLink) -> str:
    """Return the address of both runs side by side with another one of their suite."""
    suite, _, _ = query.baseline.rpartition(":")
    names = query.baseline, query.candidate, f"{suite}:{link.number}"
    pair = {"runs": ",".join(names), "baseline": query.baseline}
    return f"{reverse('runs:compare-many')}?{urlencode(pair, safe=':,')}"


def _side_address(query: ComparisonQuery, side: str, name: str) -> str:
    return query.address(**{side: name})


def newest_runs(run: Run, without: Sequence[Run], address: Callable[[str], str]) -> list[RunLink]:
    """Return the newest runs of the suite of a run without some; `address` links the name of each."""
    runs = Run.objects.filter(suite=run.suite_id, done_count__gt=0)
    columns = ("id", "number", "target_name", "status", "note")
    others = runs.exclude(pk__in=[other.pk for other in without])
    links = []
    for pk, number, target, status, note in others.order_by("-number").values_list(*columns)[
        :MAX_ALTERNATIVES
    ]:
        notes = [target, note] if note else [target]
        if pk == run.suite.baseline_run_id:
            notes.append("baseline")
        if status != RunStatus.COMPLETED:
            notes.append(RunStatus(status).label.lower())
        url = address(f"{run.suite.slug}:{number}")
        links.append(RunLink(number, ", ".join(notes), url, pk == run.pk))
    return links


@dataclass(frozen=True, slots=True)
class ColumnLinks:
    """A column of runs side by side with the addresses of what can be done with it, "" for what cannot."""

    column: RunColumn
    baseline_url: str
    remove_url: str
    compare_url: str


def column_links(page: ManyRuns, column: RunColumn) -> ColumnLinks:
    """Return the addresses that make a run the baseline, take it away, and compare it with the baseline."""
    query, others = page.query, [name for name in page.query.names if name != column.name]
    pair = ComparisonQuery(baseline=page.baseline.name, candidate=column.name)
    return ColumnLinks(
        column=column,
        baseline_url="" if column.is_baseline else query.address(baseline=column.name),
        remove_url=query.with_runs(others) if len(others) >= MIN_RUNS else "",
        compare_url="" if column.is_baseline else reverse("runs:compare") + pair.address(),
    )


def usual_baseline(run: Run) -> str:
    """Return the name of the suite's baseline, else of the completed run before this one, else "".

    For a run that judges stored outputs again it is the run that has them.
    """
    others = Run.objects.filter(suite=run.suite, status=RunStatus.COMPLETED).exclude(
        Q(pk=run.pk) | Q(snapshot__has_key=MEASURES_JUDGE)
    )
    source = others.filter(pk=(run.is_judged_again and run.source_run_id) or 0)
    marked = others.filter(pk=run.suite.baseline_run_id or 0)
    before = others.filter(number__lt=run.number).order_by("-number")
    for runs in (source, marked, before):
        number = runs.values_list("number", flat=True).first()
        if number is not None:
            return f"{run.suite.slug}:{number}"
    return ""


def baseline_first(runs: Sequence[Run]) -> Sequence[str]:
    """Return the names of some runs, first the baseline of its suite, then the oldest."""
    return [
        run_word(run)
        for run in sorted(
            runs, key=lambda run: (run.pk != run.suite.baseline_run_id, run.created_at, run.pk)
        )
    ]


def run_choices(find: str, *names: str) -> list[RunChoice]:
    """Return the newest runs whose suite or target has a text, and those that are named already."""
    is_named = Q(pk__in=[])
    for slug, number in filter(None, map(read_run_name, names)):
        is_named |= Q(suite__slug=slug, number=number)
    runs = with_list_columns(Run.objects.all())
    is_found = Q(suite__title__icontains=find) | Q(suite__slug__icontains=find)
    found = runs.filter(is_found | Q(target_name__icontains=find)) if find else runs
    newest = {run.pk: run for run in found[:MAX_OFFERED]}
    newest |= {run.pk: run for run in runs.filter(is_named)}
    return [_run_choice(newest[key]) for key in sorted(newest, reverse=True)]


def _run_choice(run: Run) -> RunChoice:
    row = run_row(run)
    return RunChoice(run_word(run), row, *run_standing(run, row))


def latest_pairs() -> list[LatestPair]:
    """Return the suites with two completed runs, the one with the newest run first; one query."""
    completed = Run.objects.filter(status=RunStatus.COMPLETED, suite__archived_at=None)
    columns = ("suite__slug", "suite__title", "suite__baseline_run__number")
    suites = (
        completed.order_by()
        .values_list(*columns)
        .annotate(last=Max("number"), newest=Max("pk"), count=Count("pk"))
    )
    pairs = []
    for slug, title, baseline, last, _, _ in suites.filter(count__gt=1).order_by("-newest")[
        :MAX_LATEST
    ]:
        has_baseline = baseline is not None and baseline != last
        text = (
            f"#{last} with the baseline, #{baseline}"
            if has_baseline
            else f"#{last} with the previous run"
        )
        url = reverse("runs:compare") + ComparisonQuery(candidate=f"{slug}:{last}").address()
        pairs.append(LatestPair(title, text, url))
    return pairs


# The differences that one policy for both runs removes.
JUDGING = frozenset(("evaluators", "policy"))
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


def rescoring_offer(comparison: Comparison, reader: User) -> RescoringOffer:
    """Return the policies under which a reader may score both runs, none if both judge alike; no query."""
    if JUDGING.isdisjoint(difference.what for difference in comparison.differences):
        return RescoringOffer()
    baseline, candidate = comparison.baseline.run, comparison.candidate.run
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
