"""The targets: what is under test, added, changed, and tried on a case."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST, require_safe

from evaluators.scoring.types import DomainError
from runs.lists import read_integer
from runs.models.suites import Target
from runs.models.temporary import TargetTrial
from runs.requests import REFUSED, MemberRequest, may_change_targets, may_view, posted, uploaded
from runs.running.checks import scripts_problem
from runs.target_kinds import UnknownTargetKindError
from runs.targets.forms import TargetForm, target_choices, target_form
from runs.targets.queries import target_list as listing
from runs.targets.queries import target_page
from runs.targets.trials import (
    TrialForm,
    last_trial,
    offered_cases,
    saved_settings,
    trial_report,
    try_target,
)


@require_safe
@may_view
def target_list(request: HttpRequest) -> HttpResponse:
    """List the targets."""
    return render(request, "targets/list.html", {"targets": listing()})


@may_change_targets
@sensitive_post_parameters()
def target_new(request: MemberRequest) -> HttpResponse:
    """Add a target of one kind."""
    form = form_of_kind(request)
    saved = _save(request, form)
    if saved:
        messages.success(request, f"{saved.name} added.")
        return redirect("runs:target", saved.pk)
    return new_page(request, form, TrialForm(), trial_of(request, None))


@require_safe
@may_view
def target(request: MemberRequest, pk: int) -> HttpResponse:
    """Show a target with its settings, its last runs and a place to try it."""
    found = get_object_or_404(Target.objects.select_related("model"), pk=pk)
    return show_target(request, found)


@may_change_targets
@sensitive_post_parameters()
def target_edit(request: MemberRequest, pk: int) -> HttpResponse:
    """Change a target; runs already started keep what they froze."""
    found = get_object_or_404(Target.objects.select_related("model"), pk=pk)
    form = form_of_kind(request, found)
    saved = _save(request, form)
    if saved:
        messages.success(request, f"{saved.name} saved.")
        return redirect("runs:target", saved.pk)
    return change_page(request, form, found, TrialForm(), trial_of(request, found))


def form_of_kind(request: MemberRequest, found: Target | None = None) -> TargetForm:
    """Return the form of a target, or of the kind the address names for a new one; raises Http404."""
    name = found.kind if found else request.GET.get("kind") or target_choices()[0].name
    sent, files = posted(request), uploaded(request)
    try:
        return target_form(name, sent, files, target=found, trial=trial_of(request, found))
    except UnknownTargetKindError as refusal:
        raise Http404(str(refusal)) from None


def trial_of(request: MemberRequest, found: Target | None) -> TargetTrial | None:
    """Return the last try of this member with the form that was sent, None without one."""
    number = read_integer(request.POST.get("trial", ""))
    if number is None:
        return None
    trials = TargetTrial.objects.select_related("target", "asked_by", "suite")
    own = trials.filter(pk=number, asked_by=request.user)
    return own.filter(target=found).first()


def new_page(
    request: MemberRequest, form: TargetForm, chosen: TrialForm, trial: TargetTrial | None
) -> HttpResponse:
    """Show the form of a new target."""
    context = {"kinds": target_choices(), **_form_context(request, form, chosen, trial)}
    return render(request, "targets/new.html", context, status=_status(form, chosen))


def change_page(
    request: MemberRequest,
    form: TargetForm,
    found: Target,
    chosen: TrialForm,
    trial: TargetTrial | None,
) -> HttpResponse:
    """Show the form of a target there is."""
    context = {"target": found, **_form_context(request, form, chosen, trial)}
    return render(request, "targets/edit.html", context, status=_status(form, chosen))


def show_target(
    request: MemberRequest, found: Target, chosen: TrialForm | None = None, *, status: int = 200
) -> HttpResponse:
    """Show the page of a target; whoever may change it finds the case of the last try chosen again."""
    context: dict[str, object] = {"target": found, "page": target_page(found)}
    if request.user.has_perm("runs.change_target"):
        trial = last_trial(found, request.user)
        last = {"suite": trial.suite, "case": trial.case} if trial and trial.suite else {}
        context |= {"chosen": chosen or TrialForm(initial=last), "trial": trial}
    else:
        context |= {"chosen": None, "trial": None}
    return render(request, "targets/target.html", context, status=status)


def _form_context(
    request: MemberRequest, form: TargetForm, chosen: TrialForm, trial: TargetTrial | None
) -> dict[str, object]:
    is_refused_try = chosen.is_bound and bool(form.errors or chosen.errors)
    return {
        "form": form,
        "chosen": chosen,
        "trial": trial_report(trial) if trial else None,
        "refused": "Not tried" if chosen.is_bound else "",
        # The answer to earlier settings must not stand below as if it were to these.
        "shows_trial": trial is not None and not is_refused_try,
        "refusal": scripts_problem((), form.kind, request.user),
    }


def _save(request: MemberRequest, form: TargetForm) -> Target | None:
    if not form.is_valid():
        return None
    try:
        return form.save(saved_by=request.user)
    except DomainError as refusal:
        form.add_error(None, str(refusal))
        return None


def _status(form: TargetForm, chosen: TrialForm) -> int:
    if chosen.is_bound:
        return REFUSED if form.errors or chosen.errors else 200
    return REFUSED if form.is_bound else 200


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
    return render(request, "targets/_trial.html", {"trial": trial_report(trial)})


@may_change_targets
@require_GET
def target_try_cases(request: HttpRequest) -> HttpResponse:
    """Offer the cases of a suite whose id or title holds what is typed."""
    suite, words = request.GET.get("try-suite", ""), request.GET.get("try-case", "")
    return render(request, "targets/_try_cases.html", {"cases": offered_cases(suite, words)})


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
