"""Decide, field by field, between what one entered of a case and what somebody saved meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.forms import BoundField
from django.http import QueryDict

from runs.drafting.merging import Who
from runs.exports import case_content
from runs.formats import CaseContent
from runs.forms.conflicts import WORDS
from runs.models import Case, Suite
from runs.reports.case_texts import CASE_FIELDS, FieldDiff, field_diff, same_field
from runs.services import CaseChangedError, add_case, change_case

MINE, THEIRS = "mine", "theirs"
CHOICE = "choice-"


@dataclass(frozen=True, slots=True)
class ConflictRow:
    """One field that somebody changed: what it was, theirs and mine against that, and who decides."""

    label: str
    before: str
    theirs: FieldDiff
    mine: FieldDiff
    who: str
    choice: BoundField | None


class CaseConflictForm(forms.Form):
    """One choice for each field that both changed; the others are taken from whoever changed them."""

    settle = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, changed: CaseChangedError, data: QueryDict | None = None) -> None:
        """Make a field for each that is to be decided."""
        at = changed.theirs.revision if changed.theirs else 0
        sent = data if data is not None and "settle" in data else None
        super().__init__(sent, initial={"settle": at})
        self.changed, self._at = changed, at
        base, theirs = _content(changed.base, changed.mine), _content(changed.theirs, changed.mine)
        self._base, self._theirs = base, theirs
        self._who = {name: _who(name, base, theirs, changed.mine) for name in CASE_FIELDS}
        for name, who in self._who.items():
            if who is Who.BOTH and changed.theirs:
                self.fields[f"{CHOICE}{name}"] = forms.ChoiceField(
                    label=CASE_FIELDS[name],
                    choices=((THEIRS, "Take theirs"), (MINE, "Keep mine")),
                    widget=forms.RadioSelect,
                    error_messages={"required": "Choose whose is to be kept."},
                )

    def clean_settle(self) -> int:
        """Refuse choices that were made before the case changed once more."""
        if self.cleaned_data["settle"] != self._at:
            raise forms.ValidationError(
                "The case was saved again since these choices were made. Look at them once more."
            )
        return self._at

    def rows(self) -> Sequence[ConflictRow]:
        """Return every field that somebody changed, in the order of the form."""
        return [
            ConflictRow(
                label=CASE_FIELDS[name],
                before=field_diff(name, self._base, self._base).old,
                theirs=field_diff(name, self._base, self._theirs),
                mine=field_diff(name, self._base, self.changed.mine),
                who=WORDS[who],
                choice=self[f"{CHOICE}{name}"] if f"{CHOICE}{name}" in self.fields else None,
            )
            for name, who in self._who.items()
            if who is not None
        ]

    def save(self, suite: Suite, key: str, by: User) -> Case:
        """Store the case as decided; raises CaseChangedError when it was saved again meanwhile."""
        mine = self.changed.mine
        if self.changed.theirs is None:
            return add_case(suite, mine, by=by)
        taken: dict[str, Any] = {}
        for name, who in self._who.items():
            if who is Who.THEIRS or self.cleaned_data.get(f"{CHOICE}{name}") == THEIRS:
                taken[name] = getattr(self._theirs, name)
                if name == "evaluators":
                    taken["evaluators_append"] = self._theirs.evaluators_append
        merged = replace(mine, **taken)
        return change_case(suite, key, merged, base_revision=self._at, by=by)


def carried(data: QueryDict) -> list[tuple[str, str]]:
    """Return what was entered, for a page that sends it once more."""
    return [
        (name, value)
        for name, values in data.lists()
        if name not in ("csrfmiddlewaretoken", "settle") and not name.startswith(CHOICE)
        for value in values
    ]


def _content(case: Case | None, otherwise: CaseContent) -> CaseContent:
    return case_content(case) if case else otherwise


def _who(name: str, base: CaseContent, theirs: CaseContent, mine: CaseContent) -> Who | None:
    """Tell who changed a field; None for nobody."""
    changed: Mapping[tuple[bool, bool], Who] = {(True, False): Who.THEIRS, (False, True): Who.MINE}
    sides = (not same_field(name, base, theirs), not same_field(name, base, mine))
    if sides == (True, True):
        return Who.SAME if same_field(name, theirs, mine) else Who.BOTH
    return changed.get(sides)
