"""Start a run: choose a suite, fill in the form, see what it will cost."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from evaluators.scoring.types import DomainError
from runs.forms import StartRunForm
from runs.models import Run
from runs.reports.start_choices import suite_choices
from runs.views._requests import REFUSED, MemberRequest, may_start, posted, suite_of

SEVERAL = ("target", "tag")


@require_safe
@may_start
def run_start_any(request: HttpRequest) -> HttpResponse:
    """Choose the suite to run."""
    return render(request, "runs/run_start_any.html", {"suites": suite_choices()})


@may_start
def run_new(request: MemberRequest, slug: str) -> HttpResponse:
    """Start one run a target, or say what is wrong with the form."""
    suite = suite_of(slug=slug)
    form = StartRunForm(suite, posted(request), initial=_asked_for(request))
    if form.is_valid():
        try:
            return _started(form.start(started_by=request.user))
        except DomainError as refusal:
            form.add_error(None, str(refusal))
    status = REFUSED if form.is_bound else 200
    return render(request, "runs/run_new.html", _context(request, form), status=status)


@require_safe
@never_cache
@may_start
def run_estimate(request: MemberRequest, slug: str) -> HttpResponse:
    """Give what the form as it stands would start and cost."""
    form = StartRunForm(suite_of(slug=slug), request.GET)
    form.is_valid()
    return render(request, "runs/_run_estimate.html", _context(request, form))


def _context(request: MemberRequest, form: StartRunForm) -> dict[str, Any]:
    return {
        "suite": form.suite,
        "form": form,
        "estimate": form.estimate(),
        "scripts_problem": form.scripts_problem(request.user),
    }


def _asked_for(request: HttpRequest) -> dict[str, Any]:
    """Return what an address fills the form with; targets and tags can be several."""
    several = {name: request.GET.getlist(name) for name in SEVERAL if name in request.GET}
    return request.GET.dict() | several


def _started(runs: list[Run]) -> HttpResponse:
    first = runs[0]
    if first.campaign_id is None:
        return redirect("runs:run", first.suite.slug, first.number)
    return redirect("runs:campaign", first.campaign_id)
