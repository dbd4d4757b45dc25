"""The page of the audit and its download, for members who may change suites."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from django.http.response import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from runs.audit.queries import AuditQuery, audit_lines, audit_page
from runs.requests import MemberRequest, may_see_audit

SEES_MEMBERS = "auth.change_user"


@require_safe
@may_see_audit
def audit(request: MemberRequest) -> HttpResponse:
    """List every change, newest first."""
    page = audit_page(
        AuditQuery.read(request.GET), with_members=request.user.has_perm(SEES_MEMBERS)
    )
    name = "audit/_rows.html" if request.htmx else "audit/audit.html"
    return render(request, name, {"page": page})


@require_safe
@may_see_audit
def audit_file(request: MemberRequest) -> StreamingHttpResponse:
    """Give every matching change as JSON Lines."""
    lines = audit_lines(
        AuditQuery.read(request.GET), with_members=request.user.has_perm(SEES_MEMBERS)
    )
    response = StreamingHttpResponse(lines, content_type="application/x-ndjson")
    response["Content-Disposition"] = 'attachment; filename="audit.jsonl"'
    return response
