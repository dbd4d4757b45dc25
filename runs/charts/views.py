"""The charts of a suite, their panels, and their tables as files."""

from __future__ import annotations

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from runs.charts.queries import ChartsQuery, charts_page, score_cost_csv, trend_csv
from runs.requests import csv_answer, get_suite_or_404, may_view
from runs.suites.queries import suite_head

# Plotly creates an empty style element and fills it by script, which needs the hash of an empty style.
EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"


@require_safe
@may_view
@csp_update({"style-src": [EMPTY_STYLE]})  # type: ignore[arg-type]  # its types know no address with parts
def suite_charts(request: HttpRequest, slug: str) -> HttpResponse:
    """Show score against cost and the trend of a suite's runs."""
    suite = get_suite_or_404(slug=slug)
    page = charts_page(suite, ChartsQuery.read(request.GET))
    context = {"suite": suite, "head": suite_head(suite), "page": page}
    return render(request, "charts/charts.html", context)


@require_safe
@may_view
def chart_panels(request: HttpRequest, slug: str) -> HttpResponse:
    """Return only the panels, and replace the address by that of the page."""
    suite = get_suite_or_404(slug=slug)
    query = ChartsQuery.read(request.GET)
    context = {"suite": suite, "page": charts_page(suite, query)}
    response = render(request, "charts/_panels.html", context)
    response["HX-Replace-Url"] = query.at(reverse("runs:suite-charts", args=[slug]))
    return response


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
