"""Files of reviews that somebody uploaded and has not stored yet, or just did."""

from __future__ import annotations

from runs.models.uploads import Upload, UploadQuerySet


class ReviewUpload(Upload):
    """A file of reviews, and what came of it."""

    objects = UploadQuerySet["ReviewUpload"].as_manager()
