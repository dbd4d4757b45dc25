"""The pages of alignments: start one, watch it, read what it found, and take a candidate into a draft."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError
from runs.lists import read_integer
from runs.models.jobs import ModelJob
from runs.requests import (
    CHANGE_SUITE,
    REFUSED,
    STOP_POLLING,
    MemberRequest,
    form_data,
    get_suite_or_404,
    may_change_suites,
    may_start,
    may_view,
)
from runs.reviews.alignment.forms import AlignForm, ResumeAlignmentForm
from runs.reviews.alignment.page import AlignmentQuery, alignment_page
from runs.reviews.alignment.services import (
    alignments as alignments_of,
)
from runs.reviews.alignment.services import (
    resume_alignment,
    stop_alignment,
    take_candidate,
)
from runs.suites.drafts import get_draft

START = "runs.start_run"
MAX_LISTED = 20


@require_http_methods(["GET", "HEAD", "POST"])
@may_view
@never_cache
def alignments(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the alignments of a suite with the form that starts one, or start it."""
    suite = get_suite_or_404(slug=slug)
    may_align = request.user.has_perm(START)
    if request.method == "POST" and not may_align:
        raise PermissionDenied
    path = request.GET.get("evaluator", "")
    form = AlignForm(suite, form_data(request), member=request.user, path=path)
    context: dict[str, Any] = {"suite": suite, "form": form, "may_align": may_align}
    if "estimate" in request.GET:
        return render(request, "reviews/_alignment_estimate.html", context)
    is_sent = request.method == "POST" and "preview" not in request.POST
    if is_sent and form.is_valid() and (job := form.start()) is not None:
        return redirect("runs:alignment", slug, job.pk)
    context["jobs"] = alignments_of(suite)[:MAX_LISTED]
    status = REFUSED if request.method == "POST" and form.errors else 200
    return render(request, "reviews/alignments.html", context, status=status)


@require_safe
@may_view
@never_cache
@vary_on_headers("HX-Request")
def alignment(request: MemberRequest, slug: str, pk: int) -> HttpResponse:
    """Show one alignment; for htmx only what changes while it is under way, until it is over."""
    job = _job(slug, pk)
    draft = get_draft(job.suite, request.user) if request.user.has_perm(CHANGE_SUITE) else None
    page = alignment_page(job, AlignmentQuery.read(request.GET), draft)
    context = {"suite": job.suite, "page": page}
    if request.htmx:
        status = 200 if job.is_open else STOP_POLLING
        return render(request, "reviews/_alignment.html", context, status=status)
    return render(request, "reviews/alignment.html", context)


@require_POST
@may_start
def alignment_stop(request: MemberRequest, slug: str, pk: int) -> HttpResponse:
    """Stop an alignment."""
    if not stop_alignment(_job(slug, pk), by=request.user):
        messages.info(request, "The alignment has ended already.")
    return redirect("runs:alignment", slug, pk)


@require_POST
@may_start
def alignment_resume(request: MemberRequest, slug: str, pk: int) -> HttpResponse:
    """Continue an alignment that ended early, perhaps with another budget."""
    form = ResumeAlignmentForm(request.POST)
    try:
        if form.is_valid():
            resume_alignment(_job(slug, pk), form.cleaned_data["budget"], by=request.user)
        else:
            messages.error(request, f"Budget: {form.errors['budget'][0]}")
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect("runs:alignment", slug, pk)


@require_POST
@may_change_suites
def alignment_take(request: MemberRequest, slug: str, pk: int) -> HttpResponse:
    """Put a candidate into the reader's draft and open the evaluator there."""
    job, sent = _job(slug, pk), request.POST
    number = read_integer(sent.get("candidate", "")) or 0
    try:
        draft = take_candidate(
            job, number, sent.get("stamp", ""), by=request.user, replaces="replace" in sent
        )
    except DomainError as refusal:
        messages.error(request, str(refusal))
        address = reverse("runs:alignment", args=(slug, pk))
        return redirect(f"{address}?candidate={number}#take")
    messages.success(
        request,
        f"The instructions of candidate {number} are in your draft of v{draft.base_version}.",
    )
    return redirect("runs:suite-evaluators", slug)


def _job(slug: str, pk: int) -> ModelJob:
    return get_object_or_404(alignments_of(get_suite_or_404(slug=slug)), pk=pk)
