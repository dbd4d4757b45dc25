"""The form of a target: its settings under their sections, its secret headers write-only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.forms import BoundField
from pydantic import ValidationError

from runs import services
from runs.forms.header_rows import HeaderRows, HeadersField
from runs.forms.target_changes import (
    NameTakenError,
    TargetChangedError,
    facts_of,
    last_changer,
    seen_now,
    taken,
    write_down,
)
from runs.forms.target_fields import in_sections, setting_field, with_line
from runs.forms.target_secrets import header_settings, kept_secrets, settled_secrets
from runs.models import Target, TargetTrial
from runs.targets._base import TargetKind


class TargetForm(forms.Form):
    """Name and description of a target, with the settings of its kind.

    `trial` is the last try of the same member with this form: secrets typed for it are still known.
    """

    name = forms.CharField(max_length=120, help_text="As runs and comparisons will call it")
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        kind: TargetKind,
        *args: Any,
        target: Target | None = None,
        trial: TargetTrial | None = None,
        **options: Any,
    ) -> None:
        """Add the fields of the kind's settings, filled in from the target."""
        super().__init__(*args, **options)
        self.kind, self.target = kind, target
        self.secrets: dict[str, str] = {}
        self._kept = kept_secrets(target, trial)
        paragraphs = [" ".join(part.split()) for part in kind.manual.split("\n\n")]
        self.summary, self.manual = paragraphs[0], "\n\n".join(paragraphs[1:])
        for name, setting in kind.config.model_fields.items():
            field = setting_field(name, setting)
            self.fields[name] = field
            if isinstance(field.widget, HeaderRows):
                field.widget.stored = frozenset(self._kept)
        if target is not None:
            self.initial = {
                "name": target.name,
                "description": target.description,
                "model": target.model_id,
                "seen": target.updated_at.isoformat(),
                **target.config,
                **self.initial,
            }

    def sections(self) -> list[tuple[str, list[list[BoundField]]]]:
        """Return the fields under the titles of their sections, in the order the kind gives.

        Short fields that follow one another stand together, long ones alone.
        """
        return in_sections(self.kind, self.visible_fields())

    def clean_name(self) -> str:
        """Refuse a name that is taken."""
        name = str(self.cleaned_data["name"]).strip()
        others = Target.objects.filter(name=name)
        if self.target is not None:
            others = others.exclude(pk=self.target.pk)
        if others.exists():
            raise forms.ValidationError(taken(name))
        return name

    def clean(self) -> dict[str, Any]:
        """Refuse settings that the kind refuses, at their field."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        for name, field in self.fields.items():
            if isinstance(field, HeadersField) and name in found:
                self._settle(name, found)
        try:
            self.kind.config.model_validate(self._given(found))
        except ValidationError as refusal:
            for error in refusal.errors():
                name = str(error["loc"][0]) if error["loc"] else ""
                if name not in self.errors:
                    message = str(error["msg"]).removeprefix("Value error, ")
                    typed = str(self.data.get(self.add_prefix(name), ""))
                    self.add_error(
                        name if name in self.fields else None,
                        with_line(message, typed, self.fields.get(name)),
                    )
        return found

    def is_tryable(self) -> bool:
        """Tell whether the settings can be tried: a name is not needed for that."""
        self.full_clean()
        self.errors.pop("name", None)
        return self.is_bound and not self.errors

    def remember_secrets(self) -> None:
        """Show the secrets that were typed as stored: the try that was just queued keeps them."""
        for field in self.fields.values():
            if isinstance(field.widget, HeaderRows):
                field.widget.stored |= frozenset(self.secrets)

    def tried(self) -> services.TriedSettings:
        """Return the settings as they stand in the form."""
        return services.TriedSettings(
            self.kind.name,
            self._config(self.cleaned_data),
            self.secrets,
            self.cleaned_data.get("model"),
            self.target,
        )

    def save(self, *, saved_by: User) -> Target:
        """Store the target and who stored it; raises NameTakenError and TargetChangedError."""
        with transaction.atomic():
            self._refuse_if_changed()
            target = self.target or Target(kind=self.kind.name)
            before = facts_of(target) if target.pk else None
            self._fill(target)
            try:
                with transaction.atomic():
                    target.save()
            except IntegrityError as error:
                raise NameTakenError(taken(target.name)) from error
            write_down(target, before, self._typed_secrets(), saved_by)
        return target

    def _fill(self, target: Target) -> None:
        chosen = self.cleaned_data
        target.name, target.description = chosen["name"], chosen["description"]
        target.config, target.model = self._config(chosen), chosen.get("model")
        target.encrypted_secrets = self.secrets

    def _refuse_if_changed(self) -> None:
        """Raise TargetChangedError, once: the form that is shown again may be saved."""
        if self.target is None or not self.cleaned_data.get("seen"):
            return
        now = seen_now(self.target)
        if now == self.cleaned_data["seen"]:
            return
        data = self.data.copy()  # type: ignore[attr-defined]  # what was sent
        data["seen"] = now
        self.data = data
        raise TargetChangedError(
            f"This target was changed by {last_changer(self.target)} while you were at it, and what "
            "you entered would replace that. Look at the target in another window; save again to "
            "replace it all the same."
        )

    def _settle(self, name: str, found: dict[str, Any]) -> None:
        try:
            self.secrets = settled_secrets(found[name], self._kept, found.get("url", ""))
        except forms.ValidationError as refusal:
            self.add_error(name, refusal)

    def _typed_secrets(self) -> list[str]:
        """Return the names of the secret headers whose values were typed anew."""
        rows = [
            row
            for name, field in self.fields.items()
            if isinstance(field, HeadersField)
            for row in self.cleaned_data[name]
        ]
        return [row["name"] for row in rows if row["secret"] and row["value"]]

    def _given(self, found: Mapping[str, Any]) -> dict[str, Any]:
        given = {
            name: found[name]
            for name in self.kind.config.model_fields
            if found.get(name) is not None
        }
        for name, value in given.items():
            if isinstance(self.fields[name], HeadersField):
                given[name] = header_settings(value)
        return given

    def _config(self, found: Mapping[str, Any]) -> dict[str, Any]:
        config = self.kind.config.model_validate(self._given(found))
        return config.model_dump(mode="json", exclude_unset=True)
