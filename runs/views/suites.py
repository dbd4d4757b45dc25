"""The pages of suites and their cases."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from runs.reports import case_page as case_report
from runs.reports import cases, suites
from runs.reports import suite as suite_report
from runs.reports import today as today_report
from runs.reports.suite_rows import latest_rows
from runs.views._requests import may_view, suite_of

CHANGE = "runs.change_suite"


@may_view
@require_safe
def suite_list(request: HttpRequest) -> HttpResponse:
    """Show every suite with its latest completed run."""
    table = suites.suite_table(suites.SuiteFilter.read(request.GET.dict()))
    latest = [row.latest for row in table.every if row.latest]
    today = today_report.today(latest, now=timezone.localtime())
    return render(request, "suites/home.html", {"table": table, "today": today})


@may_view
@require_safe
def suite_rows(request: HttpRequest) -> HttpResponse:
    """Show the rows of the table alone, and put the page's address in its place."""
    table = suites.suite_table(suites.SuiteFilter.read(request.GET.dict()))
    response = render(request, "suites/suite_rows.html", {"table": table})
    response["HX-Replace-Url"] = f"{reverse('home')}{table.here}".rstrip("?")
    return response


@may_view
@require_safe
def today(request: HttpRequest) -> HttpResponse:
    """Show the cells above the table alone."""
    cells = today_report.today(latest_rows(), now=timezone.localtime())
    return render(request, "suites/_today.html", {"today": cells})


@may_view
@require_safe
def suite(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one suite: policy, evaluators and last runs."""
    found = suite_of(slug=slug)
    page = suite_report.suite_page(found)
    words = suite_report.policy_words(page.policy)
    return render(request, "suites/suite.html", {"page": page, "suite": found, "words": words})


@may_view
@require_safe
def suite_cases(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the cases of a suite."""
    found = suite_of(slug=slug)
    asked = cases.CaseFilter.read(request.GET.dict())
    table = cases.case_table(found, asked)
    head = suite_report.suite_head(found)
    context = {"suite": found, "head": head, "table": table, "tags": cases.case_tags(found)}
    context["orders"] = cases.ORDERS
    return render(request, "suites/cases.html", context)


@may_view
@require_safe
def case_rows(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the rows of the cases alone, and put the page's address in its place."""
    found = suite_of(slug=slug)
    table = cases.case_table(found, cases.CaseFilter.read(request.GET.dict()))
    response = render(request, "suites/_case_rows.html", {"suite": found, "table": table})
    if table.asked.after is None:  # rows that are added below leave the address alone
        response["HX-Replace-Url"] = (
            f"{reverse('runs:suite-cases', args=[slug])}{table.here}".rstrip("?")
        )
    return response


@may_view
@require_safe
def case(request: HttpRequest, slug: str, key: str) -> HttpResponse:
    """Show one case in full; `?revision=` shows an earlier one."""
    revision = request.GET.get("revision", "")
    found = get_object_or_404(case_report.case_revisions(slug, key, revision))
    page = case_report.case_page(found)
    done = case_report.done_to(page, request.GET) if request.user.has_perm(CHANGE) else {}
    context = {"page": page, "case": found, "suite": found.suite, "done": done}
    return render(request, "suites/case.html", context)
