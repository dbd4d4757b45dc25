"""What the rail of every page shows of the runs."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs.reports.pinned import pinned_suites
from runs.views._requests import may_view


@require_safe
@never_cache
@may_view
def pinned(request: HttpRequest) -> HttpResponse:
    """Give the suites that ran last again, after the status of a run changed."""
    return render(request, "runs/_pinned.html", {"pinned_suites": pinned_suites()})
