"""Decide, value by value, between one's draft and what others saved meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.forms import BoundField

from evaluators.scoring.types import DomainError
from runs.drafting.merging import ARRANGEMENT, Field, Side, Who
from runs.models import SuiteDraft
from runs.services.saving_drafts import Conflict, rebase_draft

WORDS: Mapping[Who, str] = {
    Who.MINE: "only yours",
    Who.THEIRS: "only theirs",
    Who.SAME: "both alike",
    Who.BOTH: "both",
}


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One value that somebody changed, spelt out, with the field that decides where both did."""

    place: str
    name: str
    base: str
    theirs: str
    mine: str
    who: str
    choice: BoundField | None


class ConflictForm(forms.Form):
    """One choice for every value that both changed; the others are taken from whoever changed them."""

    stamp = forms.CharField(widget=forms.HiddenInput)
    version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, conflict: Conflict, *args: Any, **options: Any) -> None:
        """Make a field for each value to decide."""
        initial = {"stamp": conflict.draft.stamp, "version": conflict.version}
        super().__init__(*args, **{"initial": initial} | options)
        self.conflict = conflict
        self._names = {
            one.key: f"choice-{place}" for place, one in enumerate(conflict.merge.fields)
        }
        for one in conflict.merge.open:
            self.fields[self._names[one.key]] = forms.ChoiceField(
                label=f"{_place(one)} {one.name}".strip(),
                choices=((Side.THEIRS.value, "Take theirs"), (Side.MINE.value, "Keep mine")),
                widget=forms.RadioSelect,
                error_messages={"required": "Choose whose is to be kept."},
            )

    def rows(self) -> list[ValueRow]:
        """Return every value that somebody changed, in the order of the suite."""
        return [
            ValueRow(
                place=_place(one),
                name=one.name.replace("_", " "),
                base=spelt(one.base),
                theirs=spelt(one.theirs),
                mine=spelt(one.mine),
                who=WORDS[one.who],
                choice=self[self._names[one.key]] if one.is_open else None,
            )
            for one in self.conflict.merge.fields
        ]

    def settle(self) -> SuiteDraft | None:
        """Bring the draft up to their version; None, with the reason among the errors, when refused."""
        found = self.cleaned_data
        choices = {
            key: found[name] for key, name in self._names.items() if found.get(name) is not None
        }
        try:
            return rebase_draft(
                self.conflict.draft, found["stamp"], version=found["version"], choices=choices
            )
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None


def spelt(value: Any) -> str:
    """Return a value as it is compared on a page: texts as they are, paths one a line, the rest as JSON."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value or "(empty)"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(item or "(the whole)" for item in value) or "(none)"
    return json.dumps(value, ensure_ascii=False)


def _place(one: Field) -> str:
    if one.evaluator is None:
        return "Evaluators and their order" if one.key == ARRANGEMENT else ""
    return one.evaluator or "the whole suite"
