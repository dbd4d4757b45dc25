"""Try a target on a case: from its page with what is saved, from its form with what is not."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST, require_safe

from evaluators.scoring.types import DomainError
from runs.forms import TargetForm, TrialForm
from runs.models import Target, TargetTrial
from runs.reports.target_trials import offered_cases, trial_report
from runs.services import saved_settings, try_target
from runs.views._requests import REFUSED, MemberRequest, may_change_targets
from runs.views.targets import (
    change_page,
    form_of_kind,
    new_page,
    show_target,
    trial_of,
)


@may_change_targets
@require_POST
def target_try(request: MemberRequest, pk: int) -> HttpResponse:
    """Try a target as it is saved, and show its page where the answer will stand."""
    found = get_object_or_404(Target.objects.select_related("model"), pk=pk)
    form = TrialForm(request.POST)
    if form.is_valid():
        try:
            try_target(saved_settings(found), form.question, asked_by=request.user)
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            return redirect(f"{reverse('runs:target', args=[pk])}#target-trial")
    return show_target(request, found, form, status=REFUSED)


@may_change_targets
@never_cache
@sensitive_post_parameters()
@require_POST
def target_new_try(request: MemberRequest) -> HttpResponse:
    """Try settings that are not saved as a target yet."""
    form = form_of_kind(request)
    chosen, trial = _try(request, form, None)
    return new_page(request, form, chosen, trial)


@may_change_targets
@never_cache
@sensitive_post_parameters()
@require_POST
def target_edit_try(request: MemberRequest, pk: int) -> HttpResponse:
    """Try settings of a target before they are saved."""
    found = get_object_or_404(Target.objects.select_related("model"), pk=pk)
    form = form_of_kind(request, found)
    chosen, trial = _try(request, form, found)
    return change_page(request, form, found, chosen, trial)


@may_change_targets
@require_safe
@never_cache
def target_trial(request: MemberRequest, pk: int) -> HttpResponse:
    """Show how far a try is, as the fragment that polls itself until it is done."""
    trials = TargetTrial.objects.select_related("target", "asked_by", "suite")
    trial = get_object_or_404(trials, pk=pk)
    return render(request, "runs/_target_trial.html", {"trial": trial_report(trial)})


@may_change_targets
@require_GET
def target_try_cases(request: HttpRequest) -> HttpResponse:
    """Offer the cases of a suite whose id or title holds what is typed."""
    suite, words = request.GET.get("try-suite", ""), request.GET.get("try-case", "")
    return render(request, "runs/_target_try_cases.html", {"cases": offered_cases(suite, words)})


def _try(
    request: MemberRequest, form: TargetForm, found: Target | None
) -> tuple[TrialForm, TargetTrial | None]:
    """Queue a try of the form's settings; asked only to look again, return the try there is."""
    chosen = TrialForm(request.POST)
    before = trial_of(request, found)
    if form.kind.replays:
        raise Http404("Recorded outputs are tried once they are saved.")
    is_tryable = form.is_tryable()
    if "look" in request.POST or not (chosen.is_valid() and is_tryable):
        return chosen, before
    try:
        trial = try_target(form.tried(), chosen.question, asked_by=request.user)
    except DomainError as refusal:
        chosen.add_error(None, str(refusal))
        return chosen, before
    form.remember_secrets()
    return chosen, trial
