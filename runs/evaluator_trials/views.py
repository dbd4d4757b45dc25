"""The page to try one evaluator of your draft on an output, by a worker or as a dry run."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from evaluators.scoring.types import DomainError
from runs.evaluator_trials.forms import EvaluatorTrialForm
from runs.evaluator_trials.queries import initial_choice, read_trial, try_page
from runs.evaluator_trials.services import find_node, try_evaluator
from runs.models.suites import SuiteDraft
from runs.models.temporary import EvaluatorTrial
from runs.requests import (
    REFUSED,
    RUN_SCRIPTS,
    MemberRequest,
    form_data,
    get_suite_or_404,
    may_change_suites,
)
from runs.running.checks import ScriptsRefusedError
from runs.suites.drafts import get_draft
from runs.suites.edits import UnknownEvaluatorError

MOVED, FORBIDDEN = 302, 403
TRIALS = EvaluatorTrial.objects.select_related("suite", "case", "result__run", "asked_by")


@may_change_suites
@never_cache
def evaluator_try(request: MemberRequest, slug: str, node: str) -> HttpResponse:
    """Show the last try of an evaluator; queue another try or a dry run."""
    draft = get_draft(get_suite_or_404(slug=slug), request.user)
    path, settings = _node(draft, node)
    page = try_page(draft.suite, path, settings, judge=str(draft.content["judge"]))
    last = TRIALS.filter(suite=draft.suite, node=node, asked_by=request.user).first()
    begin = initial_choice(draft.suite, last)
    form = EvaluatorTrialForm(draft.suite, page.runs, form_data(request), initial=begin)
    status = _ask(request, form, draft, node) if form.is_bound else 200
    if status == MOVED:
        return redirect(f"{request.path}#evaluator-trial")
    trial = read_trial(last, settings) if last and not form.is_bound else None
    context = {"suite": draft.suite, "page": page, "form": form}
    context |= {"node": settings, "trial": trial}
    return render(request, "evaluator_trials/try.html", context, status=status)


@may_change_suites
@require_safe
@never_cache
def evaluator_trial(request: MemberRequest, slug: str, node: str, pk: int) -> HttpResponse:
    """Show the state of your try, as a fragment that polls itself until the try is over."""
    own = TRIALS.filter(suite__slug=slug, node=node, asked_by=request.user)
    trial = get_object_or_404(own, pk=pk)
    try:
        _, settings = find_node(get_draft(trial.suite, request.user), node)
    except UnknownEvaluatorError:
        settings = trial.tree
    shown = read_trial(trial, settings)
    return render(request, "evaluator_trials/_trial.html", {"trial": shown})


def _ask(request: MemberRequest, form: EvaluatorTrialForm, draft: SuiteDraft, node: str) -> int:
    """Queue the try or dry run and return the status of the response; the form holds a refusal."""
    if not form.is_valid() or form.chosen is None:
        return REFUSED
    once, is_dry = form.cleaned_data["once"], "dry" in request.POST
    try:
        try_evaluator(draft, node, form.chosen, asked_by=request.user, once=once, is_dry=is_dry)
    except DomainError as refusal:
        form.add_error(None, str(refusal))
        is_forbidden = isinstance(refusal, ScriptsRefusedError) and not request.user.has_perm(
            RUN_SCRIPTS
        )
        return FORBIDDEN if is_forbidden else REFUSED
    return MOVED


def _node(draft: SuiteDraft, node: str) -> tuple[str, dict[str, Any]]:
    try:
        return find_node(draft, node)
    except UnknownEvaluatorError as error:
        raise Http404(str(error)) from error
