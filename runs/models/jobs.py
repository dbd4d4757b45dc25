"""Jobs: work that asks models outside of any run, under a budget, with its calls in the ledger."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Self

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models import F, Q, Sum

from evaluators.models import ZERO_USD, LanguageModel, money_field
from runs.models.database import database_now
from runs.models.results import REMOVED_HASH, CallPurpose, ModelCall
from runs.models.runs import LEASE, Run, WorkerProcess
from runs.models.suites import Suite

# A job has failed once this many workers ended while they worked on it and booked no call.
MAX_JOB_TRIES = 5
MAX_SUBJECT_LENGTH = 500
DRAFTS_KEPT = timedelta(days=14)
TEXTS_REMOVED = "Its texts were removed."


class JobState(models.TextChoices):
    """How far a job is."""

    WAITING = "waiting", "Waiting for a worker"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    STOPPED = "stopped", "Cancelled"
    BUDGET_REACHED = "budget_reached", "Budget reached"
    FAILED = "failed", "Failed"


OPEN_JOB_STATES = (JobState.WAITING, JobState.RUNNING)
RESUMABLE_JOB_STATES = (JobState.STOPPED, JobState.BUDGET_REACHED, JobState.FAILED)


class ModelJobQuerySet(models.QuerySet["ModelJob"]):
    """Jobs."""

    def open(self) -> Self:
        """Return those that wait or run."""
        return self.filter(state__in=OPEN_JOB_STATES)

    def claimable(self, *, now: datetime) -> Self:
        """Return open jobs that no living worker has."""
        return self.open().filter(Q(heartbeat_at=None) | Q(heartbeat_at__lt=now - LEASE))

    def claim(self, pk: int, worker: str) -> ModelJob | None:
        """Take a job for a worker; None when it is gone, over, or another one has it."""
        now, token = database_now(), secrets.token_hex(16)
        taken = self.claimable(now=now).filter(pk=pk)
        columns = {"worker": worker, "token": token, "heartbeat_at": now}
        if not taken.update(state=JobState.RUNNING, tries=F("tries") + 1, **columns):
            return None
        return self.select_related("suite").filter(pk=pk, token=token).first()

    def forget_texts(self) -> None:
        """Remove the texts of their calls; the figures and the outcomes stay, but not what was drafted from texts.

        Those that are open end, as they would go on to ask about the texts.
        """
        ids = list(self.values_list("pk", flat=True))
        ending = {"reason": TEXTS_REMOVED, "finished_at": database_now()}
        ModelJob.objects.filter(pk__in=ids).open().update(state=JobState.STOPPED, **ending)
        drafting = ModelJob.objects.filter(pk__in=ids, purpose=CallPurpose.DRAFTING)
        # Without its token, a worker that still waits for a reply writes no outcome.
        drafting.update(request={}, outcome=None, token="")
        calls = ModelCall.objects.filter(job__in=ids)
        calls.update(request={}, reply=None, request_hash=REMOVED_HASH, error="")

    def end_drafting(self) -> None:
        """End open drafting of people who may not draft cases any more; the cases that are there stay."""
        reason = "The member who asked for it may not draft cases any more."
        drafting = self.open().filter(purpose=CallPurpose.DRAFTING)
        drafting.update(state=JobState.STOPPED, reason=reason, finished_at=database_now())

    def forget_old_drafts(self, *, now: datetime) -> None:
        """Remove the texts of drafted cases two weeks after a person asked for them."""
        drafting = self.filter(purpose=CallPurpose.DRAFTING, asked_at__lt=now - DRAFTS_KEPT)
        drafting.exclude(request={}).forget_texts()

    def forget_late_replies(self) -> None:
        """Remove the texts of calls that came back after those of their job were removed."""
        drafting = Q(purpose=CallPurpose.DRAFTING, request={})
        self.filter(drafting | Q(reason=TEXTS_REMOVED)).forget_texts()

    def give_up(self, *, now: datetime) -> None:
        """Let those fail that too many workers left."""
        left = self.claimable(now=now).filter(tries__gte=MAX_JOB_TRIES)
        reason = f"{MAX_JOB_TRIES} workers ended while they worked on it."
        left.update(state=JobState.FAILED, reason=reason, finished_at=now, worker="", token="")


class ModelJob(models.Model):
    """One job for a suite, which a person asked for: `request` says what is to be done, `outcome` what came of it.

    The ledger is the only state of a job under way: a worker that continues it goes through the same steps again,
    finds the replies that were paid for, and asks only for the others. The worker that has it knows its `token` and
    renews `heartbeat_at`; `tries` counts the workers that took it since it last booked a call. Of a purpose, a
    `subject` of a suite has one open job. `sources` are the runs whose texts its calls have: when these are
    removed, the texts of the calls are, too. `planned_calls` is what it asks when nothing is repeated. `form_key`
    names the form that asked, so that a form sent twice starts one job.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="jobs")
    purpose = models.CharField(max_length=12, choices=CallPurpose.choices)
    subject = models.CharField(max_length=MAX_SUBJECT_LENGTH, blank=True, default="")
    state = models.CharField(max_length=16, choices=JobState.choices, default=JobState.WAITING)
    reason = models.TextField(blank=True, default="")
    request = models.JSONField()
    outcome = models.JSONField(null=True, blank=True)
    sources = models.ManyToManyField(Run, related_name="jobs")
    model = models.ForeignKey(LanguageModel, on_delete=models.SET_NULL, null=True, related_name="+")
    model_name = models.CharField(max_length=200)
    planned_calls = models.PositiveIntegerField(default=0)
    budget_usd = money_field(null=True, blank=True)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    asked_at = models.DateTimeField(default=database_now)
    form_key = models.CharField(max_length=64, blank=True, default="")
    worker = models.CharField(max_length=200, blank=True, default="")
    token = models.CharField(max_length=32, blank=True, default="")
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = ModelJobQuerySet.as_manager()

    class Meta:
        """Newest first."""

        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("suite", "purpose", "subject"),
                condition=Q(state__in=("waiting", "running")),
                name="model_job_one_open",
            ),
            models.UniqueConstraint(
                fields=("suite", "purpose", "asked_by", "form_key"),
                condition=~Q(form_key=""),
                name="model_job_one_a_form",
            ),
        )

    def __str__(self) -> str:
        """Return purpose and subject."""
        return f"{CallPurpose(self.purpose).label}: {self.subject or self.suite}"

    @property
    def is_open(self) -> bool:
        """Tell whether it waits or runs."""
        return self.state in OPEN_JOB_STATES

    @property
    def can_resume(self) -> bool:
        """Tell whether it ended before all was done."""
        return self.state in RESUMABLE_JOB_STATES

    def lacks_worker(self) -> bool:
        """Tell whether it waits and no worker is running; one query."""
        now = database_now()
        waits = self.is_open and (self.heartbeat_at is None or self.heartbeat_at < now - LEASE)
        return waits and not WorkerProcess.objects.alive(now=now).exists()

    def spent_usd(self) -> Decimal:
        """Return what its calls cost, as far as prices are known; one query."""
        spent: Decimal | None = self.calls.aggregate(usd=Sum("cost_usd"))["usd"]
        return spent or ZERO_USD

    def stop(self, by: User | None) -> bool:
        """End an open job, and keep what was paid for; False where it has ended. Nobody is the command line."""
        who = by.get_username() if by else "a command line"
        changes = {"reason": f"Stopped by {who}.", "finished_at": database_now()}
        still_open = ModelJob.objects.open().filter(pk=self.pk)
        return bool(still_open.update(state=JobState.STOPPED, **changes))

    def keep(self) -> bool:
        """Renew the heartbeat; False when the job was stopped, or another worker has it."""
        return bool(self._held().update(heartbeat_at=database_now()))

    def release(self) -> bool:
        """Let another worker take it at once; False when it was stopped, or another worker has it already."""
        free = {"state": JobState.WAITING, "heartbeat_at": None, "worker": "", "token": ""}
        # A worker that shuts down says nothing against the job.
        return bool(self._held().update(tries=0, **free))

    def finish(self, state: JobState, outcome: Mapping[str, Any] | None, reason: str = "") -> bool:
        """Store how it ended; a job that a person stopped stays so, and keeps what was paid for."""
        changes = {"outcome": outcome, "finished_at": database_now(), "worker": "", "token": ""}
        stopped = ModelJob.objects.filter(pk=self.pk, token=self.token, state=JobState.STOPPED)
        return bool(
            self._held().update(state=state, reason=reason, **changes) or stopped.update(**changes)
        )

    def _held(self) -> ModelJobQuerySet:
        return ModelJob.objects.filter(pk=self.pk, token=self.token, state=JobState.RUNNING)
