"""What the audit keeps of a change from one version to another: the values that differ, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runs.drafting.differences import EvaluatorChange, VersionDifference

MOST = 200
LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """The values before and after, each by the name of what differs."""

    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


def facts_of_change(difference: VersionDifference) -> ChangeFacts:
    """Return what differs, evaluators by path and setting; long texts cut, and of very many the first."""
    found = ChangeFacts()
    for one in (*difference.said, *difference.policy):
        _note(found, one.name, one.old, one.new)
    for evaluator in difference.evaluators:
        _note_evaluator(found, evaluator)
    for file in difference.files:
        _note(found, f"file {file.path}", file.old_hash[:12] or None, file.new_hash[:12] or None)
    for case in difference.cases:
        _note(found, f"case {case.key}", case.old_revision, case.new_revision)
    return found


def _note_evaluator(found: ChangeFacts, one: EvaluatorChange) -> None:
    name = f"evaluator {one.path or 'of the whole suite'}"
    if one.what == "added":
        _note(found, name, None, one.kind)
    elif one.what == "removed":
        _note(found, name, one.kind, None)
    elif one.what != "changed":
        _note(found, f"{name}: {one.what}", one.old_path, one.path)
    for change in one.changes:
        _note(found, f"{name}: {change.name}", change.old, change.new)


def _note(found: ChangeFacts, name: str, old: Any, new: Any) -> None:
    if len(found.before) < MOST:
        found.before[name], found.after[name] = _cut(old), _cut(new)


def _cut(value: Any) -> Any:
    if value == "":
        return None
    return f"{value[:LONGEST]} …" if isinstance(value, str) and len(value) > LONGEST else value
