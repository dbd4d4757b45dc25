"""Bring people's decisions in from the browser: choose the file, see what it would add, store it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile

from evaluators.scoring.types import DomainError
from runs.formats import UnreadableFileError
from runs.models import ReviewUpload
from runs.services.review_imports import keep_reviews, store_reviews

MOST_BYTES = 20 * 1024 * 1024
ACCEPTED = ".jsonl,.ndjson,.json,.csv,.tsv,text/csv,application/jsonl"


class ReviewFileForm(forms.Form):
    """A file of reviews."""

    file = forms.FileField(
        label="Reviews",
        allow_empty_file=True,
        help_text="JSON Lines or CSV as the export writes them; up to 20 MB",
        widget=forms.FileInput(attrs={"accept": ACCEPTED}),
    )

    def clean_file(self) -> UploadedFile[Any]:
        """Refuse a file that is too large to be read at once."""
        upload: UploadedFile[Any] = self.cleaned_data["file"]
        if (upload.size or 0) > MOST_BYTES:
            raise forms.ValidationError("The file is larger than 20 MB. Split it in several.")
        return upload

    def keep(self, by: User) -> ReviewUpload | None:
        """Keep the file for its preview; None, with the reason among the errors, when it holds no reviews."""
        upload = self.cleaned_data["file"]
        try:
            return keep_reviews(bytes(upload.read()), name=str(upload.name), owner=by)
        except UnreadableFileError as refusal:
            for problem in refusal.problems:
                line = f"line {problem.line}: " if problem.line else ""
                said = f"{line}{problem.message}."
                self.add_error("file", said[:1].upper() + said[1:])
        return None


class StoreReviewsForm(forms.Form):
    """Whether rejected rows are left out when the others are stored."""

    leave_out = forms.BooleanField(
        label="Leave the rejected rows out", required=False, help_text="The others are stored"
    )

    def store(self, upload: ReviewUpload, by: User) -> bool:
        """Store what the upload holds; False, with the reason among the errors, when nothing was."""
        try:
            store_reviews(upload, leaves_out=bool(self.cleaned_data["leave_out"]), by=by)
        except DomainError as refusal:
            self.add_error("leave_out", str(refusal))
            return False
        return True
