"""The charts of a suite, the pictures of runs and comparisons, and their tables as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from csp.decorators import csp_update
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from runs.charts.drawing import Picture
from runs.charts.heat_map import (
    HeatMap,
    HeatMapQuery,
    compared_heat_map,
    heat_map,
    heat_map_csv,
)
from runs.charts.pictures import COMPARISON_PICTURES, RUN_PICTURES, SUITE_PICTURES
from runs.charts.queries import (
    ChartsQuery,
    breakdown_runs,
    charts_page,
    score_cost_csv,
    trend_csv,
)
from runs.models.judgings import IS_JUDGING
from runs.models.runs import Run
from runs.requests import (
    STOP_POLLING,
    MemberRequest,
    csv_answer,
    follow_address,
    get_named_run_or_404,
    get_run_or_404,
    get_suite_or_404,
    may_view,
)
from runs.results.breakdown import BreakdownQuery, read_breakdown

# Plotly creates an empty style element and fills it by script, which needs the hash of an empty style.
EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"


@require_safe
@may_view
@csp_update({"style-src": [EMPTY_STYLE]})  # type: ignore[arg-type]  # its types know no address with parts
def suite_charts(request: HttpRequest, slug: str) -> HttpResponse:
    """Show score against cost and the trend of a suite's runs."""
    suite = get_suite_or_404(slug=slug)
    page = charts_page(suite, ChartsQuery.read(request.GET))
    # Only where outputs were judged again can a judge have drifted.
    has_judgings = suite.runs.filter(IS_JUDGING).exists()
    context = {"suite": suite, "page": page, "has_judgings": has_judgings}
    return render(request, "charts/charts.html", context)


@require_safe
@may_view
def chart_panels(request: HttpRequest, slug: str) -> HttpResponse:
    """Return only the panels, at the address of the page."""
    suite = get_suite_or_404(slug=slug)
    query = ChartsQuery.read(request.GET)
    context = {"suite": suite, "page": charts_page(suite, query)}
    response = render(request, "charts/_panels.html", context)
    follow_address(request, response, query.at(reverse("runs:suite-charts", args=[slug])))
    return response


@require_safe
@vary_on_headers("HX-Request")
@may_view
def suite_breakdown(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the charted runs by tag or by metadata, beside each other; the page loads it when it is first seen."""
    suite = get_suite_or_404(slug=slug)
    query = ChartsQuery.read(request.GET)
    context = {
        "suite": suite,
        "breakdown": read_breakdown(
            breakdown_runs(suite, query), BreakdownQuery.read(request.GET).by
        ),
        "here": request.path,
        "hidden": query.hidden(),
        "back_url": query.at(reverse("runs:suite-charts", args=[slug])),
    }
    template = "charts/_breakdown.html" if request.htmx else "charts/breakdown.html"
    return render(request, template, context)


@require_safe
@may_view
def score_cost_file(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the table of score and cost as a CSV file."""
    query = ChartsQuery.read(request.GET)
    page = charts_page(get_suite_or_404(slug=slug), query)
    return csv_answer(score_cost_csv(page.score_cost, query.cost), f"{slug}-score-cost.csv")


@require_safe
@may_view
def suite_trend_file(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the table of the trend as a CSV file."""
    page = charts_page(get_suite_or_404(slug=slug), ChartsQuery.read(request.GET))
    return csv_answer(trend_csv(page.runs[::-1]), f"{slug}-trend.csv")


@require_safe
@never_cache
@vary_on_headers("HX-Request")
@may_view
def suite_picture(request: MemberRequest, slug: str, name: str) -> HttpResponse:
    """Return a picture of the runs of a suite."""
    suite = get_suite_or_404(slug=slug)
    context = {
        "file_url": reverse("runs:suite-picture-file", args=[slug, name]),
        "back_url": reverse("runs:suite", args=[slug]),
    }
    return _show(request, _named(SUITE_PICTURES, name)(suite), context)


@require_safe
@may_view
def suite_picture_file(request: HttpRequest, slug: str, name: str) -> HttpResponse:
    """Return the table of a picture of a suite as a CSV file."""
    picture = _named(SUITE_PICTURES, name)(get_suite_or_404(slug=slug))
    return csv_answer(picture.as_csv(), f"{slug}-{name}.csv")


@require_safe
@never_cache
@vary_on_headers("HX-Request")
@may_view
def run_picture(request: MemberRequest, slug: str, number: int, name: str) -> HttpResponse:
    """Return a picture of a run as a part of its page, or as a page of its own."""
    run = get_run_or_404(slug, number)
    picture = _named(RUN_PICTURES, name)(run)
    context = {
        "run": run,
        "file_url": reverse("runs:run-picture-file", args=[slug, number, name]),
        "back_url": reverse("runs:run", args=[slug, number]),
    }
    return _show(request, picture, context, is_over=not run.is_active)


@require_safe
@may_view
def run_picture_file(request: HttpRequest, slug: str, number: int, name: str) -> HttpResponse:
    """Return the table of a picture of a run as a CSV file."""
    picture = _named(RUN_PICTURES, name)(get_run_or_404(slug, number))
    return csv_answer(picture.as_csv(), f"{slug}-{number}-{name}.csv")


@require_safe
@never_cache
@vary_on_headers("HX-Request")
@may_view
def run_heat_map(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Return the heat map of a run, further rows of it, or a page of it on its own."""
    run = get_run_or_404(slug, number)
    shown = heat_map(run, page=HeatMapQuery.read(request.GET).page)
    context = {
        "file_url": reverse("runs:run-heat-map-file", args=[slug, number]),
        "back_url": reverse("runs:run", args=[slug, number]),
    }
    return _show_heat_map(request, shown, run, context, is_over=not run.is_active)


@require_safe
@may_view
def run_heat_map_file(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Return every case of a run with the score of each evaluator as a CSV file."""
    whole = heat_map(get_run_or_404(slug, number), rows=None)
    return csv_answer(heat_map_csv(whole), f"{slug}-{number}-heat-map.csv")


@require_safe
@never_cache
@vary_on_headers("HX-Request")
@may_view
def comparison_heat_map(request: MemberRequest) -> HttpResponse:
    """Return the heat map of two runs side by side, further rows of it, or a page of it on its own."""
    baseline, candidate = _compared(request)
    shown = compared_heat_map(baseline, candidate, page=HeatMapQuery.read(request.GET).page)
    named = f"?{urlencode({name: request.GET[name] for name in ('baseline', 'candidate')})}"
    context = {
        "file_url": reverse("runs:comparison-heat-map-file") + named,
        "back_url": reverse("runs:compare") + named,
    }
    return _show_heat_map(request, shown, candidate, context)


@require_safe
@may_view
def comparison_heat_map_file(request: HttpRequest) -> HttpResponse:
    """Return every case of two runs with the scores of each evaluator as a CSV file."""
    baseline, candidate = _compared(request)
    whole = compared_heat_map(baseline, candidate, rows=None)
    return csv_answer(heat_map_csv(whole), f"{baseline.number}-{candidate.number}-heat-map.csv")


def _show_heat_map(
    request: MemberRequest,
    shown: HeatMap,
    run: Run,
    context: Mapping[str, object],
    *,
    is_over: bool = True,
) -> HttpResponse:
    part = "charts/_heat_rows.html" if shown.first > 1 else "charts/_heat_map.html"
    query = request.GET.copy()
    query["page"] = str(shown.next_page)
    query.pop("live", None)
    is_polling = request.htmx and "live" in request.GET and is_over
    return render(
        request,
        part if request.htmx else "charts/heat_map.html",
        {"map": shown, "run": run, "next_url": f"{request.path}?{query.urlencode()}", **context},
        status=STOP_POLLING if is_polling else 200,
    )


@require_safe
@never_cache
@vary_on_headers("HX-Request")
@may_view
def comparison_picture(request: MemberRequest, name: str) -> HttpResponse:
    """Return a picture of the two runs that the address names."""
    baseline, candidate = _compared(request)
    picture = _named(COMPARISON_PICTURES, name)(baseline, candidate)
    named = f"?{request.GET.urlencode()}"
    context = {
        "run": candidate,
        "file_url": reverse("runs:comparison-picture-file", args=[name]) + named,
        "back_url": reverse("runs:compare") + named,
    }
    return _show(request, picture, context)


@require_safe
@may_view
def comparison_picture_file(request: HttpRequest, name: str) -> HttpResponse:
    """Return the table of a picture of two runs as a CSV file."""
    baseline, candidate = _compared(request)
    picture = _named(COMPARISON_PICTURES, name)(baseline, candidate)
    return csv_answer(picture.as_csv(), f"{baseline.number}-{candidate.number}-{name}.csv")


def _named(pictures: Mapping[str, Callable[..., Picture]], name: str) -> Callable[..., Picture]:
    if name not in pictures:
        raise Http404(f"There is no picture {name!r}; there are {', '.join(pictures)}.")
    return pictures[name]


def _compared(request: HttpRequest) -> tuple[Run, Run]:
    names = (request.GET.get(side, "") for side in ("baseline", "candidate"))
    baseline, candidate = (get_named_run_or_404(name) for name in names)
    return baseline, candidate


def _show(
    request: MemberRequest, picture: Picture, context: Mapping[str, object], *, is_over: bool = True
) -> HttpResponse:
    """Show a picture; once nothing changes any more, the page stops asking for it."""
    template = "charts/_picture.html" if request.htmx else "charts/picture.html"
    is_polling = request.htmx and "live" in request.GET and is_over
    return render(
        request,
        template,
        {"picture": picture, **context},
        status=STOP_POLLING if is_polling else 200,
    )
