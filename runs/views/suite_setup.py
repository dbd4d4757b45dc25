"""Begin a suite, edit what is said of it and its policy, archive it, delete it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from evaluators.scoring.types import DomainError
from runs.forms.suites import NewSuiteForm, SuiteSettingsForm
from runs.reports.draft import draft_panel
from runs.reports.review_entered import entered_by_rule
from runs.reports.suite import suite_head
from runs.services.drafts import draft_for
from runs.services.suites import archive_suite, delete_suite, unarchive_suite
from runs.views._requests import REFUSED, MemberRequest, may_change_suites, posted, suite_of


@may_change_suites
def suite_new(request: MemberRequest) -> HttpResponse:
    """Begin a suite from a profile or empty."""
    form = NewSuiteForm(posted(request))
    if form.is_valid() and (suite := form.create(request.user)):
        messages.success(request, f"{suite.title} is there. It needs cases next.")
        return redirect("runs:suite", suite.slug)
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/new.html", {"form": form}, status=status)


@may_change_suites
def suite_settings(request: MemberRequest, slug: str) -> HttpResponse:
    """Edit in one's draft what is said of a suite and its policy."""
    suite = suite_of(slug=slug)
    draft = draft_for(suite, request.user, request.POST.get("stamp", ""))
    form = SuiteSettingsForm(draft, posted(request))
    form.say_what_entered(entered_by_rule(suite))
    if form.is_valid() and form.keep():
        return redirect("runs:suite-settings", slug)
    context = {"suite": suite, "form": form, "head": suite_head(suite), "draft": draft_panel(draft)}
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/settings.html", context, status=status)


@require_POST
@may_change_suites
def suite_archive(request: MemberRequest, slug: str) -> HttpResponse:
    """Take a suite out of all lists, or with `restore` put it back."""
    suite = suite_of(slug=slug)
    if "restore" in request.POST:
        if unarchive_suite(suite, by=request.user):
            messages.success(request, f"{suite.title} is in the lists again.")
    elif archive_suite(suite, by=request.user):
        messages.success(request, f"{suite.title} is archived. Its runs stay readable.")
    return redirect("runs:suite", slug)


@require_POST
@may_change_suites
def suite_delete(request: MemberRequest, slug: str) -> HttpResponse:
    """Delete a suite that was never run."""
    suite = suite_of(slug=slug)
    try:
        delete_suite(suite, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:suite-settings", slug)
    messages.success(request, f"{suite.title} is deleted.")
    return redirect("home")
