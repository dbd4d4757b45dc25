"""Tries of targets and of evaluators, outside of any run; both live the life of a Trial."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from evaluators.models import LanguageModel, money_field
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, MAX_PATH_LENGTH, EvaluatorSpec
from runs.models.results import Result
from runs.models.suites import Case, Suite, Target

KEPT = timedelta(days=1)
MAX_TRY_LENGTH = timedelta(minutes=5)
LOST_AFTER = MAX_TRY_LENGTH + timedelta(minutes=1)
# A live worker takes a try at once.
UNTAKEN_AFTER = timedelta(seconds=10)
UNTAKEN = "untaken"


class TrialState(models.TextChoices):
    """How far a try is. A try is lost when no worker took it in time, or its worker never finished it."""

    WAITING = "waiting", "Waiting for a worker"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    LOST = "lost", "Lost"


OPEN_STATES = (TrialState.WAITING, TrialState.RUNNING)
TrialModel = TypeVar("TrialModel", bound="Trial")


class TrialQuerySet(models.QuerySet[TrialModel]):
    """Tries, and what becomes of old ones."""

    def forget_old(self, *, now: datetime) -> None:
        """Remove tries after a day, and with them the secrets that were typed for them."""
        self.filter(asked_at__lt=now - KEPT).delete()

    def give_up(self, *, now: datetime) -> None:
        """Mark as lost what no worker took in time, and what the worker that did never finished."""
        untaken = Q(state=TrialState.WAITING, asked_at__lt=now - LOST_AFTER)
        unfinished = Q(state=TrialState.RUNNING, begun_at__lt=now - LOST_AFTER)
        self.filter(untaken | unfinished).update(state=TrialState.LOST)


class Trial(models.Model):
    """The life of one try: a person asks for it, one worker takes it and keeps what it found."""

    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    asked_at = models.DateTimeField(default=timezone.now, db_index=True)
    state = models.CharField(max_length=10, choices=TrialState.choices, default=TrialState.WAITING)
    begun_at = models.DateTimeField(null=True, blank=True)
    found = models.JSONField(null=True, blank=True)

    class Meta:
        """Newest first."""

        abstract = True
        ordering = ("-asked_at", "-id")

    def begin(self) -> bool:
        """Move a waiting try to running; False when another worker has it, or nobody waits any more."""
        waiting = type(self)._default_manager.filter(pk=self.pk, state=TrialState.WAITING)
        return bool(waiting.update(state=TrialState.RUNNING, begun_at=timezone.now()))

    def finish(self, found: Mapping[str, Any], *, has_failed: bool, **columns: Any) -> None:
        """Keep what came of it, even when it was given up meanwhile: its calls are paid."""
        state = TrialState.FAILED if has_failed else TrialState.DONE
        begun = type(self)._default_manager.filter(
            pk=self.pk, state__in=(TrialState.RUNNING, TrialState.LOST)
        )
        begun.update(state=state, found=found, **columns)

    def stage(self) -> str:
        """Return its state for its page, which need not wait for the reaper to call it lost."""
        now = timezone.now()
        if self.state in OPEN_STATES and now - (self.begun_at or self.asked_at) > LOST_AFTER:
            return str(TrialState.LOST)
        if self.state == TrialState.WAITING and now - self.asked_at > UNTAKEN_AFTER:
            return UNTAKEN
        return str(self.state)


class TargetTrial(Trial):
    """One try: the settings as they stood, what was asked, and what came back.

    `case` holds key, input and metadata, nothing that is expected. `encrypted_secrets` are the
    values of secret headers by name, so that what was typed for a try need not be typed again.
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
        """Return what was asked of which kind."""
        return f"{self.kind} on {self.case.get('key') or 'a text'}"


class EvaluatorTrialQuerySet(TrialQuerySet["EvaluatorTrial"]):
    """Tries of evaluators."""

    def open_of(self, member: Any, *, is_dry: bool) -> EvaluatorTrial | None:
        """Return the try of a member that is under way, None without one."""
        return self.filter(asked_by=member, is_dry=is_dry, state__in=OPEN_STATES).first()


class EvaluatorTrial(Trial):
    """One try: the evaluator as the draft had it, what it was tried on, and what came of it.

    `tree` is the evaluator with all below it, `policy` and `judge` are those of the draft. It scores
    the output of `result`, else the one that was pasted for `case`. What its calls cost is booked here
    and belongs to no run; one that `is_dry` sends nothing and only finds out what it would send. `once`
    is the number of the form, so that one sent twice is tried once.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="evaluator_trials")
    node = models.CharField(max_length=40)
    path = models.CharField(max_length=MAX_PATH_LENGTH, blank=True, default="")
    tree = models.JSONField()
    policy = models.JSONField()
    judge = models.CharField(max_length=80, blank=True, default="")
    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="+")
    result = models.ForeignKey(
        Result, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    pasted = models.JSONField(null=True, blank=True)
    once = models.UUIDField()
    is_dry = models.BooleanField(default=False)
    cost_usd = money_field(null=True, blank=True)

    objects = EvaluatorTrialQuerySet.as_manager()

    class Meta(Trial.Meta):
        """Newest first; a person has one of each sort under way at a time, and one of each form."""

        constraints = (
            models.UniqueConstraint(
                fields=("asked_by", "is_dry"),
                condition=Q(state__in=("waiting", "running")),
                name="evaluator_trial_one_a_person",
            ),
            models.UniqueConstraint(fields=("asked_by", "once"), name="evaluator_trial_one_a_form"),
        )

    def __str__(self) -> str:
        """Return what was tried."""
        return f"{self.path or 'all'} of {self.suite}"

    @property
    def root(self) -> EvaluatorSpec:
        """Return the evaluator at its own path, alone in composites of the names above it."""
        node = EvaluatorSpec.model_validate(self.tree)
        if not self.path:
            return node
        for name in (*reversed(self.path.split("/")[:-1]), "all"):
            # What it weighs among others says nothing while it is alone.
            node = EvaluatorSpec(name=name, kind=COMPOSITE, children=(node.replace(weight=1.0),))
        return node

    @property
    def rules(self) -> PolicySpec:
        """Return the policy of the draft; the score alone decides, as nobody judges the outcomes."""
        policy = PolicySpec.model_validate(self.policy)
        return policy.replace(case_gate="score", final_score="aggregate")
