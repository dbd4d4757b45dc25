"""Add and change targets: one form a kind, with what single kinds need besides their settings."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction

from evaluators.models import LanguageModel
from runs import services
from runs.forms.target_form import TargetForm
from runs.models import Target, TargetTrial
from runs.targets import target_kind_named, target_kinds
from runs.targets._base import TargetKind

LARGEST_UPLOAD = 200 * 1024 * 1024


class ChatTargetForm(TargetForm):
    """A model behind an OpenAI-compatible endpoint."""

    model = forms.ModelChoiceField(LanguageModel.objects.all(), empty_label="Choose a model")

    field_order = ("name", "model")


class RecordedTargetForm(TargetForm):
    """Outputs that were recorded before, one line of JSON a case."""

    file_name = "outputs.jsonl"

    file = forms.FileField(
        label="Recorded outputs",
        help_text='JSONL, one line a case: {"id": "CS-001", "output": "…"}',
        widget=forms.FileInput(attrs={"accept": ".jsonl,.ndjson,.json,application/jsonl"}),
    )

    def clean_file(self) -> bytes:
        """Return the content; refuse a file that is too large."""
        upload: UploadedFile[bytes] = self.cleaned_data["file"]
        if (upload.size or 0) > LARGEST_UPLOAD:
            raise forms.ValidationError(
                "The file is larger than 200 MB. Split it over several targets."
            )
        self.file_name = upload.name or self.file_name
        content: bytes = upload.read()
        return content

    @transaction.atomic
    def save(self, *, saved_by: User) -> Target:
        """Store the target with its outputs; raises DomainError naming the line that is wrong."""
        chosen = self.cleaned_data
        target = services.import_recorded_outputs(
            target_name=chosen["name"],
            lines=chosen["file"],
            imported_by=saved_by,
            file=self.file_name,
        )
        if chosen["description"]:
            target.description = chosen["description"]
            target.save(update_fields=["description"])
        return target


def target_form(
    kind_name: str,
    *args: Any,
    target: Target | None = None,
    trial: TargetTrial | None = None,
) -> TargetForm:
    """Return the form of a kind; raises UnknownTargetKindError."""
    kind = target_kind_named(kind_name)
    if kind.uses_model:
        return ChatTargetForm(kind, *args, target=target, trial=trial)
    if kind.replays and target is None:
        return RecordedTargetForm(kind, *args)
    return TargetForm(kind, *args, target=target, trial=trial)


def target_choices() -> list[TargetKind]:
    """Return the kinds a target can be of."""
    return list(target_kinds().values())
