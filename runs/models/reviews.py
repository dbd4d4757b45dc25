"""Human decisions on results, and the queue they come from."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from runs.models.results import Result, VerdictChoice


class Review(models.Model):
    """One person's verdict on one result; it never changes the machine's (SCORING §4.6)."""

    result = models.ForeignKey(Result, on_delete=models.CASCADE, related_name="reviews")
    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    verdict = models.CharField(max_length=10, choices=VerdictChoice.choices)
    note = models.TextField(blank=True, default="")
    machine_verdict = models.CharField(max_length=10, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Newest first."""

        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        """Return the verdict."""
        return self.verdict


class ReviewReason(models.TextChoices):
    """Why a result waits for a person."""

    BORDERLINE = "borderline", "Borderline"
    GATE_AND_SCORE_DISAGREE = "disagree", "Gate and score disagree"
    ONE_OUTCOME_MISSED = "one_missed", "All but one outcome met"
    SAMPLE = "sample", "Random sample"
    ASKED_FOR = "asked_for", "Asked for by a person"


class ReviewItem(models.Model):
    """A result in the review queue, reserved by at most one reviewer at a time."""

    result = models.OneToOneField(Result, on_delete=models.CASCADE, related_name="review_item")
    reason = models.CharField(max_length=20, choices=ReviewReason.choices)
    sampling_rate = models.FloatField(null=True, blank=True)
    reserved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    reserved_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        """Oldest first."""

        ordering = ("created_at", "id")

    def __str__(self) -> str:
        """Return the reason."""
        return self.reason
