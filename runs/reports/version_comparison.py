"""Two versions of a suite beside each other: every value that differs, in words, old and new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.kinds import all_kinds
from runs.drafting import edited_parts
from runs.drafting.differences import (
    CaseChange,
    Change,
    EvaluatorChange,
    FileChange,
    VersionDifference,
    compare_versions,
)
from runs.models import Suite, SuiteVersion
from runs.reports.text_diff import DiffLine, text_diff
from runs.reports.version_words import name_of, spelt

CASES_SHOWN = 100
VERSIONS_OFFERED = 200
LONG = 40
LONGEST = 20_000
# What of a case a revision can change, as pages call it.
OF_A_CASE: Mapping[str, str] = {
    "title": "title",
    "input": "input",
    "expected_output": "expected output",
    "expected_outcomes": "expected outcomes",
    "criteria": "criteria",
    "tags": "tags",
    "metadata": "metadata",
    "evaluators": "own evaluators",
    "evaluators_append": "how its own evaluators join",
    "recorded_output": "recorded output",
}


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One value, old and new; None where there was or is none. `lines` lay texts side by side."""

    name: str
    old: str | None
    new: str | None
    lines: tuple[DiffLine, ...] | None = None

    @property
    def is_long(self) -> bool:
        """Tell whether it wants a line of its own."""
        return any(text and (len(text) > LONG or "\n" in text) for text in (self.old, self.new))


@dataclass(frozen=True, slots=True)
class EvaluatorRow:
    """One evaluator that differs, and what of it; `path` is "" for the whole tree."""

    what: str
    path: str
    old_path: str
    icon: str
    label: str
    values: Sequence[ValueRow]


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case that differs; `parts` names what of it changed."""

    what: str
    key: str
    old_revision: int | None
    new_revision: int | None
    parts: Sequence[str]


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """What differs from the one version to the other; of the cases one page."""

    older: SuiteVersion
    newer: SuiteVersion
    counts: Sequence[str]
    values: Sequence[ValueRow]
    evaluators: Sequence[EvaluatorRow]
    files: Sequence[FileChange]
    cases: Sequence[CaseRow]
    case_count: int
    first_case: int
    next_case: int | None
    is_reordered: bool
    is_empty: bool


def version_comparison(
    suite: Suite, older: SuiteVersion, newer: SuiteVersion, *, first_case: int = 0
) -> VersionComparison:
    """Return what differs, with a hundred cases from a place on, in a fixed number of queries."""
    difference = compare_versions(older.content, newer.content)
    shown = difference.cases[first_case : first_case + CASES_SHOWN]
    after = first_case + len(shown)
    values, evaluators = setting_rows(difference, (_scale(older), _scale(newer)))
    return VersionComparison(
        older=older,
        newer=newer,
        counts=difference.words,
        values=values,
        evaluators=evaluators,
        files=difference.files,
        cases=_cases(suite, shown),
        case_count=len(difference.cases),
        first_case=first_case,
        next_case=after if after < len(difference.cases) else None,
        is_reordered=difference.is_reordered,
        is_empty=difference.is_empty,
    )


def setting_rows(
    difference: VersionDifference, scales: tuple[int, int]
) -> tuple[list[ValueRow], list[EvaluatorRow]]:
    """Return what differs in description and policy, and in each evaluator."""
    values = list(_values((*difference.said, *difference.policy), scales))
    return values, list(_evaluators(difference, scales))


def versions_offered(suite: Suite) -> Sequence[tuple[int, str]]:
    """Return number and note of the versions that can be chosen, the newest first."""
    return list(suite.versions.values_list("number", "note")[:VERSIONS_OFFERED])


def _scale(version: SuiteVersion) -> int:
    scale: int = edited_parts(version.content)["policy"]["scale"]
    return scale


def _values(changes: Sequence[Change], scales: tuple[int, int]) -> Iterator[ValueRow]:
    for one in changes:
        old, new = spelt(one.name, one.old, scales[0]), spelt(one.name, one.new, scales[1])
        lines = None
        if old and new and isinstance(one.new, str) and " " in old and " " in new:
            lines = text_diff(old, new)
        yield ValueRow(name_of(one.name), _cut(old), _cut(new), lines)


def _cut(text: str | None) -> str | None:
    return f"{text[:LONGEST]} …" if text is not None and len(text) > LONGEST else text


def _evaluators(difference: VersionDifference, scales: tuple[int, int]) -> Iterator[EvaluatorRow]:
    for one in difference.evaluators:
        kind = all_kinds().get(one.kind)
        yield EvaluatorRow(
            what=one.what,
            path=one.path,
            old_path=_moved_from(one),
            icon=kind.icon if kind else "e-code",
            label=kind.label if kind else f"{one.kind}, unknown here",
            values=list(_values(one.changes, scales)),
        )


def _moved_from(one: EvaluatorChange) -> str:
    """Return the earlier path where it was another; an order alone has none."""
    return one.old_path if one.what in ("moved", "renamed") and one.old_path != one.path else ""


def _cases(suite: Suite, shown: Sequence[CaseChange]) -> list[CaseRow]:
    changed = [one for one in shown if one.what == "changed"]
    rows = suite.cases.filter(key__in=[one.key for one in changed])
    revisions: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows.values("key", "revision", *OF_A_CASE) if changed else ():
        revisions[row["key"], row["revision"]] = row
    return [
        CaseRow(one.what, one.key, one.old_revision, one.new_revision, _parts(one, revisions))
        for one in shown
    ]


def _parts(one: CaseChange, revisions: Mapping[tuple[str, int], Mapping[str, Any]]) -> list[str]:
    old = revisions.get((one.key, one.old_revision or 0))
    new = revisions.get((one.key, one.new_revision or 0))
    if old is None or new is None:
        return []
    return [words for name, words in OF_A_CASE.items() if old[name] != new[name]]
