"""The calls that show the review queue, put results into it and decide on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from django.db import transaction
from django.shortcuts import get_object_or_404
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.scoring.types import Verdict
from runs.api.bodies import Body
from runs.api.params import ListRequest
from runs.api.schema import RESULT, reads, writes
from runs.documents import Document
from runs.engine.review_rules import Consensus
from runs.lists import Key, Keyset
from runs.models.results import Result
from runs.models.reviews import QueueQuery, ReviewItem
from runs.requests import MAY_REVIEW
from runs.results.runs import run_word
from runs.reviews.page import metric_keys
from runs.reviews.services import (
    MAX_NOTE_LENGTH,
    ReviewDecision,
    ReviewRefusedError,
    ask_for_review,
    decide,
)

MOST_DOUBTFUL_FIRST = Keyset(Key("rank", int), Key("distance", float), Key("pk", int))
MARKS = {"met": "1", "missed": "0", None: "-"}


class WaitingDoc(Document):
    """A result that waits for a decision. The machine's verdict is left out, so that none is led by it."""

    result: int
    """The id of the result."""
    run: str
    """Its run: support-agent:12."""
    case: str
    """The key of its case."""
    repetition: int
    """Which repetition it is, from 1."""
    reasons: list[str]
    """Why it waits, the weightiest first."""
    wanted: int
    """How many decisions it needs."""
    assigned_to: str | None
    """The member it is assigned to; null if every reviewer may decide it."""
    waits_since: datetime
    """Since when it has been in the queue."""


class ReviewBody(Body):
    """A person's decision on a result. It replaces the member's earlier one."""

    verdict: Verdict
    """pass, borderline or fail."""
    note: Annotated[str, Field(max_length=MAX_NOTE_LENGTH)] = ""
    """Why."""
    tags: list[str] = []
    """Causes of the failure."""
    outcomes: list[Literal["met", "missed"] | None] = []
    """Whether each expected outcome is met, in their order; null for one that is not marked."""
    metric_labels: dict[str, Annotated[int, Field(ge=0, le=5)]] = {}
    """A label of 0 (critical_fail) to 5 (excellent) by the metric's key."""
    generation: int = 0
    """The generation of the output that was judged, refused if it was replaced since; 0 for the present one."""
    second_opinion: bool = False
    """Whether to decide although others have decided already."""


class ReviewedDoc(Document):
    """Where a result stands in the queue."""

    result: int
    """The id of the result."""
    verdict: str | None
    """The reviewers' verdict; null while more decisions are needed."""
    wanted: int
    """How many decisions it needs."""
    how: str
    """How several decisions came to the verdict; "" where one decided."""


@reads("Results that wait for review", WaitingDoc, lists=QueueQuery, tag="reviews")
def waiting(request: Request) -> Response:
    """List the results that wait for a decision, the most doubtful first."""
    params = ListRequest.read(request, QueueQuery)
    items = params.query.items().filter(closed_at=None)
    related = items.select_related("run__suite", "result__case", "assigned_to")
    return params.page(
        related.defer("run__summary", "run__leaf_scores"), MOST_DOUBTFUL_FIRST, _rows
    )


def _rows(items: Sequence[ReviewItem]) -> list[WaitingDoc]:
    return [
        WaitingDoc(
            result=item.result_id,
            run=run_word(item.run),
            case=item.result.case.key,
            repetition=item.result.repetition,
            reasons=[reason.value for reason in item.why],
            wanted=item.wanted,
            assigned_to=item.assigned_to.get_username() if item.assigned_to else None,
            waits_since=item.created_at,
        )
        for item in items
    ]


@writes(
    "Ask for a review",
    ReviewedDoc,
    permission=MAY_REVIEW,
    path=[RESULT],
    tag="reviews",
)
def ask(request: Request, result: int) -> ReviewedDoc:
    """Put a result into the review queue; one that is there already comes first."""
    member: Any = request.user
    item = ask_for_review(get_object_or_404(Result, pk=result), by=member)
    return ReviewedDoc(result=result, verdict=None, wanted=item.wanted, how="")


@writes(
    "Decide on a result",
    ReviewedDoc,
    body=ReviewBody,
    permission=MAY_REVIEW,
    path=[RESULT],
    tag="reviews",
)
def review(request: Request, body: ReviewBody, result: int) -> ReviewedDoc:
    """Store the member's decision on a result, whether it waits for one or not.

    The verdict of the evaluators stays beside it. 409 where another reviewer has the result open or decided first.
    """
    found = get_object_or_404(Result.objects.select_related("run"), pk=result)
    if unknown := sorted(body.metric_labels.keys() - metric_keys(found)):
        raise ReviewRefusedError(f"The result has no metric {unknown[0]!r}.")
    decided = ReviewDecision(
        body.verdict,
        note=body.note,
        tags=body.tags,
        outcome_marks="".join(MARKS[mark] for mark in body.outcomes),
        metric_labels=body.metric_labels,
        generation=body.generation,
    )
    member: Any = request.user
    with transaction.atomic():
        item = ReviewItem.objects.filter(result=found).first() or ask_for_review(found, by=member)
        consensus: Consensus = decide(
            item, decided, by=member, is_second_opinion=body.second_opinion
        )
    verdict = consensus.verdict.value if consensus.verdict else None
    return ReviewedDoc(result=result, verdict=verdict, wanted=consensus.wanted, how=consensus.how)
