"""Begin a case, edit it, settle it with somebody else's edit, delete it and bring it back."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from evaluators.scoring.types import DomainError
from runs.forms.case_beginnings import beginning_of
from runs.forms.case_conflict import CaseConflictForm, carried
from runs.forms.case_deeds import asked_revision, result_asked
from runs.forms.case_rows import DEED
from runs.forms.cases import CaseForm
from runs.models import Case
from runs.reports.case_page import case_place, case_revisions, runs_with, saved_by
from runs.reports.suite import suite_head
from runs.services import CaseChangedError, bring_back, remove_case
from runs.services.result_cases import expect_answer, make_case
from runs.views._requests import REFUSED, MemberRequest, may_change_suites, posted, suite_of

CONFLICT = 409


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def case_new(request: MemberRequest, slug: str) -> HttpResponse:
    """Begin a case: empty, as a copy of another one, or of a result."""
    suite = suite_of(slug=slug)
    begun = beginning_of(suite, request.GET.dict())
    form = CaseForm(suite, posted(request), source=begun.source, begun=begun.content)
    if DEED in request.POST:
        return _form(request, form.with_rows(request.POST[DEED]), 200, begun.said)
    case = form.save(request.user) if form.is_valid() else None
    if case is None:
        return _form(request, form, REFUSED if form.is_bound else 200, begun.said)
    messages.success(request, f"{case.key} is in the suite.")
    return redirect("runs:case", slug, case.key)


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def case_edit(request: MemberRequest, slug: str, key: str) -> HttpResponse:
    """Edit a case; what somebody else saved meanwhile is shown beside it."""
    case = get_object_or_404(case_revisions(slug, key, ""))
    form = CaseForm(case.suite, posted(request), case=case, place=case_place(case))
    if DEED in request.POST:
        return _form(request, form.with_rows(request.POST[DEED]), 200)
    try:
        saved = form.save(request.user) if form.is_valid() else None
    except CaseChangedError as changed:
        return _conflict(request, case, changed)
    if saved is None:
        return _form(request, form, REFUSED if form.is_bound else 200)
    messages.success(request, f"{saved.key} is at revision {saved.revision}.")
    return redirect("runs:case", slug, saved.key)


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def case_delete(request: MemberRequest, slug: str, key: str) -> HttpResponse:
    """Say what stays of a case, and take it out of the suite."""
    case = get_object_or_404(case_revisions(slug, key, ""))
    if request.method != "POST":
        context = {"case": case, "suite": case.suite, "head": suite_head(case.suite)}
        context["runs"] = runs_with(case.suite, [key])
        return render(request, "suites/case_delete.html", context)
    try:
        remove_case(case.suite, key, base_revision=asked_revision(request.POST), by=request.user)
    except DomainError as refusal:
        messages.error(request, f"{refusal} Look at it before it is deleted.")
        return redirect("runs:case", slug, key)
    messages.success(request, f"{key} is deleted. Its results stay, and so do its revisions.")
    return redirect("runs:suite-cases", slug)


@require_POST
@may_change_suites
def case_restore(request: MemberRequest, slug: str, key: str) -> HttpResponse:
    """Make an earlier revision the current one again."""
    case = get_object_or_404(case_revisions(slug, key, ""))
    wanted = asked_revision(request.POST, "revision") or 0
    base = asked_revision(request.POST)
    try:
        bring_back(case.suite, key, revision=wanted, base_revision=base, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"{key} is at revision {wanted} again.")
    return redirect("runs:case", slug, key)


@require_POST
@may_change_suites
def result_case(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Make a case of a result."""
    result = result_asked(slug, number, key, repetition)
    if "edit" in request.POST:
        answer = "&answer=1" if "answer" in request.POST else ""
        return redirect(f"{reverse('runs:case-new', args=[slug])}?result={result.pk}{answer}")
    try:
        case = make_case(result, with_answer="answer" in request.POST, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:result", slug, number, key, repetition)
    return redirect(f"{reverse('runs:case', args=[slug, case.key])}?made={case.revision}")


@require_POST
@may_change_suites
def result_expected(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Make a result's answer what its case expects."""
    result = result_asked(slug, number, key, repetition)
    try:
        case, before = expect_answer(result, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:result", slug, number, key, repetition)
    if case.revision == before:
        messages.info(request, f"{case.key} expects this answer already.")
    return redirect(f"{reverse('runs:case', args=[slug, case.key])}?before={before}")


def _form(request: MemberRequest, form: CaseForm, status: int, said: str = "") -> HttpResponse:
    context = {"form": form, "suite": form.suite, "case": form.case, "said": said}
    return render(request, "suites/case_form.html", context, status=status)


def _conflict(request: MemberRequest, case: Case, changed: CaseChangedError) -> HttpResponse:
    form = CaseConflictForm(changed, request.POST)
    if form.is_valid():
        try:
            saved = form.save(case.suite, case.key, request.user)
        except CaseChangedError as again:
            form = CaseConflictForm(again)
        else:
            messages.success(request, f"{saved.key} is at revision {saved.revision}.")
            return redirect("runs:case", case.suite.slug, saved.key)
    context = {"form": form, "suite": case.suite, "case": case, "carried": carried(request.POST)}
    context["by"] = saved_by(changed.theirs) if changed.theirs else ""
    return render(request, "suites/case_conflict.html", context, status=CONFLICT)
