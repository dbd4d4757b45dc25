"""Find suites, cases and runs by a few words."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from runs.reports.search import search as find
from runs.views._requests import may_view


@require_safe
@may_view
def search(request: HttpRequest) -> HttpResponse:
    """Show what matches; a single exact hit opens at once."""
    found = find(request.GET.get("q", ""))
    if found.only_url:
        return redirect(found.only_url)
    return render(request, "runs/search.html", {"found": found})
