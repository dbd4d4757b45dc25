"""Mark the run that later ones of a suite are held against."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from evaluators.scoring.types import DomainError
from runs.services.baselines import drop_baseline, make_baseline
from runs.views._requests import MemberRequest, may_change_suites, run_of


@require_POST
@may_change_suites
def run_baseline(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Make a run its suite's baseline, or with `drop` take the mark from it."""
    found = run_of(slug, number)
    try:
        if "drop" in request.POST:
            if drop_baseline(found, by=request.user):
                messages.info(request, f"{found.suite.title} has no baseline now.")
        else:
            make_baseline(found, by=request.user)
            messages.info(request, f"Run {found} is the baseline of {found.suite.title} now.")
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect("runs:run", slug, number)
