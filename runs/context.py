"""Give every page the suites that the rail shows."""

from __future__ import annotations

from django.http import HttpRequest

from runs.reports.pinned import PinnedSuite, pinned_suites


def pinned(request: HttpRequest) -> dict[str, list[PinnedSuite]]:
    """Return `pinned_suites`: those that ran last, for whoever may see runs."""
    user = getattr(request, "user", None)
    may_see = user is not None and user.has_perm("runs.view_run")
    # A fragment has no rail, so it is spared the query.
    is_fragment = request.headers.get("HX-Request") == "true"
    return {"pinned_suites": pinned_suites() if may_see and not is_fragment else []}
