"""The cases of a run that a filter leaves, and the results of theirs that can be tried again."""

from __future__ import annotations

import json

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from runs.models import OPEN_RESULT_STATUSES, Case, Result, Run
from runs.models import ResultStatus as Status
from runs.reports.case_groups import Groups, case_groups
from runs.reports.results_query import ResultsQuery


def matching_groups(run: Run, query: ResultsQuery) -> Groups:
    """Return the groups of the cases whose text and tag match, whatever their state."""
    groups = case_groups(run)
    cases: QuerySet[Case] = Case.objects.all()
    if query.text:
        cases = cases.filter(Q(key__icontains=query.text) | Q(title__icontains=query.text))
    if query.tag:
        cases = with_tag(cases, query.tag)
    return groups.filter(case__in=cases) if query.text or query.tag else groups


def narrowed(groups: Groups, query: ResultsQuery) -> Groups:
    """Return those of the groups that are in the state asked for, and flaky where that is asked for."""
    if query.state:
        groups = groups.filter(state=query.state)
    return groups.filter(is_flaky=True) if query.flaky else groups


def with_tag(cases: QuerySet[Case], tag: str) -> QuerySet[Case]:
    """Return the cases that carry a tag; both databases keep the list as text that can be searched."""
    found = Q()
    for spelling in spellings_of(tag):
        found |= Q(tags_text__contains=spelling)
    return cases.annotate(tags_text=Cast("tags", TextField())).filter(found)


def spellings_of(tag: str) -> set[str]:
    """Return how a list of tags may spell one as JSON."""
    return {json.dumps(tag), json.dumps(tag, ensure_ascii=False)}


def retryable_results(run: Run) -> QuerySet[Result]:
    """Return the results that can be tried again: finished ones, and when the run is over all others too.

    Of a run that was imported none can: there is no target to ask.
    """
    return run.results.exclude(status__in=_out_of_reach(run))


def is_retryable(run: Run, status: str) -> bool:
    """Tell whether a result of that status can be tried again."""
    return status not in _out_of_reach(run)


def matching_results(run: Run, query: ResultsQuery) -> QuerySet[Result]:
    """Return the results that can be tried again of every case the filter leaves, on all its pages."""
    groups = narrowed(matching_groups(run, query), query)
    return retryable_results(run).filter(case__in=groups.values("case_id"))


def _out_of_reach(run: Run) -> tuple[Status, ...]:
    if run.imported_from:
        return tuple(Status)
    return (*OPEN_RESULT_STATUSES, Status.CANCELLED) if run.is_active else OPEN_RESULT_STATUSES
