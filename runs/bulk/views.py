"""The pages that ask before something is done with many results or cases at once, and do it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST
from django_htmx.http import HttpResponseClientRedirect

from runs.bulk.forms import (
    ChosenCases,
    CopyForm,
    FileForm,
    ReviewsForm,
    TagsForm,
    chosen_in_run,
    chosen_in_suite,
)
from runs.cases.forms import selected_cases
from runs.exports.views import answer_file
from runs.filters.selection import SelectionForm
from runs.models.runs import Run
from runs.requests import (
    MAY_REVIEW,
    REFUSED,
    MemberRequest,
    get_run_or_404,
    get_suite_or_404,
    may_change_suites,
    may_view,
)
from runs.results.files import results_file, results_table_file

# A form that was confirmed has this field.
SURE = "sure"


@require_POST
@permission_required(MAY_REVIEW, raise_exception=True)
def run_reviews(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Add the chosen results of a run to the review queue after asking."""
    selection = _selection(request, slug, number)
    if not selection.is_valid():
        return _nothing(request, selection)
    form = ReviewsForm(selection, _confirmed(request))
    if form.is_bound and (message := form.save(request.user)):
        messages.success(request, message)
        return _leave(request, selection.back)
    return _ask(request, "bulk/_reviews.html", form, selection, suite=selection.run.suite)


@require_POST
@may_change_suites
def run_tags(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Add tags to the cases of the chosen results, or remove tags, after asking."""
    selection = _selection(request, slug, number)
    if not selection.is_valid():
        return _nothing(request, selection)
    chosen = chosen_in_run(selection)
    form = TagsForm(chosen, _confirmed(request))
    if form.is_bound and (message := form.save(request.user)):
        messages.success(request, message)
        return _leave(request, selection.back)
    return _ask(request, "bulk/_tags.html", form, chosen, suite=chosen.suite)


@require_POST
@may_change_suites
def run_suite(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Create a suite with the cases of the chosen results after asking for its name."""
    selection = _selection(request, slug, number)
    if not selection.is_valid():
        return _nothing(request, selection)
    return _copy(request, chosen_in_run(selection))


@require_POST
@may_change_suites
def case_suite(request: MemberRequest, slug: str) -> HttpResponse:
    """Create a suite with the ticked cases of another after asking for its name."""
    ticked = selected_cases(get_suite_or_404(slug=slug), request.POST)
    if ticked.refusal:
        messages.info(request, ticked.refusal)
        return _leave(request, ticked.query.at(reverse("runs:suite-cases", args=[slug])))
    return _copy(request, chosen_in_suite(ticked))


@require_POST
@may_view
def run_selected_file(request: MemberRequest, slug: str, number: int) -> HttpResponseBase:
    """Send the chosen results of a run as a file."""
    selection, form = _selection(request, slug, number), FileForm(request.POST)
    if not (selection.is_valid() and form.is_valid()):
        return _nothing(request, selection)
    wanted, params = form.cleaned_data["format"], form.params(selection)
    if wanted == "jsonl":
        return answer_file(request, results_file(**params))
    texts = {"texts": True} if wanted == "texts" else {}
    return answer_file(request, results_table_file(**params, **texts))


def _copy(request: MemberRequest, chosen: ChosenCases) -> HttpResponse:
    form = CopyForm(chosen, _confirmed(request))
    if form.is_bound and (suite := form.save(request.user)):
        messages.success(request, f"{suite.title} is created.")
        return _leave(request, reverse("runs:suite", args=[suite.slug]))
    return _ask(request, "bulk/_suite.html", form, chosen, suite=chosen.suite)


def _selection(request: MemberRequest, slug: str, number: int) -> SelectionForm:
    return SelectionForm(get_run_or_404(slug, number), request.POST)


def _confirmed(request: MemberRequest) -> Any:
    return request.POST if SURE in request.POST else None


def _nothing(request: MemberRequest, selection: SelectionForm) -> HttpResponse:
    """Say why there is nothing to do."""
    run: Run = selection.run
    return _show(
        request, {"selection": selection, "suite": run.suite, "back": selection.back}, REFUSED
    )


def _leave(request: MemberRequest, address: str) -> HttpResponse:
    """Lead on from a form that is done with, which htmx may have sent from its dialog."""
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)


def _ask(
    request: MemberRequest,
    part: str,
    form: Any,
    chosen: ChosenCases | SelectionForm,
    **context: Any,
) -> HttpResponse:
    context |= {"part": part, "form": form, "chosen": chosen, "back": chosen.back}
    return _show(request, context, REFUSED if form.errors else 200)


def _show(request: MemberRequest, context: dict[str, Any], status: int) -> HttpResponse:
    """Show the form in a dialog over the present page or as its own page."""
    template = "bulk/_dialog.html" if request.htmx else "bulk/bulk.html"
    return render(request, template, context | {"action": request.path}, status=status)
