"""What can be typed next in a filter, and the page that explains filters."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from runs.filters.fields import BUILT_IN, CASE_FIELDS, Vocabulary
from runs.filters.language import MAX_LENGTH
from runs.filters.queries import run_suggestions, run_vocabulary
from runs.filters.suggestions import suggest
from runs.lists import read_integer
from runs.requests import get_named_run_or_404, get_run_or_404, may_view


@require_safe
@may_view
def filter_suggestions(request: HttpRequest, slug: str, number: int) -> JsonResponse:
    """Return what can be typed at the caret of a filter over the cases of a run, or of its comparison."""
    name = request.GET.get("baseline")
    run = get_run_or_404(slug, number)
    runs = [run, get_named_run_or_404(name)] if name else [run]
    vocabulary = run_vocabulary(*runs, compares=bool(name))
    return suggestions_response(request, replace(vocabulary, suggested=run_suggestions(run)))


def suggestions_response(request: HttpRequest, vocabulary: Vocabulary) -> JsonResponse:
    """Return what can be typed at the caret of a filter."""
    text = request.GET.get("q", "")[:MAX_LENGTH]
    caret = read_integer(request.GET.get("caret", ""), maximum=MAX_LENGTH)
    found = suggest(text, len(text) if caret is None else caret, vocabulary)
    offers = [
        {"text": suggestion.text, "help": suggestion.help, "start": suggestion.start}
        for suggestion in found
    ]
    return JsonResponse({"suggestions": offers})


@require_safe
@may_view
def filter_help(request: HttpRequest) -> HttpResponse:
    """Explain the language of filters with every field."""
    return render(request, "filters/help.html", {"fields": BUILT_IN, "case_fields": CASE_FIELDS})
