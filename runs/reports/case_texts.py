"""The fields of a case as texts, and in which words two revisions of one differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runs.formats import CaseContent
from runs.formats.case_parts import mapping_text, own_text, recorded_text
from runs.reports.text_diff import DiffLine, text_diff

LONGEST_SHOWN = 4_000
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
    """A field before and after; `lines` say word by word what differs, None where that is unreadable."""

    old: str
    new: str
    lines: Sequence[DiffLine] | None

    @property
    def is_same(self) -> bool:
        """Tell whether nothing differs."""
        return self.old == self.new


def same_field(name: str, one: CaseContent, other: CaseContent) -> bool:
    """Tell whether two revisions have the same value there."""
    names = (name, "evaluators_append") if name == "evaluators" else (name,)
    return all(getattr(one, part) == getattr(other, part) for part in names)


def field_diff(name: str, old: CaseContent, new: CaseContent) -> FieldDiff:
    """Return what differs in a field from one revision to another, long texts cut."""
    before, after = field_text(name, old), field_text(name, new)
    lines = text_diff(before, after) if before != after else None
    return FieldDiff(_cut(before), _cut(after), lines)


def field_text(name: str, case: CaseContent) -> str:
    """Return a field as a text that is compared by eye, "" where nothing is said."""
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
            where = "beside" if case.evaluators_append else "in place of"
            return f"{where} the suite's\n{own_text(case.evaluators)}"
        case "recorded_output":
            return recorded_text(case.recorded_output)[0]
        case _:
            return str(getattr(case, name) or "")


def _cut(text: str) -> str:
    left = len(text) - LONGEST_SHOWN
    return f"{text[:LONGEST_SHOWN]} … and {left} characters more" if left > 0 else text
