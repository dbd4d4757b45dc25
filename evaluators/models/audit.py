"""The record of who changed what."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class AuditEntry(models.Model):
    """Who changed what, with the values before and after. Keys and passwords never enter."""

    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True, default="")
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    action = models.CharField(max_length=60)
    object_type = models.CharField(max_length=60)
    object_id = models.CharField(max_length=60)
    object_name = models.CharField(max_length=200, blank=True, default="")
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    class Meta:
        """Newest first, found by the object they speak of."""

        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("object_type", "object_id"), name="audit_by_object"),)
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        """Return the deed and its object."""
        return f"{self.action} {self.object_type} {self.object_name}"
