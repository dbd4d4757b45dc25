"""What the addresses of the API name; raises Http404 for what is not there."""

from __future__ import annotations

from django.http import Http404
from django.shortcuts import get_object_or_404

from runs.models import Result, Run
from runs.reports.comparison_choice import named
from runs.reports.run_list import LONGEST_NUMBER, listed


def run_named(word: str) -> Run:
    """Return the run of an id, or of suite and number as in `support-agent:12`, with what lists show."""
    runs = listed(Run.objects.all())
    if word.isdecimal() and len(word) < LONGEST_NUMBER:
        return get_object_or_404(runs, pk=int(word))
    place = named(word)
    if place is None:
        raise Http404
    return get_object_or_404(runs, suite__slug=place[0], number=place[1])


def result_numbered(pk: int) -> Result:
    """Return a result with its case, run and suite."""
    results = Result.objects.select_related("case", "run__suite").defer("run__leaf_scores")
    return get_object_or_404(results, pk=pk)
