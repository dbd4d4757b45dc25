"""Bring cases in from a table: upload it, say what its columns are, store what was read."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from runs.forms.case_tables import CaseColumnsForm, CaseFileForm, NewSuiteFromTableForm
from runs.models import CaseUpload
from runs.reports.case_table_page import rejected_file, stored_page
from runs.reports.suite import suite_head
from runs.services.case_tables import UploadedTable
from runs.views._requests import (
    REFUSED,
    MemberRequest,
    may_change_suites,
    posted,
    suite_of,
    uploaded,
)


@may_change_suites
def case_import(request: MemberRequest, slug: str) -> HttpResponse:
    """Choose a table of cases for a suite."""
    suite = suite_of(slug=slug)
    form = CaseFileForm(posted(request), uploaded(request))
    if form.is_valid() and (upload := form.keep(request.user, suite=suite)):
        return redirect("runs:case-table", upload.pk)
    context = {"suite": suite, "form": form, "head": suite_head(suite)}
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/case_import.html", context, status=status)


@may_change_suites
def suite_new_from_table(request: MemberRequest) -> HttpResponse:
    """Begin a suite with the cases of a table."""
    form = NewSuiteFromTableForm(posted(request), uploaded(request))
    if form.is_valid() and (upload := form.keep_begun(request.user)):
        return redirect("runs:case-table", upload.pk)
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/new_from_table.html", {"form": form}, status=status)


@may_change_suites
def case_table(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Show what is made of the table, or what came of it once it is stored."""
    upload = _own(request, pk)
    if upload.stored_at is not None:
        return render(request, "suites/case_table_stored.html", stored_page(upload))
    form = CaseColumnsForm(UploadedTable(upload), posted(request))
    if form.keep() and not request.htmx:
        return redirect("runs:case-table", pk)
    context = form.page(request.GET.get("page", ""))
    if request.htmx:
        return render(request, "suites/_case_table_read.html", context | {"is_alone": True})
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/case_table.html", context, status=status)


@may_change_suites
def case_table_store(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Store the cases of the table; a second time it only shows what came of them."""
    upload = _own(request, pk)
    if request.method != "POST" or upload.stored_at is not None:
        # The address of a refused form, opened again, is the preview's.
        return redirect("runs:case-table", pk)
    form = CaseColumnsForm(UploadedTable(upload), request.POST)
    if form.store(request.user):
        return redirect("runs:case-table", pk)
    context = form.page()
    return render(request, "suites/case_table.html", context, status=REFUSED)


@require_safe
@may_change_suites
def case_table_rejected(request: MemberRequest, pk: UUID) -> StreamingHttpResponse:
    """Give the rejected rows as a CSV, each with its line and reason."""
    upload = _own(request, pk)
    if upload.stored_at is not None:
        raise Http404("The file was forgotten when its cases were stored.")
    name = f"{upload.name.rsplit('.', 1)[0]}-rejected.csv"
    headers = {"Content-Disposition": str(content_disposition_header(True, name))}
    return StreamingHttpResponse(
        rejected_file(upload), content_type="text/csv; charset=utf-8", headers=headers
    )


def _own(request: MemberRequest, pk: UUID) -> CaseUpload:
    """Return an upload of the member who asks; that of another is not there."""
    uploads = CaseUpload.objects.select_related("suite")
    return get_object_or_404(uploads, pk=pk, owner=request.user)
