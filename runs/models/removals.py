"""Data that are being deleted, and the rules by which old data are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Self

from django.conf import settings
from django.db import models, transaction
from django.db.models import Q
from django.db.models.functions import Coalesce

from evaluators.templatetags.figures import counted
from runs.models.database import database_now
from runs.models.runs import LEASE, Run
from runs.models.suites import Suite

# What stands where the name of a member would.
RETENTION, CUT_OFF = "retention", "a cut-off import"
CHECKED_EVERY = timedelta(hours=1)
# A removal has failed once this many workers tried it in vain.
MAX_TRIES = 5


class RemovalPart(models.TextChoices):
    """What is removed of a run.

    `outputs` are the answers of the target with traces and files, and the texts of all calls. `details`
    are these and every other text: reasons, findings, reviewers' notes, comments; the figures of every result
    stay. `run` is everything.
    """

    OUTPUTS = "outputs", "Outputs and texts of calls"
    DETAILS = "details", "Everything but figures"
    RUN = "run", "Everything"


class RemovalQuerySet(models.QuerySet["Removal"]):
    """Removals."""

    def waiting(self, *, now: datetime) -> Self:
        """Return those that wait for a worker: no living one works on them, and they have not failed."""
        return self._without_worker(now).filter(failed_at=None)

    def give_up(self, *, now: datetime) -> None:
        """Let those fail that were tried too often since they last removed something."""
        tried_out = self._without_worker(now).filter(failed_at=None, tries__gte=MAX_TRIES)
        tried_out.filter(error="").update(error=f"{MAX_TRIES} workers ended while they removed it")
        tried_out.update(failed_at=now)

    def remove_cut_off(self, runs: Iterable[int]) -> None:
        """Begin to remove runs whose import ended before they were whole, and which nobody has seen."""
        hidden = Run.including_deleted.filter(pk__in=runs, is_deleted=True, removal=None)
        held = hidden.select_for_update(of=("self",), no_key=True).select_related("suite")
        with transaction.atomic():
            for run in held.order_by("pk"):
                removal = self.create(
                    part=RemovalPart.RUN,
                    name=f"{run.suite.slug} #{run.number}"[-200:],
                    asked_by_id=run.created_by_id,
                    asked_by_name=CUT_OFF,
                    result_count=run.execution_count,
                )
                Run.including_deleted.filter(pk=run.pk).update(removal=removal)

    def _without_worker(self, now: datetime) -> Self:
        return self.filter(Q(heartbeat_at=None) | Q(heartbeat_at__lt=now - LEASE))


class Removal(models.Model):
    """A part of some runs that workers delete bit by bit; the row is deleted with the last bit.

    `suite` is deleted after its runs. `result_count` is the number of results at the beginning,
    `done_count` those that are done, in the order of the suite: those of the first run before
    `next_position`. The worker that holds it renews `heartbeat_at`. `tries` counts the workers that took it
    since it last removed something; after too many it has failed, and an admin may retry it. `error` is the
    last one.
    """

    part = models.CharField(max_length=10, choices=RemovalPart.choices)
    name = models.CharField(max_length=200)
    suite = models.ForeignKey(
        Suite, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    asked_by_name = models.CharField(max_length=150)
    asked_at = models.DateTimeField(default=database_now)
    result_count = models.PositiveIntegerField(default=0)
    done_count = models.PositiveIntegerField(default=0)
    next_position = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=200, blank=True, default="")
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0)
    failed_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, default="")

    objects = RemovalQuerySet.as_manager()

    class Meta:
        """Oldest first."""

        ordering = ("id",)

    def __str__(self) -> str:
        """Return the name of what is deleted."""
        return self.name


class RetentionRuleQuerySet(models.QuerySet["RetentionRule"]):
    """Rules."""

    def take_turn(self, *, now: datetime) -> bool:
        """Tell once an hour that the rules are to be applied; of several askers, tell one."""
        removes_something = Q(outputs_days__isnull=False) | Q(details_days__isnull=False)
        is_due = Q(checked_at=None) | Q(checked_at__lt=now - CHECKED_EVERY)
        return bool(self.filter(removes_something, is_due).update(checked_at=now))


class RetentionRule(models.Model):
    """After how many days outputs and details of runs are removed; None keeps them.

    The rule without a suite is the site's. A suite without a rule of its own follows it. `checked_at` is
    when a reaper last had the rules applied.
    """

    suite = models.OneToOneField(
        Suite, on_delete=models.CASCADE, null=True, blank=True, related_name="retention_rule"
    )
    outputs_days = models.PositiveIntegerField(null=True, blank=True)
    details_days = models.PositiveIntegerField(null=True, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)

    objects = RetentionRuleQuerySet.as_manager()

    class Meta:
        """One rule for each suite and one for the site."""

        constraints = (
            models.UniqueConstraint(Coalesce("suite", 0), name="retention_rule_one_a_suite"),
        )

    def __str__(self) -> str:
        """Return whose rule it is."""
        return str(self.suite) if self.suite_id else "the site"

    @property
    def kept(self) -> str:
        """Return what it keeps, such as "outputs for 30 days and details for 90 days"."""
        days = {"outputs": self.outputs_days, "details": self.details_days}
        texts = [f"{what} for {counted(number, 'day')}" for what, number in days.items() if number]
        return " and ".join(texts) or "everything"
