"""Traces that agents sent, span by span, for as long as the settings keep them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from django.conf import settings
from django.db import models, transaction
from django.db.models import Q, Sum

from evaluators.models import money_field
from runs.models.database import among, delete_rows
from runs.models.suites import Suite

# How long the spans of a trace are kept that is not sampled: the one that names its run may still come.
UNSAMPLED_FOR = timedelta(minutes=10)
MEGABYTE = 1024**2


class TraceState(models.TextChoices):
    """What became of a trace."""

    WAITING = "waiting", "Waiting"
    USED = "used", "Used"
    RUN = "run", "Output of a run"


class TraceQuerySet(models.QuerySet["Trace"]):
    """Traces, and what removes old ones."""

    def in_inbox(self) -> Self:
        """Return the traces that people look through: those that became the output of no run."""
        return self.filter(is_sampled=True).exclude(state=TraceState.RUN)

    def forget_old(self, *, now: datetime) -> None:
        """Remove traces that are too old or not sampled, and the oldest where all of them take too much room."""
        is_old = Q(changed_at__lt=now - timedelta(days=settings.TRACES_DAYS))
        is_left_out = Q(is_sampled=False, changed_at__lt=now - UNSAMPLED_FOR)
        self.filter(is_old | (is_left_out & ~Q(state=TraceState.RUN))).remove()
        excess = (self.aggregate(total=Sum("size"))["total"] or 0) - settings.TRACES_MB * MEGABYTE
        if excess <= 0:
            return
        oldest, by_age = [], self.order_by("changed_at", "pk")
        columns = ("pk", "size", "changed_at")
        for pk, size, changed_at in by_age.values_list(*columns).iterator():
            oldest.append(pk)
            excess -= size
            if excess <= 0:
                # Not those that got spans meanwhile: they are no longer the oldest.
                self.filter(pk__in=among(oldest), changed_at__lte=changed_at).remove()
                break

    def remove(self) -> int:
        """Delete the traces with their spans, and return how many.

        They are locked in the order in which requests lock theirs, so that no span arrives in between.
        """
        with transaction.atomic():
            rows = self.select_for_update().order_by("trace_id")
            ids = list(rows.values_list("pk", flat=True))
            if not ids:
                return 0
            delete_rows(TraceSpan.objects.filter(trace__in=among(ids)).order_by())
            return delete_rows(Trace.objects.filter(pk__in=among(ids)).order_by())


class Trace(models.Model):
    """What one call of an agent did, as its spans say that have arrived; the columns follow from them.

    It is whole once its first span has arrived, which has no parent: `root_id`. `problem` says why a run did not take
    it, `used_as` what people made of it, `case_key` for which case it was sent, `size` is that of its spans.
    Of the traces of no run only the `is_sampled` are shown.
    """

    trace_id = models.CharField(max_length=32, unique=True)
    suite = models.ForeignKey(
        Suite, on_delete=models.CASCADE, null=True, blank=True, related_name="traces"
    )
    case_key = models.CharField(max_length=200, blank=True, default="")
    state = models.CharField(max_length=10, choices=TraceState.choices, default=TraceState.WAITING)
    is_sampled = models.BooleanField(default=True)
    root_id = models.CharField(max_length=16, blank=True, default="")
    name = models.CharField(max_length=200, blank=True, default="")
    service = models.CharField(max_length=200, blank=True, default="")
    question = models.CharField(max_length=300, blank=True, default="")
    answer = models.CharField(max_length=300, blank=True, default="")
    error = models.CharField(max_length=300, blank=True, default="")
    problem = models.CharField(max_length=500, blank=True, default="")
    used_as = models.CharField(max_length=300, blank=True, default="")
    started_at = models.DateTimeField(null=True, blank=True)
    received_at = models.DateTimeField()
    changed_at = models.DateTimeField(db_index=True)
    latency_ms = models.PositiveIntegerField(null=True, blank=True)
    input_tokens = models.PositiveIntegerField(null=True, blank=True)
    output_tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = money_field(null=True, blank=True)
    span_count = models.PositiveIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0)

    objects = TraceQuerySet.as_manager()

    class Meta:
        """Newest first."""

        ordering = ("-id",)
        indexes = (models.Index(fields=("suite", "state", "id"), name="trace_of_suite"),)

    def __str__(self) -> str:
        """Return its name."""
        return self.name or self.trace_id

    @property
    def tokens(self) -> int | None:
        """Return the tokens of input and output together, None where neither is known."""
        known = [count for count in (self.input_tokens, self.output_tokens) if count is not None]
        return sum(known) if known else None


class TraceSpan(models.Model):
    """One span of a trace as a step.

    `mark` names the execution that it is the answer of: run, case, repetition. `size` is about how many bytes
    the step takes once it is read, which is more than its text has where that has many values.
    """

    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="spans", db_index=False)
    span_id = models.CharField(max_length=16)
    parent_id = models.CharField(max_length=16, blank=True, default="")
    started_ns = models.BigIntegerField(null=True, blank=True)
    mark = models.JSONField(null=True, blank=True)
    step = models.JSONField()
    size = models.PositiveIntegerField(default=0)

    class Meta:
        """In the order of their arrival; one of each."""

        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("trace", "span_id"), name="trace_span_one_an_id"),
        )

    def __str__(self) -> str:
        """Return the id of the span."""
        return self.span_id
