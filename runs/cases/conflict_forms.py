"""Choose, field by field, between one's own edit of a case and what somebody else saved since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.forms import BoundField
from django.http import QueryDict

from runs.cases.checks import mapping_text, own_text, recorded_text
from runs.cases.services import CaseChangedError, add_case, change_case
from runs.models.suites import Case, Suite
from runs.specs.suites import CaseSpec
from runs.suites.differences import ChangedBy
from runs.suites.forms import WORDS
from runs.texts import DiffLine, text_diff

MAX_SHOWN_LENGTH = 4_000
CASE_FIELDS: Mapping[str, str] = {
    "title": "Title",
    "tags": "Tags",
    "input": "Messages",
    "expected_output": "Expected output",
    "expected_outcomes": "Expected outcomes",
    "criteria": "Criteria",
    "metadata": "Metadata",
    "evaluators": "Own evaluators",
    "recorded_output": "Recorded output",
}


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """A field before and after; `lines` are a diff by words, None if that would be unreadable."""

    old: str
    new: str
    lines: Sequence[DiffLine] | None

    @property
    def is_same(self) -> bool:
        """Tell whether nothing differs."""
        return self.old == self.new


def same_field(name: str, old: CaseSpec, new: CaseSpec) -> bool:
    """Tell whether a field is the same in two revisions."""
    names = (name, "evaluators_append") if name == "evaluators" else (name,)
    return all(getattr(old, part) == getattr(new, part) for part in names)


def field_diff(name: str, old: CaseSpec, new: CaseSpec) -> FieldDiff:
    """Return how a field differs between two revisions, long texts cut."""
    before, after = field_text(name, old), field_text(name, new)
    lines = text_diff(before, after) if before != after else None
    return FieldDiff(_cut(before), _cut(after), lines)


def field_text(name: str, case: CaseSpec) -> str:
    """Return a field as text for comparison by eye, "" if it is empty."""
    match name:
        case "tags":
            return ", ".join(case.tags)
        case "input":
            return "\n".join(f"{turn['role']}: {turn['content']}" for turn in case.input)
        case "expected_outcomes":
            return "\n".join(f"{n}. {text}" for n, text in enumerate(case.expected_outcomes, 1))
        case "metadata":
            return mapping_text(case.metadata)
        case "evaluators" if case.evaluators is not None:
            where = "in addition to" if case.evaluators_append else "in place of"
            return f"{where} the suite's\n{own_text(case.evaluators)}"
        case "recorded_output":
            return recorded_text(case.recorded_output)[0]
        case _:
            return str(getattr(case, name) or "")


def _cut(text: str) -> str:
    left = len(text) - MAX_SHOWN_LENGTH
    return f"{text[:MAX_SHOWN_LENGTH]} … and {left} more characters" if left > 0 else text


MINE, THEIRS = "mine", "theirs"
CHOICE = "choice-"


@dataclass(frozen=True, slots=True)
class ConflictRow:
    """One changed field: its old value, both changes, who made them, and the choice if both did."""

    label: str
    before: str
    theirs: FieldDiff
    mine: FieldDiff
    who: str
    choice: BoundField | None


class CaseConflictForm(forms.Form):
    """One choice for each field that both sides changed; other changes are taken as they are."""

    resolve = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, changed: CaseChangedError, data: QueryDict | None = None) -> None:
        """Add a choice for each field that both sides changed."""
        revision = changed.theirs.revision if changed.theirs else 0
        sent = data if data is not None and "resolve" in data else None
        super().__init__(sent, initial={"resolve": revision})
        self.changed, self._revision = changed, revision
        base, theirs = _content(changed.base, changed.mine), _content(changed.theirs, changed.mine)
        self._base, self._theirs = base, theirs
        self._who = {name: _who(name, base, theirs, changed.mine) for name in CASE_FIELDS}
        for name, who in self._who.items():
            if who is ChangedBy.BOTH and changed.theirs:
                self.fields[f"{CHOICE}{name}"] = forms.ChoiceField(
                    label=CASE_FIELDS[name],
                    choices=((THEIRS, "Take theirs"), (MINE, "Keep mine")),
                    widget=forms.RadioSelect,
                    error_messages={"required": "Choose which to keep."},
                )

    def clean_resolve(self) -> int:
        """Refuse choices that were made before the case changed again."""
        if self.cleaned_data["resolve"] != self._revision:
            raise forms.ValidationError(
                "The case was saved again after you made these choices. Check them again."
            )
        return self._revision

    def rows(self) -> Sequence[ConflictRow]:
        """Return every changed field, in the order of the form."""
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
        """Store the case as chosen; raises CaseChangedError if it was saved again in the meantime."""
        mine = self.changed.mine
        if self.changed.theirs is None:
            return add_case(suite, mine, by=by)
        taken: dict[str, Any] = {}
        for name, who in self._who.items():
            if who is ChangedBy.THEIRS or self.cleaned_data.get(f"{CHOICE}{name}") == THEIRS:
                taken[name] = getattr(self._theirs, name)
                if name == "evaluators":
                    taken["evaluators_append"] = self._theirs.evaluators_append
        merged = mine.replace(**taken)
        return change_case(suite, key, merged, base_revision=self._revision, by=by)


def entered_values(data: QueryDict) -> list[tuple[str, str]]:
    """Return the submitted values, for a page that sends them again."""
    return [
        (name, value)
        for name, values in data.lists()
        if name not in ("csrfmiddlewaretoken", "resolve") and not name.startswith(CHOICE)
        for value in values
    ]


def _content(case: Case | None, otherwise: CaseSpec) -> CaseSpec:
    return case.spec if case else otherwise


def _who(name: str, base: CaseSpec, theirs: CaseSpec, mine: CaseSpec) -> ChangedBy | None:
    """Return who changed a field; None for nobody."""
    changed: Mapping[tuple[bool, bool], ChangedBy] = {
        (True, False): ChangedBy.THEIRS,
        (False, True): ChangedBy.MINE,
    }
    sides = (not same_field(name, base, theirs), not same_field(name, base, mine))
    if sides == (True, True):
        return ChangedBy.SAME if same_field(name, theirs, mine) else ChangedBy.BOTH
    return changed.get(sides)
