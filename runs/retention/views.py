"""The pages that delete runs, campaigns and suites, and those of retention and stored data."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.db.models import Count, Sum
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.text import capfirst
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from evaluators.templatetags.figures import counted
from runs.models.database import database_now
from runs.models.removals import Removal, RemovalPart
from runs.models.runs import Campaign
from runs.models.suites import Target
from runs.requests import (
    REFUSED,
    STOP_POLLING,
    MemberRequest,
    form_data,
    get_run_or_404,
    get_suite_or_404,
    may_change_suites,
    may_change_targets,
    may_delete,
)
from runs.retention.forms import DeletionForm, RetentionForm
from runs.retention.queries import (
    Selection,
    StoredLength,
    find_holds,
    find_readers,
    retention_preview,
    run_url,
    select_runs,
    site_rule,
    stored_data,
)
from runs.retention.services import DataHeldError, delete_recorded_outputs, retry_removal

MAY_CHANGE_SITE = "auth.change_user"


@may_delete
def run_delete(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Name what a run has stored, and delete all of it or its outputs."""
    run = get_run_or_404(slug, number)
    selection = Selection(RemovalPart.RUN, run.suite, select_runs(run.suite, pk=run.pk))
    done = f"{reverse('runs:run-list')}?suite={slug}"
    return _deletion(request, selection, title=f"run {run}", back=run_url(run), done=done)


@may_delete
def campaign_delete(request: MemberRequest, pk: int) -> HttpResponse:
    """Name what the runs of a campaign have stored, and delete all of it or their outputs."""
    campaign = get_object_or_404(Campaign.objects.select_related("suite"), pk=pk)
    runs = select_runs(campaign.suite, campaign=campaign)
    selection = Selection(RemovalPart.RUN, campaign.suite, runs, campaign)
    title = f"campaign {campaign.name or campaign.pk}"
    back = reverse("runs:campaign", args=(pk,))
    done = f"{reverse('runs:campaign-list')}?suite={campaign.suite.slug}"
    return _deletion(request, selection, title=title, back=back, done=done)


@may_change_suites
@may_delete
def suite_delete(request: MemberRequest, slug: str) -> HttpResponse:
    """Name what a suite has stored, and delete it with all its runs."""
    suite = get_suite_or_404(slug=slug)
    selection = Selection(RemovalPart.RUN, suite, select_runs(suite), is_whole_suite=True)
    back = reverse("runs:suite-settings", args=(slug,))
    return _deletion(request, selection, title=suite.title, back=back, done=reverse("home"))


@may_change_targets
@may_delete
def target_outputs_delete(request: MemberRequest, pk: int) -> HttpResponse:
    """Name the outputs that a target replays, and delete them."""
    target = get_object_or_404(Target, pk=pk)
    holds = find_readers(target)
    if request.method == "POST":
        try:
            count = delete_recorded_outputs(target, by=request.user)
        except DataHeldError as refusal:
            holds = refusal.holds
        else:
            messages.success(request, f"{counted(count, 'recorded output')} deleted.")
            return redirect("runs:target", pk)
    stored = target.recorded_outputs.order_by().aggregate(
        count=Count("pk"), bytes=Sum(StoredLength("output"), default=0)
    )
    context = {"target": target, "stored": stored, "holds": holds}
    status = REFUSED if request.method == "POST" else 200
    return render(request, "retention/delete_outputs.html", context, status=status)


def _deletion(
    request: MemberRequest, selection: Selection, *, title: str, back: str, done: str
) -> HttpResponse:
    """Show what would go and what keeps it, or begin to delete it."""
    holds = find_holds(
        selection.runs,
        selection.part,
        now=database_now(),
        is_whole_suite=selection.is_whole_suite,
    )
    form = DeletionForm(selection, holds, form_data(request))
    if form.is_valid() and (removal := form.delete(request.user)):
        if removal.part == RemovalPart.RUN:
            messages.success(request, f"{capfirst(title)} is deleted.")
            return redirect(done)
        messages.success(request, f"The outputs of {title} are being removed.")
        return redirect(back)
    context: dict[str, Any] = {
        "form": form,
        "selection": selection,
        "stored": stored_data(selection.runs),
        "cases": selection.suite.cases.filter(is_current=True).count(),
        "title": title,
        "back": back,
    }
    status = REFUSED if form.is_bound else 200
    return render(request, "retention/delete.html", context, status=status)


@require_safe
@may_delete
def retention(request: MemberRequest) -> HttpResponse:
    """Show what is being removed, and what the rules would remove now."""
    return _retention_page(request, RetentionForm(None))


@require_POST
@permission_required(MAY_CHANGE_SITE, raise_exception=True)
def retention_rule(request: MemberRequest) -> HttpResponse:
    """Change the rule of the site."""
    form = RetentionForm(None, request.POST)
    if not form.is_valid():
        return _retention_page(request, form)
    form.save(request.user)
    messages.success(request, "The rule of the site is stored.")
    return redirect("runs:retention")


def _retention_page(request: MemberRequest, form: RetentionForm) -> HttpResponse:
    context = {
        **_removals(request),
        "form": form,
        "preview": retention_preview(now=database_now()),
    }
    status = REFUSED if form.is_bound else 200
    return render(request, "retention/retention.html", context, status=status)


@may_change_suites
@may_delete
def suite_retention(request: MemberRequest, slug: str) -> HttpResponse:
    """Show what a suite stores and what its rule would remove now, and change the rule."""
    suite = get_suite_or_404(slug=slug)
    form = RetentionForm(suite, form_data(request))
    if form.is_valid():
        form.save(request.user)
        messages.success(request, f"The rule of {suite.title} is stored.")
        return redirect("runs:suite-retention", slug)
    context = {
        "suite": suite,
        "form": form,
        "site": site_rule(),
        "stored": stored_data(select_runs(suite)),
        "preview": retention_preview(now=database_now(), suite=suite),
    }
    status = REFUSED if form.is_bound else 200
    return render(request, "retention/suite.html", context, status=status)


@require_safe
@never_cache
@may_change_suites
def suite_disk_use(request: MemberRequest, slug: str) -> HttpResponse:
    """Return how much the runs of a suite store, for its settings page."""
    suite = get_suite_or_404(slug=slug)
    context = {"suite": suite, "stored": stored_data(select_runs(suite))}
    return render(request, "retention/_disk_use.html", context)


@require_safe
@never_cache
@may_delete
def removals(request: MemberRequest) -> HttpResponse:
    """Return what is being removed now; polling ends when the last removal is done or has failed."""
    context = _removals(request)
    status = 200 if context["is_removing"] else STOP_POLLING
    return render(request, "retention/_removals.html", context, status=status)


@require_POST
@permission_required(MAY_CHANGE_SITE, raise_exception=True)
def removal_retry(request: MemberRequest, pk: int) -> HttpResponse:
    """Try a removal again that has failed."""
    removal = Removal.objects.filter(pk=pk).first()
    if removal is not None and retry_removal(removal, by=request.user):
        messages.success(request, f"{removal.name} is being removed again.")
    else:
        messages.error(request, "This removal has not failed, or was tried again meanwhile.")
    return redirect("runs:retention")


def _removals(request: MemberRequest) -> dict[str, Any]:
    rows = list(Removal.objects.all())
    return {
        "removals": rows,
        "is_removing": any(row.failed_at is None for row in rows),
        "may_change": request.user.has_perm(MAY_CHANGE_SITE),
    }
