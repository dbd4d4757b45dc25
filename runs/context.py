"""Give every page what the rail shows."""

from __future__ import annotations

from django.http import HttpRequest

from runs.reports.pinned import pinned_suites
from runs.reports.review_queue import waiting_count


def pinned(request: HttpRequest) -> dict[str, object]:
    """Return `pinned_suites`, those that ran last, and `review_waiting`, for whoever may see runs."""
    user = getattr(request, "user", None)
    may_see = user is not None and user.has_perm("runs.view_run")
    # A fragment has no rail, so it is spared the query.
    is_fragment = request.headers.get("HX-Request") == "true"
    if not may_see or is_fragment:
        return {"pinned_suites": []}
    return {"pinned_suites": pinned_suites(), "review_waiting": waiting_count()}
