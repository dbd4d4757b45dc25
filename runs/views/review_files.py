"""People's decisions as files: every one to keep, and those of a file taken in after a preview."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from runs.forms.importing_reviews import ReviewFileForm, StoreReviewsForm
from runs.models import ReviewUpload
from runs.models.review_queue import QueueQuery
from runs.reports.review_import_page import import_page
from runs.reports.review_lines import reviews_csv, reviews_jsonl
from runs.reports.review_query import read_query
from runs.views._requests import (
    REFUSED,
    MemberRequest,
    may_change_suites,
    may_start,
    may_view,
    posted,
    uploaded,
)


@require_safe
@may_view
def review_export(request: HttpRequest) -> StreamingHttpResponse:
    """Give every decision of the part of the queue the address names as JSON Lines."""
    query = read_query(request.GET.dict())
    return _file(reviews_jsonl(query), query, "jsonl", "application/jsonl")


@require_safe
@may_view
def review_export_table(request: HttpRequest) -> StreamingHttpResponse:
    """Give the same as CSV."""
    query = read_query(request.GET.dict())
    return _file(reviews_csv(query), query, "csv", "text/csv")


@may_start
@may_change_suites
def review_import(request: MemberRequest) -> HttpResponse:
    """Choose a file of reviews."""
    form = ReviewFileForm(posted(request), uploaded(request))
    if form.is_valid() and (upload := form.keep(request.user)):
        return redirect("runs:review-upload", upload.pk)
    status = REFUSED if form.is_bound else 200
    return render(request, "review/import.html", {"form": form}, status=status)


@may_start
@may_change_suites
def review_upload(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Show what a file would add, store it, and tell what came of it."""
    upload = get_object_or_404(ReviewUpload, pk=pk, owner=request.user)
    if upload.stored_at is not None:
        return render(request, "review/imported.html", {"upload": upload})
    form = StoreReviewsForm(posted(request))
    if form.is_valid() and form.store(upload, request.user):
        return redirect("runs:review-upload", pk)
    context = {"upload": upload, "form": form, "page": import_page(upload)}
    status = REFUSED if form.is_bound else 200
    return render(request, "review/import_preview.html", context, status=status)


def _file(parts: Iterator[str], query: QueueQuery, ending: str, kind: str) -> StreamingHttpResponse:
    name = f"{query.suite}-reviews" if query.suite.replace("-", "").isalnum() else "reviews"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return StreamingHttpResponse(parts, content_type=f"{kind}; charset=utf-8", headers=headers)
