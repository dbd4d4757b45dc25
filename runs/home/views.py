"""The home page, the overview of a suite, search, and the sidebar."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs.filters.views import suggestions_response
from runs.home import queries
from runs.home.palette import find_places
from runs.home.queries import SuiteTableQuery, latest_rows, suite_table
from runs.home.search import SearchQuery, search_page
from runs.home.search import search_suggestions as find_suggestions
from runs.home.sidebar import MAX_WATCHED, ended_runs, watched_runs
from runs.home.sidebar import recent_suites as read_recent_suites
from runs.home.suite_page import suite_page
from runs.lists import read_integer
from runs.requests import MemberRequest, follow_address, get_suite_or_404, may_view
from runs.suites.queries import policy_words


@may_view
@require_safe
def suite_list(request: HttpRequest) -> HttpResponse:
    """Show every suite with its latest completed run."""
    table = suite_table(SuiteTableQuery.read(request.GET))
    latest = [row.latest for row in table.every if row.latest]
    dashboard = queries.dashboard(latest, now=timezone.localtime())
    steps = queries.first_steps(table.every)
    context = {"table": table, "dashboard": dashboard, "steps": steps}
    return render(request, "home/home.html", context)


@may_view
@require_safe
def suite_rows(request: HttpRequest) -> HttpResponse:
    """Return only the rows of the table, at the address of the page."""
    table = suite_table(SuiteTableQuery.read(request.GET))
    response = render(request, "home/suite_rows.html", {"table": table})
    follow_address(request, response, reverse("home") + table.query.here)
    return response


@may_view
@require_safe
def dashboard(request: HttpRequest) -> HttpResponse:
    """Return only the cells above the table."""
    cells = queries.dashboard(latest_rows(), now=timezone.localtime())
    return render(request, "home/_dashboard.html", {"dashboard": cells})


@may_view
@require_safe
def suite(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one suite: how its targets do, worst cases, last runs, evaluators and policy."""
    suite = get_suite_or_404(slug=slug)
    page = suite_page(suite)
    words = policy_words(page.policy)
    return render(request, "home/suite.html", {"page": page, "suite": suite, "words": words})


@require_safe
@may_view
def search(request: HttpRequest) -> HttpResponse:
    """Show what matches; open the only exact match at once."""
    page = search_page(SearchQuery.read(request.GET))
    if page.named.only_url:
        return redirect(page.named.only_url)
    return render(request, "home/search.html", {"page": page})


@require_safe
@may_view
def search_suggestions(request: HttpRequest) -> JsonResponse:
    """Return what can be typed at the caret of a search."""
    return suggestions_response(request, find_suggestions(request.GET.get("suite", "")))


@require_safe
@may_view
def palette(request: MemberRequest) -> JsonResponse:
    """Return the suites, runs, cases, targets and views that the command palette offers for what is typed."""
    return JsonResponse({"places": find_places(request.GET.get("q", ""), request.user)})


@require_safe
@never_cache
@may_view
def recent_suites(request: MemberRequest) -> HttpResponse:
    """Return the recent suites, and a notice of each run of the address that the member started and that has ended."""
    known = [
        run for text in request.GET.getlist("run")[:MAX_WATCHED] if (run := read_integer(text))
    ]
    context = {
        "recent_suites": read_recent_suites(),
        "watched_runs": watched_runs(request.user, known) if known else [],
        "ended_runs": ended_runs(request.user, known),
    }
    return render(request, "home/_recent_suites.html", context)
