"""Tries of a target on one case, from its page or from its form before it is saved."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models

from evaluators.models import LanguageModel
from runs.models.suites import Suite, Target

KEPT = timedelta(days=1)


class TrialState(models.TextChoices):
    """How far a try is."""

    WAITING = "waiting", "Waiting for a worker"
    RUNNING = "running", "Asking the target"
    DONE = "done", "Done"


class TargetTrialQuerySet(models.QuerySet["TargetTrial"]):
    """What is done with tries."""

    def forget_old(self, *, now: datetime) -> None:
        """Remove tries after a day, and with them the secrets that were typed for them."""
        self.filter(asked_at__lt=now - KEPT).delete()


class TargetTrial(models.Model):
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
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    asked_at = models.DateTimeField(auto_now_add=True, db_index=True)
    state = models.CharField(max_length=10, choices=TrialState.choices, default=TrialState.WAITING)
    found = models.JSONField(null=True, blank=True)

    objects = TargetTrialQuerySet.as_manager()

    class Meta:
        """Newest first."""

        ordering = ("-asked_at", "-id")

    def __str__(self) -> str:
        """Return what was asked of which kind."""
        return f"{self.kind} on {self.case.get('key') or 'a text'}"

    def begin(self) -> bool:
        """Move a waiting try to running; False when another worker has it."""
        waiting = TargetTrial.objects.filter(pk=self.pk, state=TrialState.WAITING)
        return bool(waiting.update(state=TrialState.RUNNING))

    def finish(self, found: dict[str, object]) -> None:
        """Keep what came back."""
        TargetTrial.objects.filter(pk=self.pk).update(state=TrialState.DONE, found=found)
