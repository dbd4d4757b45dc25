"""Every decision on the executions of a part of the queue, as files of reviews tell it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from django.db.models import QuerySet

from runs.formats.reviews import COLUMNS, MARK_WORDS, ReviewLine, review_cells, review_json
from runs.formats.tables import csv_parts
from runs.models.reviews import QueueQuery, Review

CHUNK = 500


def reviews_jsonl(query: QueueQuery) -> Iterator[str]:
    """Yield the file as JSON Lines."""
    return map(review_json, review_lines(query))


def reviews_csv(query: QueueQuery) -> Iterator[str]:
    """Yield the file as a table; numbers are exact, lists have semicolons between."""
    return csv_parts(COLUMNS, map(review_cells, review_lines(query)), digits=None)


def review_lines(query: QueueQuery) -> Iterator[ReviewLine]:
    """Yield the decisions in the order they were made, withdrawn and stale ones too.

    Those on executions that are copies of others or are tried again are found where only suite and run are asked
    for: what asks more of the queue finds only what is in it. One query finds all, one more reads each 500.
    """
    ids = list(_asked(query).values_list("pk", flat=True))
    for start in range(0, len(ids), CHUNK):
        batch = ids[start : start + CHUNK]
        rows = Review.objects.filter(pk__in=batch).order_by("created_at", "id")
        related = ("result__run__suite", "result__case", "result__output", "result__review_item")
        heavy = ("result__run__snapshot", "result__run__summary", "result__run__leaf_scores")
        found = rows.select_related("reviewer", *related).defer(
            *heavy, "result__output__trace", "result__output__messages", "result__output__decision"
        )
        yield from map(_line, found)


def _asked(query: QueueQuery) -> QuerySet[Review]:
    reviews = Review.objects.order_by("created_at", "id")
    if query.reason or query.tag or query.assignee:
        return reviews.filter(result__in=query.items().values("result"))
    if query.suite:
        reviews = reviews.filter(result__run__suite__slug=query.suite)
    return reviews.filter(result__run=query.run) if query.run else reviews


def output_digest(text: str) -> str:
    """Return the SHA-256 of an output's text, by which a review knows what it judged."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _line(review: Review) -> ReviewLine:
    result = review.result
    output, item = getattr(result, "output", None), getattr(result, "review_item", None)
    # The text of an output that was replaced is not known by now.
    digest = output_digest(output.text) if output and review.stale_at is None else ""
    return ReviewLine(
        suite=result.run.suite.slug,
        run=result.run.number,
        case=result.case.key,
        reviewer=review.reviewer_word,
        verdict=review.verdict,
        repetition=result.repetition,
        outcomes=tuple(MARK_WORDS[mark] for mark in review.outcome_marks),
        metric_labels=review.metric_labels,
        tags=tuple(review.tags),
        note=review.note,
        seconds=review.seconds,
        machine_verdict=review.machine_verdict,
        machine_score=review.machine_score,
        settled_verdict=result.reviewed_verdict,
        output_sha256=digest,
        generation=review.generation,
        sampling_rate=item.sampling_rate if item else None,
        reasons=tuple(reason.value for reason in item.why) if item else (),
        created_at=review.created_at,
        withdrawn_at=review.withdrawn_at,
        stale_at=review.stale_at,
    )
