"""Save a draft as the next version, throw it away, or settle it with what others saved meanwhile."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import Resolver404, resolve, reverse
from django.views.decorators.http import require_POST

from evaluators.scoring.types import DomainError
from runs.forms.conflicts import ConflictForm
from runs.models import SuiteDraft
from runs.reports.suite import suite_head
from runs.services.drafts import discard_draft, draft_of
from runs.services.saving_drafts import DraftConflictError, conflict_of, save_draft
from runs.views._requests import REFUSED, MemberRequest, may_change_suites, posted, suite_of

# Where a draft is edited, to go on there after a deed.
OWN_PAGES = ("runs:suite", "runs:suite-settings", "runs:suite-evaluators", "runs:what-if")


@require_POST
@may_change_suites
def draft_save(request: MemberRequest, slug: str) -> HttpResponse:
    """Make the draft the next version, or say what is in the way; the draft is kept then."""
    draft = draft_of(suite_of(slug=slug), request.user)
    return redirect(saved(request, draft, request.POST.get("stamp", "")))


@require_POST
@may_change_suites
def draft_discard(request: MemberRequest, slug: str) -> HttpResponse:
    """Throw the draft away."""
    try:
        discard_draft(draft_of(suite_of(slug=slug), request.user), request.POST.get("stamp", ""))
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(_back(request, slug, "runs:suite-settings"))
    messages.info(request, "The draft is thrown away. The suite is as it was.")
    return redirect(_back(request, slug, "runs:suite"))


@may_change_suites
def draft_conflict(request: MemberRequest, slug: str) -> HttpResponse:
    """Show a draft beside what others saved since, and bring it up to their version as chosen."""
    suite = suite_of(slug=slug)
    draft = draft_of(suite, request.user)
    conflict = conflict_of(draft)
    if conflict is None:
        return redirect("runs:suite-settings", slug)
    form = ConflictForm(conflict, posted(request))
    if form.is_valid() and form.settle():
        messages.success(
            request, f"Your draft is one of version {suite.version} now. Save it next."
        )
        return redirect("runs:suite-settings", slug)
    context = {"suite": suite, "head": suite_head(suite), "form": form, "conflict": conflict}
    status = REFUSED if form.is_bound else 409
    return render(request, "suites/draft_conflict.html", context, status=status)


def saved(request: MemberRequest, draft: SuiteDraft, stamp: str) -> str:
    """Make a draft the next version; return where to go on, with what was done or what is in the way said there."""
    slug = draft.suite.slug
    try:
        version = save_draft(draft, stamp, note=request.POST.get("note", ""))
    except DraftConflictError:
        return reverse("runs:draft-conflict", args=[slug])
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return _back(request, slug, "runs:suite-settings")
    messages.success(request, f"Saved as {version}: {version.note}")
    return _back(request, slug, "runs:suite")


def _back(request: MemberRequest, slug: str, usual: str) -> str:
    """Return the page of the suite that the form came from, else the usual one of the suite."""
    given = request.POST.get("next", "")
    try:
        match = resolve(given)
    except Resolver404:
        return reverse(usual, args=[slug])
    is_own = match.view_name in OWN_PAGES and match.kwargs == {"slug": slug}
    return given if is_own else reverse(usual, args=[slug])
