"""What the addresses of the API name; raises Http404 or NotFound for what is not there."""

from __future__ import annotations

from django.shortcuts import get_object_or_404
from rest_framework.exceptions import NotFound

from runs.models import Result, Run
from runs.reports.comparison_choice import named
from runs.reports.run_list import LONGEST_NUMBER, listed


def run_named(word: str) -> Run:
    """Return the run of an id, or of suite and number as in `support-agent:12`, with what lists show."""
    place = named(word)
    is_id = word.isdecimal() and len(word) < LONGEST_NUMBER
    runs = listed(Run.objects.all())
    if is_id:
        found = runs.filter(pk=int(word)).first()
    else:
        found = runs.filter(suite__slug=place[0], number=place[1]).first() if place else None
    if found is None:
        # Two runs may be asked for: the answer says which of them is missing.
        raise NotFound(f"There is no run {word!r}. A run is named by its id, or as suite:number.")
    return found


def result_numbered(pk: int) -> Result:
    """Return a result with its case, run and suite."""
    results = Result.objects.select_related("case", "run__suite").defer("run__leaf_scores")
    return get_object_or_404(results, pk=pk)
