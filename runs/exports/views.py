"""Answering requests for files: small ones at once, large ones by the page of an export; and one's list of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from runs.exports.documents import export_document
from runs.exports.services import TooManyExportsError, drop_request, request_export, restart
from runs.exports.specs import ExportSpec
from runs.models.database import database_now
from runs.models.runs import WorkerProcess
from runs.models.temporary import ExportRequest, ExportState
from runs.requests import STOP_POLLING, MemberRequest, may_view


def answer_file(request: Any, spec: ExportSpec) -> HttpResponseBase:
    """Send a small file; have a worker make a large one, and redirect to its page."""
    if spec.is_small:
        return send_now(spec)
    try:
        export_request = request_export(spec, by=request.user)
    except TooManyExportsError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:exports")
    return redirect("runs:export", export_request.pk)


def send_now(spec: ExportSpec) -> StreamingHttpResponse:
    """Send a file while it is made."""
    headers = {"Content-Disposition": str(content_disposition_header(True, spec.name))}
    return StreamingHttpResponse(spec.parts(), content_type=spec.media_type, headers=headers)


def send_export(export_request: ExportRequest) -> FileResponse:
    """Send the file of an export; raises FileNotFoundError if it is not there yet, or no longer."""
    export = export_request.export
    if export.state != ExportState.READY:
        raise FileNotFoundError(export.name)
    return FileResponse(
        export.path.open("rb"),
        as_attachment=True,
        filename=export.name,
        content_type=export.media_type,
    )


@require_safe
@never_cache
@may_view
def exports(request: MemberRequest) -> HttpResponse:
    """List the exports of a member, newest first."""
    return render(request, "exports/exports.html", _list(request))


@require_safe
@never_cache
@may_view
def export_rows(request: MemberRequest) -> HttpResponse:
    """Return the list again while files are being made."""
    context = _list(request)
    status = 200 if context["is_moving"] else STOP_POLLING
    return render(request, "exports/_export_rows.html", context, status=status)


def _list(request: MemberRequest) -> dict[str, Any]:
    # The parameters may name thousands of cases.
    requests = ExportRequest.objects.select_related("export").defer("export__params")
    own = requests.filter(owner=request.user)
    rows = [export_document(export_request) for export_request in own]
    is_moving = any(row.is_unfinished for row in rows)
    return {"exports": rows, "is_moving": is_moving, **_workers(is_moving=is_moving)}


@require_safe
@never_cache
@may_view
def export(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Show how far an export is, and offer its file."""
    return render(request, "exports/export.html", _state(own_export(request, pk)))


@require_safe
@never_cache
@may_view
def export_state(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Return how far an export is; polling ends with its last state."""
    export_request = (
        ExportRequest.objects.filter(pk=pk, owner=request.user).select_related("export").first()
    )
    if export_request is None:
        # It expired, or its data were removed, while the page was open.
        return render(request, "exports/_export_gone.html", status=STOP_POLLING)
    context = _state(export_request)
    status = 200 if context["is_moving"] else STOP_POLLING
    return render(request, "exports/_export_state.html", context, status=status)


def _state(export_request: ExportRequest) -> dict[str, Any]:
    document = export_document(export_request)
    is_moving = document.is_unfinished
    return {"export": document, "is_moving": is_moving, **_workers(is_moving=is_moving)}


def _workers(*, is_moving: bool) -> dict[str, bool]:
    """Tell whether files that are to be made have a worker that could."""
    alive = WorkerProcess.objects.alive(now=database_now())
    return {"lacks_worker": is_moving and not alive.exists()}


@require_safe
@never_cache
@may_view
def export_file(request: MemberRequest, pk: UUID) -> HttpResponseBase:
    """Send the file of an export; show its page if there is none."""
    export_request = own_export(request, pk)
    if not request.user.has_perms(export_request.export.permissions):
        raise PermissionDenied
    try:
        return send_export(export_request)
    except FileNotFoundError:
        return redirect("runs:export", pk)


@require_POST
@may_view
def export_cancel(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Cancel an export, or delete its file."""
    export_request = own_export(request, pk)
    text = "cancelled" if export_request.export.is_unfinished else "deleted"
    drop_request(export_request)
    messages.info(request, f"The export {export_request.export.name} is {text}.")
    return redirect("runs:exports")


@require_POST
@may_view
def export_retry(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Make a file again that failed or is missing."""
    restart(own_export(request, pk).export)
    return redirect("runs:export", pk)


def own_export(request: Any, pk: UUID) -> ExportRequest:
    """Return an export of the member who asks; raises Http404 for any other."""
    own = ExportRequest.objects.select_related("export")
    return get_object_or_404(own, pk=pk, owner=request.user)
