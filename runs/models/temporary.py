"""What is kept for a day: uploaded files, exports, and trials of targets and evaluators outside any run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from evaluators.models import LanguageModel, money_field
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import MAX_PATH_LENGTH, EvaluatorSpec
from runs.engine.plan import tree_of_one
from runs.models.database import database_now
from runs.models.results import Result
from runs.models.suites import Case, Suite, Target

KEPT = timedelta(days=1)
MAX_TRY_LENGTH = timedelta(minutes=5)
LOST_AFTER = MAX_TRY_LENGTH + timedelta(minutes=1)
# A live worker takes a trial at once.
UNTAKEN_AFTER = timedelta(seconds=10)
UNTAKEN = "untaken"


class TrialState(models.TextChoices):
    """How far a trial is. It is lost when no worker took it in time, or its worker never finished it."""

    WAITING = "waiting", "Waiting for a worker"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    LOST = "lost", "Lost"


OPEN_STATES = (TrialState.WAITING, TrialState.RUNNING)
TrialModel = TypeVar("TrialModel", bound="Trial")


class TrialQuerySet(models.QuerySet[TrialModel]):
    """Trials, and what removes or ends old ones."""

    def forget_old(self, *, now: datetime) -> None:
        """Remove trials after a day, with the secrets that were typed for them."""
        self.filter(asked_at__lt=now - KEPT).delete()

    def give_up(self, *, now: datetime) -> None:
        """Mark trials as lost that no worker took in time, or that their worker never finished."""
        untaken = Q(state=TrialState.WAITING, asked_at__lt=now - LOST_AFTER)
        unfinished = Q(state=TrialState.RUNNING, begun_at__lt=now - LOST_AFTER)
        self.filter(untaken | unfinished).update(state=TrialState.LOST)


class Trial(models.Model):
    """A trial: a person asks for it, one worker takes it and stores its `outcome`.

    All its times are of the database's clock: the reaper of another machine would take it for lost.
    """

    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    asked_at = models.DateTimeField(default=database_now, db_index=True)
    state = models.CharField(max_length=10, choices=TrialState.choices, default=TrialState.WAITING)
    begun_at = models.DateTimeField(null=True, blank=True)
    outcome = models.JSONField(null=True, blank=True)

    class Meta:
        """Newest first."""

        abstract = True
        ordering = ("-asked_at", "-id")

    def begin(self) -> bool:
        """Move a waiting trial to running; False when another worker has it or it is lost."""
        waiting = type(self)._default_manager.filter(pk=self.pk, state=TrialState.WAITING)
        return bool(waiting.update(state=TrialState.RUNNING, begun_at=database_now()))

    def finish(self, outcome: Mapping[str, Any], *, has_failed: bool, **columns: Any) -> None:
        """Store the outcome, even if the trial was marked lost meanwhile: its calls are paid."""
        state = TrialState.FAILED if has_failed else TrialState.DONE
        begun = type(self)._default_manager.filter(
            pk=self.pk, state__in=(TrialState.RUNNING, TrialState.LOST)
        )
        begun.update(state=state, outcome=outcome, **columns)

    def stage(self) -> str:
        """Return the state for its page, without waiting for the reaper to mark it lost."""
        now = database_now()
        if self.state in OPEN_STATES and now - (self.begun_at or self.asked_at) > LOST_AFTER:
            return str(TrialState.LOST)
        if self.state == TrialState.WAITING and now - self.asked_at > UNTAKEN_AFTER:
            return UNTAKEN
        return str(self.state)


class TargetTrial(Trial):
    """One trial of a target: its settings at the time, the question and the answer.

    `case` holds key, input and metadata, but nothing that is expected. `encrypted_secrets` are the
    values of secret headers by name, so that nobody types them again for the next trial.
    """

    target = models.ForeignKey(
        Target, on_delete=models.CASCADE, null=True, blank=True, related_name="trials"
    )
    kind = models.CharField(max_length=50)
    config = models.JSONField(default=dict)
    encrypted_secrets = models.JSONField(default=dict)
    model = models.ForeignKey(
        LanguageModel, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    suite = models.ForeignKey(
        Suite, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    case = models.JSONField()
    recorded = models.JSONField(null=True, blank=True)

    objects = TrialQuerySet["TargetTrial"].as_manager()

    def __str__(self) -> str:
        """Return the kind of the target and the case."""
        return f"{self.kind} on {self.case.get('key') or 'a text'}"


class EvaluatorTrialQuerySet(TrialQuerySet["EvaluatorTrial"]):
    """Trials of evaluators."""

    def under_way(self, member: Any, *, is_dry: bool) -> EvaluatorTrial | None:
        """Return the member's trial that has not ended, None without one."""
        return self.filter(asked_by=member, is_dry=is_dry, state__in=OPEN_STATES).first()


class EvaluatorTrial(Trial):
    """One trial of an evaluator of a draft: the evaluator at the time, the output and the outcome.

    `tree` is the evaluator with everything below it; `policy` and `judge` are those of the draft. The
    trial scores the output of `result`, else the one that was pasted for `case`; `baseline` is the pasted output that
    a pairwise evaluator compares it with, "" for that of the baseline run. Its calls cost
    `cost_usd` and belong to no run. A dry trial sends nothing and shows what it would send. `once` is
    the number of the form, so that a form sent twice starts one trial.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="evaluator_trials")
    node = models.CharField(max_length=40)
    path = models.CharField(max_length=MAX_PATH_LENGTH, blank=True, default="")
    tree = models.JSONField()
    policy = models.JSONField()
    judge = models.CharField(max_length=80, blank=True, default="")
    # A removal deletes what results and cases have a name for.
    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="trials")
    result = models.ForeignKey(
        Result, on_delete=models.CASCADE, null=True, blank=True, related_name="trials"
    )
    pasted = models.JSONField(null=True, blank=True)
    baseline = models.TextField(blank=True, default="")
    once = models.UUIDField()
    is_dry = models.BooleanField(default=False)
    cost_usd = money_field(null=True, blank=True)

    objects = EvaluatorTrialQuerySet.as_manager()

    class Meta(Trial.Meta):
        """Newest first. A person has at most one trial and one dry trial under way, and one a form."""

        constraints = (
            models.UniqueConstraint(
                fields=("asked_by", "is_dry"),
                condition=Q(state__in=("waiting", "running")),
                name="evaluator_trial_one_a_person",
            ),
            models.UniqueConstraint(fields=("asked_by", "once"), name="evaluator_trial_one_a_form"),
        )

    def __str__(self) -> str:
        """Return the evaluator and the suite."""
        return f"{self.path or 'all'} of {self.suite}"

    @property
    def root(self) -> EvaluatorSpec:
        """Return the evaluator at its path in the suite, inside composites that hold nothing else."""
        return tree_of_one(self.path, EvaluatorSpec.model_validate(self.tree))

    @property
    def rules(self) -> PolicySpec:
        """Return the policy of the draft. The score alone decides: a trial judges no outcomes."""
        policy = PolicySpec.model_validate(self.policy)
        return policy.replace(case_gate="score", final_score="aggregate")


MAX_UPLOADS = 10

UploadModel = TypeVar("UploadModel", bound="Upload", covariant=True)


class UploadQuerySet(models.QuerySet[UploadModel]):
    """Uploads, and what removes old ones."""

    def forget_old(self, *, now: datetime) -> None:
        """Remove uploads after a day."""
        self.filter(uploaded_at__lt=now - KEPT).delete()

    def make_room(self, owner: Any) -> None:
        """Remove all but a member's ten newest uploads: a file may be large."""
        newest = (
            self.filter(owner=owner).order_by("-uploaded_at", "-id").values_list("pk", flat=True)
        )
        self.filter(pk__in=list(newest[MAX_UPLOADS:])).delete()


class Upload(models.Model):
    """An uploaded file that only its owner sees.

    Once its rows are stored, `stored` holds the result and `content` is emptied.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=200)
    content = models.BinaryField()
    uploaded_at = models.DateTimeField(default=timezone.now, db_index=True)
    stored_at = models.DateTimeField(null=True, blank=True)
    stored = models.JSONField(null=True, blank=True)

    class Meta:
        """Newest first."""

        abstract = True
        ordering = ("-uploaded_at", "-id")

    def __str__(self) -> str:
        """Return the name of the file."""
        return self.name


class CaseUpload(Upload):
    """A table of cases, with the last choice of how to read its columns in `reading`.

    `choices` are what a person changed in its rows: `left` are the places of those that were unticked, `cells` the
    changed cells by place. Without `suite` it starts a new one with the values of `begins`. Once its cases are stored,
    `stored` holds the counts and the version.
    """

    suite = models.ForeignKey(
        Suite, on_delete=models.CASCADE, null=True, blank=True, related_name="case_uploads"
    )
    begins = models.JSONField(null=True, blank=True)
    reading = models.JSONField(null=True, blank=True)
    choices = models.JSONField(default=dict, blank=True)

    objects = UploadQuerySet["CaseUpload"].as_manager()


class ReviewUpload(Upload):
    """A file of reviews."""

    objects = UploadQuerySet["ReviewUpload"].as_manager()


class ExportState(models.TextChoices):
    """How far an export is."""

    WAITING = "waiting", "Waiting"
    WRITING = "writing", "Being prepared"
    READY = "ready", "Ready"
    FAILED = "failed", "Failed"


UNFINISHED_EXPORTS = (ExportState.WAITING, ExportState.WRITING)


class Export(models.Model):
    """A file that a worker makes because it is too large to be made while somebody waits for the answer.

    `kind` and `params` say what is in it. `digest` also covers the state of the data, so that requests for
    the same content share the file. Nobody gets it without `permissions`. Data of `suites` are in it, of
    any suite if it names none. Only the worker that holds it knows its `token`, which is part of the name of
    the file on disk. `attempts` counts the workers that began it.
    """

    kind = models.CharField(max_length=40)
    params = models.JSONField(default=dict)
    digest = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=255)
    media_type = models.CharField(max_length=100)
    permissions = models.JSONField(default=list)
    suites = models.ManyToManyField(Suite, related_name="+")
    state = models.CharField(
        max_length=10, choices=ExportState.choices, default=ExportState.WAITING, db_index=True
    )
    row_count = models.PositiveIntegerField(default=0)
    done_count = models.PositiveIntegerField(default=0)
    size = models.PositiveBigIntegerField(null=True, blank=True)
    error = models.TextField(blank=True, default="")
    worker = models.CharField(max_length=200, blank=True, default="")
    token = models.CharField(max_length=32, blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    asked_at = models.DateTimeField(default=database_now)
    made_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        """Oldest first: the order in which they are made."""

        ordering = ("asked_at", "id")

    def __str__(self) -> str:
        """Return the name of the file."""
        return self.name

    @property
    def is_unfinished(self) -> bool:
        """Tell whether a worker still has to make it."""
        return self.state in UNFINISHED_EXPORTS

    @property
    def path(self) -> Path:
        """Return where the file is once it is ready."""
        return settings.EXPORTS_DIR / f"{EXPORT_PREFIX}{self.pk}-{self.token}"


# Begins the names of all files of exports; only such files are ever removed from their folder.
EXPORT_PREFIX = "evalsite-export-"


class ExportRequest(models.Model):
    """A member's request for an export; several members may wait for the same file."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    export = models.ForeignKey(Export, on_delete=models.CASCADE, related_name="requests")
    asked_at = models.DateTimeField(default=database_now)

    class Meta:
        """Newest first; a member asks once for the same file."""

        ordering = ("-asked_at", "-id")
        constraints = (
            models.UniqueConstraint(fields=("owner", "export"), name="export_asked_once"),
        )

    def __str__(self) -> str:
        """Return the name of the file."""
        return self.export.name


MAX_IDEMPOTENCY_KEY_LENGTH = 200


class IdempotentRequestQuerySet(models.QuerySet["IdempotentRequest"]):
    """Requests of the API with a key."""

    def forget_old(self, *, now: datetime) -> None:
        """Remove them after a day."""
        self.filter(created_at__lt=now - KEPT).delete()


class IdempotentRequest(models.Model):
    """A request of the API that changed something, and its answer, encrypted, for those that repeat it with its key."""

    member = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=MAX_IDEMPOTENCY_KEY_LENGTH)
    digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    answer = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = IdempotentRequestQuerySet.as_manager()

    class Meta:
        """One answer for each key of a member."""

        constraints = (
            models.UniqueConstraint(fields=("member", "key"), name="idempotent_request_one_a_key"),
        )

    def __str__(self) -> str:
        """Return the key."""
        return self.key
