"""The pages of targets: list them, add and change one, and try one on a case."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST, require_safe

from evaluators.detours import come_back, fill_again, leave, way_back
from evaluators.scoring.types import DomainError
from runs.lists import read_integer
from runs.models.suites import Target
from runs.models.temporary import TargetTrial
from runs.requests import (
    REFUSED,
    MemberRequest,
    form_data,
    form_files,
    may_change_targets,
    may_view,
)
from runs.running.checks import scripts_problem
from runs.target_kinds import UnknownTargetKindError
from runs.targets.forms import TargetForm, target_choices, target_form
from runs.targets.queries import TargetsQuery, target_page, target_table
from runs.targets.trials import (
    TrialForm,
    last_trial,
    saved_settings,
    suggest_cases,
    trial_report,
    try_target,
)


@require_safe
@may_view
def target_list(request: HttpRequest) -> HttpResponse:
    """List the targets with their latest figures on each suite."""
    table = target_table(TargetsQuery.read(request.GET))
    return render(request, "targets/list.html", {"table": table})


@may_change_targets
@sensitive_post_parameters()
def target_new(request: MemberRequest) -> HttpResponse:
    """Add a target of one kind."""
    form = read_form(request)
    if away := leave(request, form):
        return away
    fill_again(request, form)
    saved = _save(request, form)
    if saved:
        for note in form.notes:
            messages.warning(request, str(note))
        messages.success(request, f"{saved.name} added.")
        return come_back(request, saved.pk) or redirect("runs:target", saved.pk)
    return new_page(request, form, TrialForm(), form_trial(request, None))


@require_safe
@may_view
def target(request: MemberRequest, pk: int) -> HttpResponse:
    """Show a target with its settings, its last runs and a form to try it."""
    return show_target(request, _target(pk))


@may_change_targets
@sensitive_post_parameters()
def target_edit(request: MemberRequest, pk: int) -> HttpResponse:
    """Change a target; runs that have started keep the settings they started with."""
    target = _target(pk)
    form = read_form(request, target)
    if away := leave(request, form):
        return away
    fill_again(request, form)
    saved = _save(request, form)
    if saved:
        messages.success(request, f"{saved.name} saved.")
        return redirect("runs:target", saved.pk)
    return change_page(request, form, target, TrialForm(), form_trial(request, target))


def read_form(request: MemberRequest, target: Target | None = None) -> TargetForm:
    """Return the form of a target, or of the kind the address names for a new one; raises Http404."""
    name = target.kind if target else request.GET.get("kind") or target_choices()[0].name
    sent, files = form_data(request), form_files(request)
    try:
        return target_form(name, sent, files, target=target, trial=form_trial(request, target))
    except UnknownTargetKindError as refusal:
        raise Http404(str(refusal)) from None


def form_trial(request: MemberRequest, target: Target | None) -> TargetTrial | None:
    """Return this member's last try of the submitted form, None without one."""
    number = read_integer(request.POST.get("trial", ""))
    if number is None:
        return None
    trials = TargetTrial.objects.select_related("target", "asked_by", "suite")
    own = trials.filter(pk=number, asked_by=request.user)
    return own.filter(target=target).first()


def new_page(
    request: MemberRequest, form: TargetForm, chosen: TrialForm, trial: TargetTrial | None
) -> HttpResponse:
    """Show the form of a new target."""
    context = {"kinds": target_choices(), **_form_context(request, form, chosen, trial)}
    context["way_back"] = way_back(request)
    return render(request, "targets/new.html", context, status=_status(form, chosen))


def change_page(
    request: MemberRequest,
    form: TargetForm,
    target: Target,
    chosen: TrialForm,
    trial: TargetTrial | None,
) -> HttpResponse:
    """Show the form of an existing target."""
    context = {"target": target, **_form_context(request, form, chosen, trial)}
    return render(request, "targets/edit.html", context, status=_status(form, chosen))


def show_target(
    request: MemberRequest, target: Target, chosen: TrialForm | None = None, *, status: int = 200
) -> HttpResponse:
    """Show the page of a target; for members who may change it, with the case of the last try selected."""
    context: dict[str, object] = {"target": target, "page": target_page(target)}
    if request.user.has_perm("runs.change_target"):
        trial = last_trial(target, request.user)
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
        # An answer to earlier settings must not look like an answer to these.
        "shows_trial": trial is not None and not is_refused_try,
        "refusal": scripts_problem((), form.kind, request.user),
    }


def _target(pk: int) -> Target:
    return get_object_or_404(Target.objects.select_related("model"), pk=pk)


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
    """Try a saved target, and show its page, where the answer will appear."""
    target = _target(pk)
    form = TrialForm(request.POST)
    if form.is_valid():
        try:
            try_target(saved_settings(target), form.trial_input, asked_by=request.user)
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            return redirect(f"{reverse('runs:target', args=[pk])}#target-trial")
    return show_target(request, target, form, status=REFUSED)


@may_change_targets
@never_cache
@sensitive_post_parameters()
@require_POST
def target_new_try(request: MemberRequest) -> HttpResponse:
    """Try the settings of a new target before they are saved."""
    form = read_form(request)
    chosen, trial = _try(request, form, None)
    return new_page(request, form, chosen, trial)


@may_change_targets
@never_cache
@sensitive_post_parameters()
@require_POST
def target_edit_try(request: MemberRequest, pk: int) -> HttpResponse:
    """Try changed settings of a target before they are saved."""
    target = _target(pk)
    form = read_form(request, target)
    chosen, trial = _try(request, form, target)
    return change_page(request, form, target, chosen, trial)


@may_change_targets
@require_safe
@never_cache
def target_trial(request: MemberRequest, pk: int) -> HttpResponse:
    """Show the state of a try, as a fragment that polls itself until the try is over."""
    trials = TargetTrial.objects.select_related("target", "asked_by", "suite")
    # It holds settings that may never be saved, and plain headers.
    trial = get_object_or_404(trials, pk=pk, asked_by=request.user)
    return render(request, "targets/_trial.html", {"trial": trial_report(trial)})


@may_change_targets
@require_GET
def target_try_cases(request: HttpRequest) -> HttpResponse:
    """Suggest the cases of a suite whose id or title contains the typed text."""
    suite, text = request.GET.get("try-suite", ""), request.GET.get("try-case", "")
    return render(request, "targets/_try_cases.html", {"cases": suggest_cases(suite, text)})


def _try(
    request: MemberRequest, form: TargetForm, target: Target | None
) -> tuple[TrialForm, TargetTrial | None]:
    """Queue a try of the form's settings; for the button Look again, return the existing try."""
    chosen = TrialForm(request.POST)
    before = form_trial(request, target)
    if not form.kind.can_judge:
        raise Http404("Stored outputs are tried once they are saved.")
    is_tryable = form.is_tryable()
    if "look" in request.POST or not (chosen.is_valid() and is_tryable):
        return chosen, before
    try:
        trial = try_target(form.settings_to_try(), chosen.trial_input, asked_by=request.user)
    except DomainError as refusal:
        chosen.add_error(None, str(refusal))
        return chosen, before
    form.remember_secrets()
    return chosen, trial
