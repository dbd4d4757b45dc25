"""Files that somebody uploaded and has not stored yet, or just did."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import models
from django.utils import timezone

from runs.models.suites import Suite

KEPT = timedelta(days=1)
MAX_OF_ONE = 10

AnUpload = TypeVar("AnUpload", bound="Upload", covariant=True)


class UploadQuerySet(models.QuerySet[AnUpload]):
    """What is done with uploads."""

    def forget_old(self, *, now: datetime) -> None:
        """Remove uploads after a day."""
        self.filter(uploaded_at__lt=now - KEPT).delete()

    def make_room(self, owner: Any) -> None:
        """Remove the oldest of a member's uploads beyond ten: a file may be large."""
        newest = (
            self.filter(owner=owner).order_by("-uploaded_at", "-id").values_list("pk", flat=True)
        )
        self.filter(pk__in=list(newest[MAX_OF_ONE:])).delete()


class Upload(models.Model):
    """One upload, and what came of it; once it is stored the file itself is forgotten.

    Only its owner ever sees it.
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
    """A table of cases, how its columns were last said to be read, and what came of it.

    Without `suite` it begins one, as `begins` says. Once its cases are stored `stored` holds the
    counts and the version.
    """

    suite = models.ForeignKey(
        Suite, on_delete=models.CASCADE, null=True, blank=True, related_name="case_uploads"
    )
    begins = models.JSONField(null=True, blank=True)
    reading = models.JSONField(null=True, blank=True)

    objects = UploadQuerySet["CaseUpload"].as_manager()


class ReviewUpload(Upload):
    """A file of reviews, and what came of it."""

    objects = UploadQuerySet["ReviewUpload"].as_manager()
