"""Judge against people: its page, the matrix and cases alone, and better bands put into the reader's draft."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from evaluators.scoring.types import DomainError
from runs.reports.agreement_page import agreement_page
from runs.reports.agreement_query import AgreementQuery
from runs.reports.suite import suite_head
from runs.services.suggested_bands import take_bands
from runs.views._requests import MemberRequest, may_change_suites, may_view, suite_of


@require_safe
@may_view
def suite_agreement(request: MemberRequest, slug: str) -> HttpResponse:
    """Show how far each judge of a suite agrees with people; to htmx the chosen one's matrix and cases alone."""
    suite = suite_of(slug=slug)
    query = AgreementQuery.read(request.GET.dict())
    context = {"suite": suite, "page": agreement_page(suite, query, request.user)}
    if request.htmx:
        return render(request, "suites/_agreement_judge.html", context)
    context["head"] = suite_head(suite)
    return render(request, "suites/agreement.html", context)


@require_POST
@may_change_suites
def agreement_bands(request: MemberRequest, slug: str) -> HttpResponse:
    """Put suggested bands into the reader's draft and lead to what they would change; nothing else of it moves."""
    suite = suite_of(slug=slug)
    run = request.POST.get("run", "")
    try:
        take_bands(suite, request.POST, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:suite-agreement", slug)
    messages.success(request, "The bands are in your draft. Beside it stands what they change.")
    address = reverse("runs:suite-evaluators", args=[slug])
    return redirect(f"{address}?run={int(run)}" if run.isdecimal() and len(run) < 9 else address)
