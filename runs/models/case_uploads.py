"""Tables of cases that somebody uploaded and has not stored yet, or just did."""

from __future__ import annotations

from django.db import models

from runs.models.suites import Suite
from runs.models.uploads import Upload, UploadQuerySet


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
