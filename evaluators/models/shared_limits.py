"""What of a model's limits each holder has: slots until they expire, and starts in the minute."""

from __future__ import annotations

from django.db import models

from evaluators.models.language_models import LanguageModel


class SlotLease(models.Model):
    """A block of one model's concurrency, held by one pair of hands until it expires.

    A holder with fewer slots than `wanted` is short: the others give up what exceeds their share.
    `starts_wanted` calls wait since `starts_wanted_since` for the minute's limit to let them start.
    """

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="slot_leases")
    holder = models.CharField(max_length=64)
    slots = models.PositiveIntegerField()
    wanted = models.PositiveIntegerField(default=0)
    starts_wanted = models.PositiveIntegerField(default=0)
    starts_wanted_since = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()

    class Meta:
        """One block a holder."""

        constraints = (
            models.UniqueConstraint(fields=("model", "holder"), name="slot_lease_one_a_holder"),
        )

    def __str__(self) -> str:
        """Return holder and size."""
        return f"{self.slots} slots of {self.holder}"


class StartGrant(models.Model):
    """So many calls of a model that one holder was allowed to start, counted in the calls of the minute."""

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="start_grants")
    holder = models.CharField(max_length=64)
    granted_at = models.DateTimeField()
    calls = models.PositiveIntegerField()

    class Meta:
        """Found by model, the oldest first."""

        ordering = ("granted_at", "id")
        indexes = (models.Index(fields=("model", "granted_at"), name="start_grant_by_time"),)

    def __str__(self) -> str:
        """Return size and holder."""
        return f"{self.calls} starts of {self.holder}"
