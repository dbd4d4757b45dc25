"""Bring results of another tool in from the browser."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile

from evaluators.scoring.types import DomainError
from runs import services
from runs.formats import Problem, UnreadableFileError
from runs.imports import ImportedResults
from runs.models import Suite

MOST_BYTES = 200 * 1024 * 1024


class ResultsImportForm(forms.Form):
    """A file of results, and what its lines may not tell.

    After a refusal `problems` holds what is wrong, each with its line and case.
    """

    results = forms.FileField(
        label="Results",
        help_text="JSON Lines of AgentV or of Evalsite, in snake_case or camelCase",
        widget=forms.FileInput(attrs={"accept": ".jsonl,.ndjson,.json,application/jsonl"}),
    )
    suite = forms.ModelChoiceField(
        Suite.objects.filter(archived_at=None),
        required=False,
        to_field_name="slug",
        empty_label="As the lines say",
        help_text="Where there is none of that name, it is made of the cases the lines tell of",
    )
    target_name = forms.CharField(
        label="Name of the target",
        required=False,
        max_length=120,
        help_text="What answered, where the lines do not tell; the file's name serves when it is empty",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        """Begin without problems."""
        super().__init__(*args, **options)
        self.problems: tuple[Problem, ...] = ()

    def clean_results(self) -> UploadedFile[Any]:
        """Refuse a file that is too large to be read at once."""
        upload: UploadedFile[Any] = self.cleaned_data["results"]
        if (upload.size or 0) > MOST_BYTES:
            raise forms.ValidationError("The file is larger than 200 MB. Split it in several.")
        return upload

    def save(self, *, imported_by: User) -> ImportedResults | None:
        """Store all of it; None, with the form's errors filled in, when anything is wrong."""
        upload = self.cleaned_data["results"]
        try:
            return services.import_results(
                bytes(upload.read()),
                file=str(upload.name),
                suite=self.cleaned_data["suite"],
                imported_by=imported_by,
                target_name=self.cleaned_data["target_name"].strip(),
            )
        except UnreadableFileError as refusal:
            self.problems = refusal.problems
            count = len(refusal.problems)
            told = "1 problem is" if count == 1 else f"{count} problems are"
            self.add_error("results", f"{upload.name} was not read: {told} listed at the top.")
        except DomainError as refusal:
            self.add_error(None, str(refusal))
        return None
