"""The pages that belong to no app: health and the errors."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from evalsite.access.members import admin_names
from evalsite.access.roles import role_of
from evalsite.health import OK, health


@require_safe
@never_cache
@login_not_required
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when database, broker and a worker are there, 503 with the parts otherwise."""
    parts = health()
    is_well = all(state == OK for state in parts.values())
    status = {"status": OK if is_well else "unavailable", **parts}
    return JsonResponse(status, status=200 if is_well else 503)


@login_not_required
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Say that a form was refused because its page was too old or another site sent it."""
    return render(request, "403_csrf.html", status=403)


@login_not_required
def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Say which role one has and who can give another."""
    user = request.user
    role = role_of(user) if isinstance(user, User) else None
    return render(request, "403.html", {"role": role, "admins": admin_names()}, status=403)
