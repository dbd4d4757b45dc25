"""What the pages about kinds of evaluators show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from evaluators.kind_forms import KindForm, settings_of
from evaluators.kinds import UnknownKindError, all_kinds, kind_of, spelled_as
from evaluators.kinds._base import Kind
from evaluators.kinds._yaml import yaml_of
from evaluators.scoring.tree import COMPOSITE


@dataclass(frozen=True, slots=True)
class KindPage:
    """One kind with its settings and the type names that stand for it."""

    kind: Kind
    settings: Sequence[Mapping[str, Any]]
    spellings: Sequence[tuple[str, str]]

    @property
    def can_be_tried(self) -> bool:
        """Tell whether its settings alone make an evaluator; a composite needs others inside."""
        return self.kind.name != COMPOSITE


class KindTrialForm(KindForm):
    """Settings to try: checked like those of a suite file, and written as one. Nothing is stored."""

    name = forms.CharField(
        max_length=100, help_text="Unique among its siblings in the tree.", empty_value=""
    )
    weight = forms.FloatField(min_value=0, initial=1, help_text="Weight among its siblings.")
    required = forms.BooleanField(
        required=False, help_text="The result fails when this evaluator scores 0."
    )
    negate = forms.BooleanField(required=False, help_text="Turn a score s into 1 − s.")

    def clean_name(self) -> str:
        """Refuse the slash, which parts the names of a path."""
        name: str = self.cleaned_data["name"]
        if "/" in name:
            raise forms.ValidationError("A name holds no slash.")
        return name

    def written(self) -> str:
        """Return the evaluator as it stands in a suite file."""
        chosen = self.cleaned_data
        usual = self.kind.config.model_validate(self.config)
        changed = usual.model_dump(mode="json", exclude_defaults=True)
        spelling, settings = spelled_as(self.kind.name, changed)
        facts = {
            "name": chosen["name"],
            "type": spelling,
            "weight": chosen["weight"] if chosen["weight"] != 1 else None,
            "required": chosen["required"] or None,
            "negate": chosen["negate"] or None,
        }
        given = {key: value for key, value in facts.items() if value is not None}
        return yaml_of([{**given, **settings}])


def kinds_shown() -> list[Kind]:
    """Return the kinds a suite may use, by label."""
    return sorted(
        (kind for kind in all_kinds().values() if kind.in_gallery), key=lambda kind: kind.label
    )


def kind_page(name: str) -> KindPage:
    """Return everything about one kind; raises UnknownKindError for one the gallery does not show."""
    kind = kind_of(name)
    if not kind.in_gallery:
        raise UnknownKindError(f"The kind {name!r} is used by Evalsite itself.")
    spellings = {kind.name: {}, **kind.spellings}
    return KindPage(
        kind=kind,
        settings=settings_of(kind),
        spellings=[(spelling, _stands_for(preset)) for spelling, preset in spellings.items()],
    )


def _stands_for(preset: Mapping[str, Any]) -> str:
    return ", ".join(_preset_words(key, value) for key, value in preset.items())


def _preset_words(key: str, value: Any) -> str:
    """Return a setting that a name brings along; of one it leaves to be written, the setting alone."""
    if value is None:
        return key
    return f"{key}: {str(value).lower() if isinstance(value, bool) else value}"
