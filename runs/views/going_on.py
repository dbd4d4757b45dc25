"""Stop a run, let it go on, and try its results again: pages that ask first, and the deeds."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from evaluators.scoring.types import DomainError
from runs import services
from runs.forms import ResultRetryForm, ResumeForm, RunRetryForm
from runs.forms.retrying import AgainForm
from runs.models import Result
from runs.views._requests import REFUSED, MemberRequest, may_start, run_of
from runs.views.runs import show_run

shows_and_takes = require_http_methods(["GET", "HEAD", "POST"])


@require_POST
@may_start
def run_stop(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Stop a run; what is finished is kept."""
    found = run_of(slug, number)
    try:
        services.stop_run(found, stopped_by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect("runs:run", slug, number)


@require_POST
@may_start
def run_resume(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Go on with what a run that ended early left; a budget that is refused can be put right."""
    found = run_of(slug, number)
    form = ResumeForm(found, request.POST)
    if said := form.resume(request.user):
        messages.info(request, said)
    elif form.has_error("budget"):
        return show_run(request, found, resume=form, status=REFUSED)
    for refusal in form.non_field_errors():
        messages.error(request, str(refusal))
    return redirect("runs:run", slug, number)


@shows_and_takes
@may_start
def run_retry(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Say what a retry would do, and do it."""
    found = run_of(slug, number)
    if request.method != "POST":
        return _ask(request, RunRetryForm(found, request.GET))
    form = RunRetryForm(found, request.POST)
    if not (said := form.retry(request.user)):
        return _ask(request, form, status=REFUSED)
    messages.info(request, said)
    return redirect(form.back)


@require_POST
@may_start
def run_retry_ask(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Say what a retry of the ticked rows would do; they can be too many for an address."""
    form = RunRetryForm(run_of(slug, number), request.POST)
    return _ask(request, form, status=200 if form.is_valid() else REFUSED)


@shows_and_takes
@may_start
def result_retry(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Say what a retry of one result would do, and do it: all of it, its scoring, or one evaluator."""
    asked = request.POST if request.method == "POST" else request.GET
    try:
        form = ResultRetryForm(run_of(slug, number), asked, key=key, repetition=repetition)
    except Result.DoesNotExist:
        raise Http404(f"Run #{number} has no repetition {repetition} of {key}.") from None
    if request.method != "POST":
        return _ask(request, form)
    if not (said := form.retry(request.user)):
        return _ask(request, form, status=REFUSED)
    messages.info(request, said)
    return redirect("runs:result", slug, number, key, repetition)


def _ask(request: MemberRequest, form: AgainForm, *, status: int = 200) -> HttpResponse:
    """Show what a retry would do: in a dialog over the page it was asked on, else as a page."""
    template = "runs/_run_retry.html" if request.htmx else "runs/run_retry.html"
    context = {"form": form, "plan": form.plan(), "run": form.run}
    context["unscored"] = form.plan_of_unscored()
    context["scripts_problem"] = form.scripts_problem(request.user)
    return render(request, template, context, status=status)
