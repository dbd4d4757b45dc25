"""The addresses of the workers page."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs.requests import may_view
from runs.workers.page import workers_page


@require_safe
@never_cache
@may_view
def workers(request: HttpRequest) -> HttpResponse:
    """Show workers, their runs, the queue, models and the last errors."""
    return render(request, "workers/workers.html", _context())


@require_safe
@never_cache
@may_view
def workers_live(request: HttpRequest) -> HttpResponse:
    """Show the same again; an open page polls this."""
    return render(request, "workers/_live.html", _context())


def _context() -> dict[str, Any]:
    return {"page": workers_page(), "scripts_on": settings.SCRIPTS}
