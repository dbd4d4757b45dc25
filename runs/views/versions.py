"""The versions of a suite: listed, read, compared and restored."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from runs.forms.restoring import RestoreForm
from runs.reports.suite import suite_head
from runs.reports.version_comparison import version_comparison, versions_offered
from runs.reports.version_list import version_list
from runs.reports.version_page import version_page
from runs.views._requests import (
    REFUSED,
    MemberRequest,
    may_change_suites,
    may_view,
    posted,
    suite_of,
)

PAIR = 2
LONGEST_NUMBER = 9


@may_view
@require_safe
def version_rows(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the versions of a suite, newest first."""
    suite = suite_of(slug=slug)
    table = version_list(suite, before=_number(request, "before"))
    context = {"suite": suite, "head": suite_head(suite), "table": table}
    return render(request, "suites/versions.html", context)


@may_view
@require_safe
def version(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Show what the suite was at a version."""
    suite = suite_of(slug=slug)
    found = get_object_or_404(suite.versions.select_related("author"), number=number)
    page = version_page(suite, found, first_case=_number(request, "case") or 0)
    context = {"suite": suite, "head": suite_head(suite), "page": page}
    return render(request, "suites/version.html", context)


@may_view
@require_safe
def version_compare(request: HttpRequest, slug: str) -> HttpResponse:
    """Show what differs between two versions; two ticked ones become an address of their own."""
    suite = suite_of(slug=slug)
    if "version" in request.GET:
        return _of_ticked(request, slug)
    newer = _number(request, "to") or suite.version
    older = _number(request, "from") or max(newer - 1, 1)
    sides = [
        get_object_or_404(suite.versions.select_related("author"), number=number)
        for number in (older, newer)
    ]
    found = version_comparison(suite, *sides, first_case=_number(request, "case") or 0)
    context = {"suite": suite, "head": suite_head(suite), "found": found}
    offered = versions_offered(suite)
    return render(request, "suites/version_compare.html", {**context, "offered": offered})


def _number(request: HttpRequest, name: str) -> int | None:
    """Return a number of the address, None where there is none that could be one."""
    text = request.GET.get(name, "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER
    return int(text) if is_number else None


def _of_ticked(request: HttpRequest, slug: str) -> HttpResponse:
    given = request.GET.getlist("version")
    ticked = sorted({int(n) for n in given if n.isascii() and n.isdecimal()})
    if len(ticked) != PAIR:
        messages.warning(request, "Tick two versions to compare them.")
        return redirect("runs:suite-versions", slug)
    address = reverse("runs:version-compare", args=[slug])
    return redirect(f"{address}?from={ticked[0]}&to={ticked[1]}")


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def version_restore(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Say what bringing a version back would change, and do it."""
    suite = suite_of(slug=slug)
    old = get_object_or_404(suite.versions.select_related("author"), number=number)
    form = RestoreForm(suite, posted(request))
    if form.is_bound and (restored := form.restore(number, request.user)):
        messages.success(request, f"{restored} says what v{number} said. {restored.note}.")
        return redirect("runs:suite", slug)
    now = get_object_or_404(suite.versions.select_related("author"), number=suite.version)
    found = version_comparison(suite, now, old)
    context = {"suite": suite, "head": suite_head(suite), "found": found, "form": form}
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/version_restore.html", {**context, "old": old}, status=status)
