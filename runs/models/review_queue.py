"""A part of the review queue, as its address names it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from runs.models.results import ResultStatus
from runs.models.reviews import ReviewItem, ReviewItemQuerySet

ENDED = (ResultStatus.SCORED, ResultStatus.ERROR)


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """Which items are meant: of a suite by its slug, a run by its id, with a reason, a case's tag, an assignee's id.

    What is empty or 0 leaves all.
    """

    suite: str = ""
    run: int = 0
    reason: str = ""
    tag: str = ""
    assignee: int = 0

    def items(self) -> ReviewItemQuerySet:
        """Return what is meant, decided or not; of results that are being tried again nothing."""
        items = ReviewItem.objects.all().filter(result__status__in=ENDED)
        if self.reason:
            items = items.for_reason(self.reason)
        if self.suite:
            items = items.filter(result__run__suite__slug=self.suite)
        if self.run:
            items = items.filter(result__run=self.run)
        if self.assignee:
            items = items.filter(assigned_to=self.assignee)
        return _with_tag(items, self.tag) if self.tag else items


def _with_tag(items: ReviewItemQuerySet, tag: str) -> ReviewItemQuerySet:
    found = Q()
    for spelling in {json.dumps(tag), json.dumps(tag, ensure_ascii=False)}:
        found |= Q(case_tags__contains=spelling)
    return items.annotate(case_tags=Cast("result__case__tags", TextField())).filter(found)
