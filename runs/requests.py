"""What the pages share: who asks, what may be done, and the suite or run an address names."""

from __future__ import annotations

from functools import partial

from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.utils.datastructures import MultiValueDict
from django_htmx.middleware import HtmxDetails

from runs.models.runs import Run
from runs.models.suites import Suite

may_view = permission_required("runs.view_run", raise_exception=True)
may_start = permission_required("runs.start_run", raise_exception=True)
may_change_suites = permission_required("runs.change_suite", raise_exception=True)
may_see_audit = permission_required("evaluators.view_auditentry", raise_exception=True)
may_share = permission_required("runs.share", raise_exception=True)
may_change_targets = permission_required("runs.change_target", raise_exception=True)
STOP_POLLING = 286
REFUSED = 422


class MemberRequest(HttpRequest):
    """A request of somebody who is logged in."""

    user: User
    htmx: HtmxDetails


def posted(request: HttpRequest) -> QueryDict | None:
    """Return the fields of a form that was sent, empty ones too; None when nothing was sent."""
    return request.POST if request.method == "POST" else None


def uploaded(request: HttpRequest) -> MultiValueDict[str, UploadedFile[bytes]] | None:
    """Return the files of a form that was sent; None when nothing was sent."""
    return request.FILES if request.method == "POST" else None


suite_of = partial(get_object_or_404, Suite.objects.select_related("judge"))


def run_of(slug: str, number: int) -> Run:
    """Return the run an address names; raises Http404."""
    runs = Run.objects.select_related("suite", "created_by", "target").defer("leaf_scores")
    return get_object_or_404(runs, suite__slug=slug, number=number)


def csv_answer(text: str, name: str) -> HttpResponse:
    """Give a CSV file to be kept under a name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)


MAY_REVIEW = "runs.review_result"
