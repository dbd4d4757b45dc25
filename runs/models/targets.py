"""Targets, and outputs that were recorded for them."""

from __future__ import annotations

from django.db import models

from evaluators.models import LanguageModel


class Target(models.Model):
    """The system under test. `config` is validated by the target's kind.

    `encrypted_secrets` are the values of its secret headers by name: write-only, and for execution
    alone to decrypt.
    """

    name = models.CharField(max_length=120, unique=True)
    description = models.TextField(blank=True, default="")
    kind = models.CharField(max_length=50)
    config = models.JSONField(default=dict, blank=True)
    encrypted_secrets = models.JSONField(default=dict, blank=True)
    model = models.ForeignKey(
        LanguageModel, on_delete=models.PROTECT, null=True, blank=True, related_name="targets"
    )
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        """List targets by name."""

        ordering = ("name", "id")

    def __str__(self) -> str:
        """Return the name."""
        return self.name


class RecordedOutput(models.Model):
    """One uploaded output of a `recorded` target, for the case of that key."""

    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="recorded_outputs")
    case_key = models.CharField(max_length=200)
    output = models.JSONField()

    class Meta:
        """One output a case."""

        constraints = (
            models.UniqueConstraint(fields=("target", "case_key"), name="recorded_one_a_case"),
        )

    def __str__(self) -> str:
        """Return the case's key."""
        return self.case_key
