"""The pages that ask a model for drafted cases, show how far it is, and keep what a person wants of them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from evaluators.detours import fill_again, leave
from evaluators.scoring.types import DomainError
from runs.drafting.forms import DraftCasesForm, keep
from runs.drafting.preview import FIELDS, Proposal
from runs.drafting.services import RESULTS, discard_drafts, stop_drafting, store_drafted
from runs.filters.selection import SelectionForm
from runs.models.jobs import ModelJob
from runs.models.results import ANSWERED, CallPurpose
from runs.requests import (
    REFUSED,
    STOP_POLLING,
    MemberRequest,
    form_data,
    form_files,
    get_run_or_404,
    get_suite_or_404,
    may_change_suites,
)

MAX_ADDRESS_LENGTH = 30_000


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def case_drafting(request: MemberRequest, slug: str) -> HttpResponse:
    """Show what drafting cases would ask and cost, or have a model draft them."""
    suite = get_suite_or_404(slug=slug)
    form = DraftCasesForm(
        suite, form_data(request), form_files(request), asked=request.GET, member=request.user
    )
    if away := leave(request, form):
        return away
    fill_again(request, form)
    context: dict[str, Any] = {"suite": suite, "form": form}
    if "estimate" in request.GET:
        return render(request, "drafting/_estimate.html", context)
    is_sent = request.method == "POST" and "preview" not in request.POST
    if is_sent and form.is_valid() and (job := form.start()) is not None:
        return redirect("runs:case-proposal", job.pk)
    context["jobs"] = _jobs(request).filter(suite=suite).exclude(request={})[:10]
    status = REFUSED if request.method == "POST" and form.errors else 200
    return render(request, "drafting/form.html", context, status=status)


@require_POST
@may_change_suites
def run_draft_cases(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Lead from chosen results of a run to the form that drafts cases from them."""
    run = get_run_or_404(slug, number)
    selection = SelectionForm(run, request.POST)
    if not selection.is_valid():
        messages.error(request, "Nothing is chosen. Tick at least one row of this run.")
        return redirect("runs:run", slug, number)
    asked: dict[str, Any] = {"source": RESULTS, "run": number}
    if selection.cleaned_data["everything"]:
        asked["list"] = urlencode(selection.query.only_filters.parameters()) or "q="
    else:
        asked["case"] = selection.cleaned_data["case"]
    query = urlencode(asked, doseq=True)
    if len(query) > MAX_ADDRESS_LENGTH:
        messages.error(
            request,
            "These are too many rows to select one by one. Select all that match a filter instead.",
        )
        return redirect("runs:run", slug, number)
    return redirect(f"{reverse('runs:case-drafting', args=[slug])}?{query}")


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@may_change_suites
def case_proposal(request: MemberRequest, pk: int) -> HttpResponse:
    """Show how far a drafting is, and its cases; keep what was changed in them."""
    proposal = _own(request, pk)
    if request.method == "POST":
        keep(proposal, request.POST)
        return redirect("runs:case-proposal", pk)
    return _show(request, proposal)


@require_safe
@never_cache
@may_change_suites
def case_proposal_state(request: MemberRequest, pk: int) -> HttpResponse:
    """Return how far a drafting is; when it has ended, the browser loads its page."""
    proposal = _own(request, pk)
    response = render(request, "drafting/_state.html", _state(proposal))
    if not proposal.job.is_open:
        response.status_code = STOP_POLLING
        response["HX-Refresh"] = "true"
    return response


@require_POST
@may_change_suites
def case_proposal_store(request: MemberRequest, pk: int) -> HttpResponse:
    """Store the ticked cases; a second request only shows the result."""
    proposal = _own(request, pk)
    if proposal.job.is_open:
        return redirect("runs:case-proposal", pk)
    proposal = keep(proposal, request.POST)
    try:
        store_drafted(proposal.job, seen=request.POST.get("seen", ""), by=request.user)
    except DomainError as refusal:
        return _show(request, _own(request, pk), str(refusal))
    return redirect("runs:case-proposal", pk)


@require_POST
@may_change_suites
def case_proposal_stop(request: MemberRequest, pk: int) -> HttpResponse:
    """End a drafting; the cases that are there stay."""
    proposal = _own(request, pk)
    if not stop_drafting(proposal.job, by=request.user):
        messages.info(request, "The drafting has ended already.")
    return redirect("runs:case-proposal", pk)


@require_POST
@may_change_suites
def case_proposal_discard(request: MemberRequest, pk: int) -> HttpResponse:
    """Remove drafted cases that nobody wants."""
    proposal = _own(request, pk)
    discard_drafts(proposal.job, by=request.user)
    messages.success(
        request, "The drafted cases are deleted. Cases that were stored stay in the suite."
    )
    return redirect("runs:case-drafting", proposal.suite.slug)


def _jobs(request: MemberRequest) -> Any:
    return ModelJob.objects.filter(purpose=CallPurpose.DRAFTING, asked_by=request.user)


def _own(request: MemberRequest, pk: int) -> Proposal:
    """Return drafted cases of this member; raises Http404 for any other."""
    job = get_object_or_404(_jobs(request).select_related("suite", "model"), pk=pk)
    if job.suite.is_deleted:
        raise Http404("The suite was deleted.")
    return Proposal(job)


def _state(proposal: Proposal) -> dict[str, Any]:
    job = proposal.job
    answered = job.calls.filter(status__in=ANSWERED).order_by()
    return {
        "job": job,
        "suite": proposal.suite,
        "proposal": proposal,
        "spent_usd": job.spent_usd(),
        "done": answered.values("generation").distinct().count(),
        "lacks_worker": job.lacks_worker(),
    }


def _show(request: MemberRequest, proposal: Proposal, refusal: str = "") -> HttpResponse:
    context = _state(proposal) | {
        "refusal": refusal,
        "fields": [(name, label, name in proposal.fields) for name, label in FIELDS.items()],
        "seen": proposal.suite.version_stamp,
    }
    return render(request, "drafting/proposal.html", context, status=REFUSED if refusal else 200)
