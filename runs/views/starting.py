"""Start a run: choose a suite, fill in the form, see what it will cost."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect

from evaluators.scoring.types import DomainError
from runs.forms import RunRetryForm, StartRunForm
from runs.forms.start_again import chosen_in, filled_from, left_behind
from runs.models import Run
from runs.reports.baseline import baseline_number
from runs.reports.start_choices import suite_choices
from runs.views._requests import REFUSED, MemberRequest, may_start, posted, run_of, suite_of

# Servers take addresses of 64 kB; cookies and other headers stand beside them.
LONGEST_ADDRESS = 30_000


@require_safe
@may_start
def run_start_any(request: HttpRequest) -> HttpResponse:
    """Choose the suite to run."""
    return render(request, "runs/run_start_any.html", {"suites": suite_choices()})


@may_start
def run_new(request: MemberRequest, slug: str) -> HttpResponse:
    """Start one run a target, show what the form would start, or say what is wrong with it."""
    suite = suite_of(slug=slug)
    initial, rules = filled_from(suite, request.GET)
    form = StartRunForm(suite, posted(request), initial=initial, rules=rules)
    is_preview = "preview" in request.POST
    if form.is_valid() and not is_preview:
        try:
            return _started(form.start(started_by=request.user))
        except DomainError as refusal:
            # The suite may be another by now than the one the form was made from.
            suite.refresh_from_db()
            form.add_error(None, str(refusal))
    status = REFUSED if form.errors and not is_preview else 200
    context = {**_context(request, form), "left_behind": left_behind(suite, request.GET)}
    return render(request, "runs/run_new.html", context, status=status)


@never_cache
@may_start
def run_estimate(request: MemberRequest, slug: str) -> HttpResponse:
    """Give what the form as it stands would start and cost; named cases can be too many for an address."""
    form = StartRunForm(suite_of(slug=slug), posted(request) or request.GET)
    form.is_valid()
    return render(request, "runs/_run_estimate.html", _context(request, form))


@never_cache
@may_start
def run_cases(request: MemberRequest, slug: str) -> HttpResponse:
    """Give the cases to pick from that have the text of the search, ticked ones first."""
    form = StartRunForm(suite_of(slug=slug), posted(request) or request.GET)
    return render(request, "runs/_start_cases.html", {"suite": form.suite, "form": form})


@require_POST
@may_start
def run_chosen(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Lead from the ticked rows of a run to the start form with their cases picked."""
    form = RunRetryForm(run_of(slug, number), request.POST)
    place = reverse("runs:run", args=[slug, number])
    if not form.is_valid():
        messages.error(request, "Nothing is chosen. Tick at least one row of this run.")
    elif len(asked := chosen_in(form)) > LONGEST_ADDRESS:
        messages.error(
            request, "These rows are too many to be named. Take all of a filter instead."
        )
    else:
        place = f"{reverse('runs:run-new', args=[slug])}?{asked}"
    return HttpResponseClientRedirect(place) if request.htmx else redirect(place)


def _context(request: MemberRequest, form: StartRunForm) -> dict[str, Any]:
    return {
        "suite": form.suite,
        "form": form,
        "estimate": form.estimate(),
        "baseline": baseline_number(form.suite),
        "scripts_problem": form.scripts_problem(request.user),
    }


def _started(runs: list[Run]) -> HttpResponse:
    first = runs[0]
    if first.campaign_id is None:
        return redirect("runs:run", first.suite.slug, first.number)
    return redirect("runs:campaign", first.campaign_id)
