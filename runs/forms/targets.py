"""Add and change targets: one form a kind, its fields read from the kind's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError, transaction
from pydantic import ValidationError

from evaluators.kind_forms import bounds_of, plain_type
from evaluators.models import AuditEntry, LanguageModel
from evaluators.scoring.types import DomainError
from runs import services
from runs.models import Target
from runs.targets import target_kind_named, target_kinds
from runs.targets._base import TargetKind

LARGEST_UPLOAD = 200 * 1024 * 1024
LONG_TEXTS = ("prompt", "instructions", "text", "template")


class NameTakenError(DomainError):
    """Another target got the name first."""

    code = "name_taken"


class TargetForm(forms.Form):
    """Name and description of a target, with the settings of its kind."""

    kind_name = ""

    name = forms.CharField(max_length=120, help_text="As runs and comparisons will call it")
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(
        self, kind: TargetKind, *args: Any, target: Target | None = None, **options: Any
    ) -> None:
        """Add the fields of the kind's settings, filled in from the target."""
        super().__init__(*args, **options)
        self.kind, self.target = kind, target
        paragraphs = kind.manual.split("\n\n")
        self.manual = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        for name, column in kind.config.model_fields.items():
            self.fields[name] = _field(name, column.annotation, column)
        if target is not None:
            self.initial = {
                "name": target.name,
                "description": target.description,
                "model": target.model_id,
                **target.config,
                **self.initial,
            }

    def clean_name(self) -> str:
        """Refuse a name that is taken."""
        name = str(self.cleaned_data["name"]).strip()
        taken = Target.objects.filter(name=name)
        if self.target is not None:
            taken = taken.exclude(pk=self.target.pk)
        if taken.exists():
            raise forms.ValidationError(_taken(name))
        return name

    def clean(self) -> dict[str, Any]:
        """Refuse settings that the kind refuses, at their field."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        try:
            self.kind.config.model_validate(self._config(found))
        except ValidationError as refusal:
            for error in refusal.errors():
                name = str(error["loc"][0]) if error["loc"] else None
                message = str(error["msg"]).removeprefix("Value error, ")
                self.add_error(name if name in self.fields else None, message)
        return found

    def save(self, *, saved_by: User) -> Target:
        """Store the target and who stored it; raises NameTakenError."""
        chosen = self.cleaned_data
        target = self.target or Target(kind=self.kind.name)
        before = _facts(target) if target.pk else None
        target.name, target.description = chosen["name"], chosen["description"]
        target.config, target.model = self._config(chosen), chosen.get("model")
        with transaction.atomic():
            try:
                with transaction.atomic():
                    target.save()
            except IntegrityError as error:
                raise NameTakenError(_taken(target.name)) from error
            AuditEntry.objects.create(
                actor=saved_by,
                actor_name=saved_by.get_username(),
                action="change" if before else "add",
                object_type="target",
                object_id=str(target.pk),
                object_name=target.name,
                before=before,
                after=_facts(target),
            )
        return target

    def _config(self, found: Mapping[str, Any]) -> dict[str, Any]:
        named = self.kind.config.model_fields
        return {name: found[name] for name in named if found.get(name) is not None}


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


def target_form(kind_name: str, *args: Any, target: Target | None = None) -> TargetForm:
    """Return the form of a kind; raises UnknownTargetKindError."""
    kind = target_kind_named(kind_name)
    if kind.uses_model:
        return ChatTargetForm(kind, *args, target=target)
    if kind.replays and target is None:
        return RecordedTargetForm(kind, *args)
    return TargetForm(kind, *args, target=target)


def target_choices() -> list[TargetKind]:
    """Return the kinds a target can be of."""
    return list(target_kinds().values())


def _taken(name: str) -> str:
    return f"There is a target “{name}” already. Choose another name."


def _facts(target: Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "description": target.description,
        "config": target.config,
        "model": target.model.slug if target.model else None,
    }


def _field(name: str, annotation: Any, column: Any) -> forms.Field:
    """Return the form field for one setting of a kind."""
    options = {
        "required": column.is_required(),
        "label": column.title or name.replace("_", " ").capitalize(),
        "help_text": column.description or "",
        "initial": column.get_default(call_default_factory=True),
    }
    annotation = plain_type(annotation)
    if annotation is bool:
        return forms.BooleanField(**options | {"required": False})
    if annotation in (int, float):
        number = forms.IntegerField if annotation is int else forms.FloatField
        return number(**bounds_of(column), **options)
    if annotation is str:
        is_long = any(part in name for part in LONG_TEXTS)
        widget = forms.Textarea(attrs={"rows": 6}) if is_long else forms.TextInput()
        return forms.CharField(**options, widget=widget, strip=False)
    return forms.JSONField(**options, widget=forms.Textarea(attrs={"rows": 3}))
