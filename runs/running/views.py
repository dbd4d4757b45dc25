"""The pages that start, stop, resume and retry runs."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect

from evaluators.detours import kept_data, leave
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.lists import read_integer
from runs.models.results import Attempt, Result
from runs.models.runs import Run
from runs.requests import (
    REFUSED,
    MemberRequest,
    form_data,
    get_named_run_or_404,
    get_run_or_404,
    get_suite_or_404,
    may_start,
)
from runs.running.attempts import choose_attempt
from runs.running.forms import (
    StartRunForm,
    dropped_rules_text,
    read_address,
    start_address,
    suite_choices,
)
from runs.running.judging_forms import JudgeAgainForm, MeasureJudgeForm
from runs.running.pushing import close_run
from runs.running.retry_forms import AgainForm, ResultRetryForm, RunRetryForm
from runs.running.retrying import stop_run

# Servers accept 64 kB for the address together with cookies and other headers.
MAX_ADDRESS_LENGTH = 30_000
# Every one is planned anew with each change of the form.
MAX_JUDGED_RUNS = 20


@require_safe
@may_start
def run_start_any(request: HttpRequest) -> HttpResponse:
    """Choose the suite to run."""
    return render(request, "running/start_any.html", {"suites": suite_choices()})


@may_start
def run_new(request: MemberRequest, slug: str) -> HttpResponse:
    """Start one run a target, or show the form with its estimate or its errors."""
    suite = get_suite_or_404(slug=slug)
    initial, rules = read_address(suite, request.GET)
    typed = kept_data(request)
    data = form_data(request) if typed is None else typed
    form = StartRunForm(suite, data, initial=initial, rules=rules)
    if away := leave(request, form):
        return away
    is_preview = typed is not None or "preview" in request.POST
    if form.is_valid() and not is_preview:
        try:
            return _started(form.start(started_by=request.user))
        except DomainError as refusal:
            # The suite may have changed since the form was made.
            suite.refresh_from_db()
            form.add_error(None, str(refusal))
    status = REFUSED if form.errors and not is_preview else 200
    context = {
        **_context(request, form),
        "dropped_rules": dropped_rules_text(suite, request.GET),
    }
    return render(request, "running/start.html", context, status=status)


@never_cache
@may_start
def run_estimate(request: MemberRequest, slug: str) -> HttpResponse:
    """Show what the form would start and cost; it is posted when its cases are too many for an address."""
    form = StartRunForm(get_suite_or_404(slug=slug), form_data(request) or request.GET)
    form.is_valid()
    return render(request, "running/_estimate.html", _context(request, form))


@never_cache
@may_start
def run_cases(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the cases that a search finds, ticked ones first."""
    form = StartRunForm(get_suite_or_404(slug=slug), form_data(request) or request.GET)
    return render(request, "running/_start_cases.html", {"suite": form.suite, "form": form})


@require_POST
@may_start
def run_chosen(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Redirect from the ticked rows of a run to the start form with these cases."""
    form = RunRetryForm(get_run_or_404(slug, number), request.POST)
    place = reverse("runs:run", args=[slug, number])
    if not form.is_valid():
        messages.error(request, "Nothing is chosen. Tick at least one row of this run.")
    elif len(asked := start_address(form)) > MAX_ADDRESS_LENGTH:
        messages.error(
            request,
            "These are too many rows to select one by one. Select all that match a filter instead.",
        )
    else:
        place = f"{reverse('runs:run-new', args=[slug])}?{asked}"
    return HttpResponseClientRedirect(place) if request.htmx else redirect(place)


def _context(request: MemberRequest, form: StartRunForm) -> dict[str, Any]:
    estimate = form.estimate()
    return {
        "suite": form.suite,
        "form": form,
        "estimate": estimate,
        "baseline": form.baseline_number,
        "start_problem": form.start_problem(request.user, estimate),
    }


def _started(runs: list[Run]) -> HttpResponse:
    first = runs[0]
    if first.campaign_id is None:
        return redirect("runs:run", first.suite.slug, first.number)
    return redirect("runs:campaign", first.campaign_id)


shows_and_takes = require_http_methods(["GET", "HEAD", "POST"])


@require_POST
@may_start
def run_stop(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Stop a run; what is finished is kept."""
    run = get_run_or_404(slug, number)
    try:
        stop_run(run, stopped_by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect("runs:run", slug, number)


@require_POST
@may_start
def run_close(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """End the waiting for outputs that programs push."""
    try:
        missing = close_run(get_run_or_404(slug, number), by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        never = f" {counted(missing, 'output')} never came." if missing else ""
        messages.info(request, f"The run takes no more outputs.{never}")
    return redirect("runs:run", slug, number)


@shows_and_takes
@may_start
def run_retry(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show what a retry would do, or do it."""
    run = get_run_or_404(slug, number)
    if request.method != "POST":
        return _ask(request, RunRetryForm(run, request.GET))
    form = RunRetryForm(run, request.POST)
    if not (message := form.retry(request.user)):
        return _ask(request, form, status=REFUSED)
    messages.info(request, message)
    return redirect(form.back)


@require_POST
@may_start
def run_retry_ask(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show what a retry of the ticked rows would do; they can be too many for an address."""
    form = RunRetryForm(get_run_or_404(slug, number), request.POST)
    return _ask(request, form, status=200 if form.is_valid() else REFUSED)


@shows_and_takes
@may_start
def result_retry(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Show what a retry of one result would do, or do it: wholly, its scoring, or one evaluator."""
    data = request.POST if request.method == "POST" else request.GET
    try:
        form = ResultRetryForm(get_run_or_404(slug, number), data, key=key, repetition=repetition)
    except Result.DoesNotExist:
        raise Http404(f"Run #{number} has no repetition {repetition} of {key}.") from None
    if request.method != "POST":
        return _ask(request, form)
    if not (message := form.retry(request.user)):
        return _ask(request, form, status=REFUSED)
    messages.info(request, message)
    return redirect("runs:result", slug, number, key, repetition)


@require_POST
@may_start
def result_attempt(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Let an attempt count that a person chose for a reason."""
    run = get_run_or_404(slug, number)
    attempt = get_object_or_404(
        Attempt.objects.select_related("result"),
        pk=read_integer(request.POST.get("attempt", "")) or 0,
        result__run=run,
        result__case__key=key,
        result__repetition=repetition,
    )
    try:
        choose_attempt(attempt, by=request.user, reason=request.POST.get("reason", ""))
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.info(request, "This attempt counts now. The figures of the run follow.")
    return redirect("runs:result", slug, number, key, repetition)


@shows_and_takes
@may_start
def run_judge_again(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show what judging the outputs of a run again would do, or start it.

    Ticked rows come as a form because they can be too many for an address; only the form of the page is sure.
    """
    run = get_run_or_404(slug, number)
    data = request.POST if request.method == "POST" else request.GET or QueryDict("whole=on")
    return _judge_again(request, [run], data)


@shows_and_takes
@may_start
def runs_judge_again(request: MemberRequest) -> HttpResponse:
    """Show what judging the outputs of several runs of one suite again would do, or start it.

    The address names the runs, as the list of runs with its ticks does; the form names the one to leave out.
    """
    data = (form_data(request) or request.GET).copy()
    data["whole"] = "on"
    left_out = data.get("leave_out")
    names = [name for name in dict.fromkeys(data.getlist("run")) if name != left_out]
    runs = [get_named_run_or_404(name) for name in names[: MAX_JUDGED_RUNS + 1]]
    if not 1 <= len(runs) <= MAX_JUDGED_RUNS or len({run.suite_id for run in runs}) > 1:
        messages.error(
            request, f"Tick 1 to {MAX_JUDGED_RUNS} runs of one suite to judge them again."
        )
        return redirect("runs:run-list")
    return _judge_again(request, runs, data)


def _judge_again(request: MemberRequest, runs: list[Run], data: QueryDict) -> HttpResponse:
    form = JudgeAgainForm(runs, data, member=request.user)
    context = {"form": form, "run": runs[0], "suite": runs[0].suite}
    if "estimate" in request.GET:
        return render(request, "running/_judging_estimate.html", context)
    is_preview = request.method != "POST" or bool({"preview", "leave_out"} & data.keys())
    is_sent = "sure" in data and not is_preview
    if is_sent and form.is_valid() and (started := form.start()):
        return _started(started)
    status = REFUSED if request.method == "POST" and form.errors else 200
    return render(request, "running/judge_again.html", context, status=status)


@shows_and_takes
@may_start
def run_measure_judge(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show what measuring the judge of a run would ask and cost, or start it."""
    run = get_run_or_404(slug, number)
    data = request.POST if request.method == "POST" else None
    form = MeasureJudgeForm(run, data, member=request.user)
    context = {"form": form, "run": run, "suite": run.suite}
    if "estimate" in request.GET:
        return render(request, "running/_judging_estimate.html", context)
    is_sent = request.method == "POST" and "preview" not in request.POST
    if is_sent and form.is_valid() and (started := form.start()) is not None:
        return redirect("runs:run", slug, started.number)
    status = REFUSED if request.method == "POST" and form.errors else 200
    return render(request, "running/measure_judge.html", context, status=status)


def _ask(request: MemberRequest, form: AgainForm, *, status: int = 200) -> HttpResponse:
    """Show what a retry would do, in a dialog over the present page or as its own page."""
    template = "running/_retry_again.html" if request.htmx else "running/retry.html"
    context = {"form": form, "plan": form.plan(), "run": form.run}
    context["unscored"] = form.plan_of_unscored()
    context["scripts_problem"] = form.scripts_problem(request.user)
    return render(request, template, context, status=status)
