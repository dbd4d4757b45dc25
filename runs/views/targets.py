"""The targets: what is under test, added and changed."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from evaluators.scoring.types import DomainError
from runs.forms import TargetForm, target_choices, target_form
from runs.models import Target
from runs.reports.targets import target_list as listing
from runs.reports.targets import target_page
from runs.targets import UnknownTargetKindError
from runs.views._requests import (
    REFUSED,
    MemberRequest,
    may_change_targets,
    may_view,
    posted,
    uploaded,
)


@require_safe
@may_view
def target_list(request: HttpRequest) -> HttpResponse:
    """List the targets."""
    return render(request, "runs/target_list.html", {"targets": listing()})


@may_change_targets
def target_new(request: MemberRequest) -> HttpResponse:
    """Add a target of one kind."""
    kinds = target_choices()
    name = request.GET.get("kind") or kinds[0].name
    try:
        form = target_form(name, posted(request), uploaded(request))
    except UnknownTargetKindError as refusal:
        raise Http404(str(refusal)) from None
    saved = _save(request, form)
    if saved:
        messages.success(request, f"{saved.name} added.")
        return redirect("runs:target", saved.pk)
    context = {"form": form, "kinds": kinds}
    return render(request, "runs/target_new.html", context, status=_status(form))


@require_safe
@may_view
def target(request: MemberRequest, pk: int) -> HttpResponse:
    """Show a target with its settings and its last runs."""
    found = get_object_or_404(Target.objects.select_related("model"), pk=pk)
    return render(request, "runs/target.html", {"target": found, "page": target_page(found)})


@may_change_targets
def target_edit(request: MemberRequest, pk: int) -> HttpResponse:
    """Change a target; runs already started keep what they froze."""
    found = get_object_or_404(Target.objects.select_related("model"), pk=pk)
    form = target_form(found.kind, posted(request), target=found)
    saved = _save(request, form)
    if saved:
        messages.success(request, f"{saved.name} saved.")
        return redirect("runs:target", saved.pk)
    context = {"form": form, "target": found}
    return render(request, "runs/target_edit.html", context, status=_status(form))


def _save(request: MemberRequest, form: TargetForm) -> Target | None:
    if not form.is_valid():
        return None
    try:
        return form.save(saved_by=request.user)
    except DomainError as refusal:
        form.add_error(None, str(refusal))
        return None


def _status(form: TargetForm) -> int:
    return REFUSED if form.is_bound else 200
