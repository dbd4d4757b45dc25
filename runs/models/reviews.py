"""Human decisions on results, and the queue they come from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from runs import lists
from runs.engine.review_rules import ReviewReason, read_reasons
from runs.lists import ListQuery, with_tag
from runs.models.database import database_now
from runs.models.results import OPEN_RESULT_STATUSES, Result, ResultStatus, VerdictChoice
from runs.models.runs import Run, RunStatus

# How long an item is reserved for the reviewer who has it open; each sign of life renews it.
RESERVED_FOR = timedelta(minutes=15)
MAX_MARKS = 200
MAX_REASONS_LENGTH = 200
MAX_REVIEWER_LENGTH = 150
UNKNOWN_REVIEWER = "a former member"


class ReviewQuerySet(models.QuerySet["Review"]):
    """Reviews."""

    def standing(self) -> Self:
        """Return those that count: not withdrawn, and of the result's present output."""
        return self.filter(withdrawn_at=None, stale_at=None)


class Review(models.Model):
    """One person's decision on one output; it never changes the machine's verdict (SCORING §4.6).

    A decision that is changed or undone is withdrawn and kept. `stale_at` is when a retry replaced the
    judged output. `machine_verdict` and `machine_score` are the machine's at that time.
    `outcome_marks` has one character per expected outcome in order: 1 met, 0 missed, - not marked.
    `metric_labels` are whole numbers 0 to 5 by the metric's key, `tags` are causes of failure.
    `reviewer_name` names the reviewer of an imported decision, who is no member. `imported_by` names
    who imported a decision from a file, "" for one that the reviewer made here. Decisions made at once on
    identical outputs have the same `together`.
    """

    result = models.ForeignKey(Result, on_delete=models.CASCADE, related_name="reviews")
    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    reviewer_name = models.CharField(max_length=MAX_REVIEWER_LENGTH, blank=True, default="")
    imported_by = models.CharField(max_length=MAX_REVIEWER_LENGTH, blank=True, default="")
    verdict = models.CharField(max_length=10, choices=VerdictChoice.choices)
    note = models.TextField(blank=True, default="")
    tags = models.JSONField(default=list, blank=True)
    outcome_marks = models.CharField(max_length=MAX_MARKS, blank=True, default="")
    metric_labels = models.JSONField(default=dict, blank=True)
    seconds = models.PositiveIntegerField(null=True, blank=True)
    machine_verdict = models.CharField(max_length=10, blank=True, default="")
    machine_score = models.FloatField(null=True, blank=True)
    generation = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=database_now)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    stale_at = models.DateTimeField(null=True, blank=True)
    together = models.UUIDField(null=True, blank=True)

    objects = ReviewQuerySet.as_manager()

    class Meta:
        """Newest first; a person has one standing decision on a result."""

        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("result", "reviewer"),
                condition=Q(withdrawn_at__isnull=True, stale_at__isnull=True),
                name="review_one_that_stands",
            ),
        )

    def __str__(self) -> str:
        """Return the verdict."""
        return self.verdict

    @property
    def reviewer_word(self) -> str:
        """Return the reviewer's name, "" for a member whose account is gone."""
        return self.reviewer.get_username() if self.reviewer else self.reviewer_name

    @property
    def signature(self) -> str:
        """Return who decided, for a reader, and who imported it if it comes from a file."""
        name = self.reviewer_word or UNKNOWN_REVIEWER
        return f"{name}, imported by {self.imported_by}" if self.imported_by else name


class ReviewItemQuerySet(models.QuerySet["ReviewItem"]):
    """The review queue."""

    def waiting(self) -> Self:
        """Return items that still need a decision."""
        return self.filter(closed_at=None)

    def for_reason(self, reason: str) -> Self:
        """Return items that have this reason, perhaps among others."""
        return self.filter(reasons__contains=f" {reason} ")

    def reserved(self, *, now: datetime) -> Self:
        """Return items that a reviewer has open."""
        return self.waiting().filter(reserved_until__gt=now)


class ReviewItem(models.Model):
    """A result in the review queue, reserved by at most one reviewer at a time.

    `run` is the run of the result, so that items are counted by run and suite without their results.
    `reasons` are in the order of `ReviewReason` with spaces around each; `rank` is the place of the first.
    `distance` is that of the score to the nearest threshold (0 to 1, 1 where none decides), so that the
    queue begins with the most doubtful. `sampling_rate` is the probability that the rules pick such a
    result, None where a person added it. `wanted` is the number of decisions it needs.
    """

    result = models.OneToOneField(Result, on_delete=models.CASCADE, related_name="review_item")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="review_items")
    reasons = models.CharField(max_length=MAX_REASONS_LENGTH)
    rank = models.PositiveSmallIntegerField(default=0)
    distance = models.FloatField(default=1.0)
    sampling_rate = models.FloatField(null=True, blank=True)
    wanted = models.PositiveSmallIntegerField(default=1)
    added_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    assigned_to = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    reserved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    reserved_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=database_now)
    closed_at = models.DateTimeField(null=True, blank=True)

    objects = ReviewItemQuerySet.as_manager()

    class Meta:
        """The most doubtful first."""

        ordering = ("rank", "distance", "id")
        indexes = (
            models.Index(
                fields=("rank", "distance", "id"),
                condition=Q(closed_at__isnull=True),
                name="review_item_waiting",
            ),
        )

    def __str__(self) -> str:
        """Return the reasons."""
        return ", ".join(reason.label for reason in self.why)

    @property
    def why(self) -> tuple[ReviewReason, ...]:
        """Return the reasons, the weightiest first."""
        return read_reasons(self.reasons)


class ReviewSkip(models.Model):
    """A reviewer left an item for later; other items come first for them."""

    item = models.ForeignKey(ReviewItem, on_delete=models.CASCADE, related_name="skips")
    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    skipped_at = models.DateTimeField(default=database_now)

    class Meta:
        """One for each person and item."""

        constraints = (
            models.UniqueConstraint(fields=("item", "reviewer"), name="review_skip_one"),
        )

    def __str__(self) -> str:
        """Return the item."""
        return f"item {self.item_id} for later"


ENDED = (ResultStatus.SCORED, ResultStatus.ERROR)


def retried_results() -> models.QuerySet[Any, Any]:
    """Return the results whose retry has not ended; their items wait until it has."""
    # Only few runs are unfinished. Joining every result instead takes ten times as long on a large site.
    unfinished = Run.objects.exclude(status=RunStatus.COMPLETED).values("pk")
    unended = (*OPEN_RESULT_STATUSES, ResultStatus.CANCELLED)
    retried = Result.objects.filter(run__in=unfinished, status__in=unended)
    return retried.order_by().values("pk")


@dataclass(frozen=True, slots=True)
class QueueQuery(ListQuery):
    """A filter of review items by slug of a suite, id of a run, reason, tag of a case, and assignee's id.

    A field that is empty or 0 does not filter.
    """

    suite: str = lists.text(help="Only those of this suite, by its short name.")
    run: int = lists.integer(0, help="Only those of this run, by its id.")
    reason: str = lists.choice(list(ReviewReason), help="Only those that wait for this reason.")
    tag: str = lists.text(help="Only those whose case has this tag.")
    assignee: int = lists.integer(0)

    def items(self) -> ReviewItemQuerySet:
        """Return the items, decided or not, without those of results whose retry has not ended."""
        items = ReviewItem.objects.exclude(result__in=retried_results())
        if self.reason:
            items = items.for_reason(self.reason)
        if self.suite:
            items = items.filter(run__suite__slug=self.suite)
        if self.run:
            items = items.filter(run=self.run)
        if self.assignee:
            items = items.filter(assigned_to=self.assignee)
        return with_tag(items, self.tag, "result__case__tags") if self.tag else items
