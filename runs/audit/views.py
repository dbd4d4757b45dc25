"""The page of the audit and its download, for members who may change suites."""

from __future__ import annotations

from django.http.response import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from runs.audit import queries
from runs.audit.queries import AuditQuery, audit_page
from runs.exports.views import answer_file
from runs.requests import CHANGE_MEMBERS, MemberRequest, may_see_audit


@require_safe
@may_see_audit
def audit(request: MemberRequest) -> HttpResponse:
    """List every change, newest first."""
    page = audit_page(
        AuditQuery.read(request.GET), with_members=request.user.has_perm(CHANGE_MEMBERS)
    )
    name = "audit/_rows.html" if request.htmx else "audit/audit.html"
    return render(request, name, {"page": page})


@require_safe
@may_see_audit
def audit_file(request: MemberRequest) -> HttpResponseBase:
    """Give every matching change as JSON Lines."""
    query = AuditQuery.read(request.GET).changed().parameters()
    spec = queries.audit_file(query=query, with_members=request.user.has_perm(CHANGE_MEMBERS))
    return answer_file(request, spec)
