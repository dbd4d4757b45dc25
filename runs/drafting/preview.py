"""Drafted cases as their page, the API and the command line show them: read as cases, with problems and duplicates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Count, Max

from runs.cases.checks import CaseChecks
from runs.cases.services import DRAFTED
from runs.drafting.duplicates import EXACT, KnownTexts, RepeatedCase, compared_text
from runs.drafting.questions import give_keys
from runs.formats.table_cases import ReadCases, read_cases
from runs.formats.table_mapping import CaseMapping, CasePart
from runs.formats.tables import Table, TableRow
from runs.models.jobs import ModelJob
from runs.models.runs import RecentValues
from runs.models.suites import Suite
from runs.specs.suites import CaseSpec

# The fields of a case that can be left out, with their names.
FIELDS: Mapping[str, str] = {
    "title": "Titles",
    "expected_output": "Expected outputs",
    "expected_outcomes": "Expected outcomes",
    "tags": "Tags",
    "metadata": "Metadata",
}
PARTS: Mapping[str, CasePart] = {
    "key": CasePart.KEY,
    "input": CasePart.INPUT,
    "title": CasePart.TITLE,
    "expected_output": CasePart.EXPECTED_OUTPUT,
    "expected_outcomes": CasePart.OUTCOMES,
    "tags": CasePart.TAGS,
    "metadata": CasePart.METADATA,
}


@dataclass(frozen=True, slots=True)
class DraftedRow:
    """One drafted case: its cells, the case they are read as, and what speaks against storing it.

    `problems` are sentences; with one it cannot be stored. `left_out` are fields of the reply that a model may not
    set. `duplicates` are cases of the suite, `repeats` earlier rows, by their keys.
    """

    number: int
    key: str
    cells: Mapping[str, Any]
    case: CaseSpec | None
    is_taken: bool
    part: str
    problems: Sequence[str]
    left_out: Sequence[str]
    duplicates: Sequence[RepeatedCase]
    repeats: Sequence[RepeatedCase]

    @property
    def is_duplicate(self) -> bool:
        """Tell whether another case says exactly the same."""
        return any(duplicate.is_exact for duplicate in (*self.duplicates, *self.repeats))

    @property
    def is_unread(self) -> bool:
        """Tell whether the model gave nothing here that could be edited."""
        return "unread" in self.cells

    @property
    def shown_turns(self) -> Sequence[Mapping[str, Any]]:
        """Return the messages of the input, as they are read, or else its text."""
        return self.case.input if self.case else [{"role": "user", "content": self.input_text}]

    @property
    def input_text(self) -> str:
        """Return the input as a person edits it: a text, or a conversation as JSON."""
        value = self.cells.get("input") or ""
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)

    @property
    def outcomes_text(self) -> str:
        """Return the expected outcomes, one per line."""
        return "\n".join(self.cells.get("expected_outcomes") or ())

    @property
    def tags_text(self) -> str:
        """Return the tags, separated by commas."""
        return ", ".join(self.cells.get("tags") or ())


class Proposal:
    """The drafted cases of a job for its suite as it is now."""

    def __init__(self, job: ModelJob) -> None:
        """Take the job without reading the suite."""
        self.job, self.suite = job, job.suite
        self.outcome: Mapping[str, Any] = job.outcome or {}

    @property
    def fields(self) -> frozenset[str]:
        """Return the fields that are kept."""
        return frozenset(self.outcome.get("fields", FIELDS))

    @property
    def stored(self) -> Mapping[str, int] | None:
        """Return what was stored, in counts; None before."""
        return self.outcome.get("stored")

    @property
    def left_out_count(self) -> int:
        """Return how many cases replies had beyond those that were asked for."""
        return sum(batch["left_out"] for batch in self.outcome.get("batches", ()))

    @property
    def unread_batches(self) -> Sequence[str]:
        """Return why replies could not be read."""
        return [batch["problem"] for batch in self.outcome.get("batches", ()) if batch["problem"]]

    @cached_property
    def rows(self) -> Sequence[DraftedRow]:
        """Return the drafted cases in their order."""
        stored: Sequence[Mapping[str, Any]] = self.outcome.get("rows", ())
        known = _known(self.suite)
        keys = give_keys(stored, known.keys)
        read = self._read(stored, keys, known.keys)
        cases = dict(zip(read.lines, read.cases, strict=True))
        reasons = {row.line: f"{row.column} {row.reason}.".lstrip() for row in read.rejected}
        texts = [compared_text(cases[n].input) if n in cases else "" for n in range(len(stored))]
        earlier = KnownTexts([str(n) for n in range(len(texts))], texts)
        checks = CaseChecks(self.suite)
        rows = []
        for number, row in enumerate(stored):
            case = cases.get(number)
            problems = [reasons[number]] if number in reasons else []
            for field, found in (checks.problems(case) if case else {}).items():
                problems += [f"{field}: {problem}" for problem in found]
            duplicates = known.texts.repeated_by(texts[number])
            repeats = [
                RepeatedCase(keys[place], duplicate.ratio)
                for duplicate in earlier.repeated_by(texts[number], most=len(texts))
                if (place := int(duplicate.key)) < number
            ]
            is_exact = any(duplicate.ratio == EXACT for duplicate in (*duplicates, *repeats))
            rows.append(
                DraftedRow(
                    number=number,
                    key=keys[number],
                    cells=row,
                    case=case,
                    is_taken=bool(row.get("taken", not is_exact and not problems)),
                    part=self._part(row),
                    problems=[problem[:1].upper() + problem[1:] for problem in problems],
                    left_out=row.get("left_out", ()),
                    duplicates=duplicates,
                    repeats=repeats,
                )
            )
        return rows

    def chosen_cases(self) -> list[CaseSpec]:
        """Return the cases that are ticked."""
        return [row.case for row in self.rows if row.is_taken and row.case is not None]

    def _part(self, row: Mapping[str, Any]) -> str:
        parts = self.job.request.get("parts", ())
        return str(parts[row["part"]]["label"]) if row["part"] < len(parts) else ""

    def _origin(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return what each case keeps of where it comes from."""
        origin = {"by": self.job.model_name, "from": str(self.job.request.get("from", ""))}
        origin["on"] = self.job.asked_at.date().isoformat()
        part = self._part(row)
        return {**origin, "part": part} if part and part != origin["from"] else origin

    def _read(
        self, stored: Sequence[Mapping[str, Any]], keys: Sequence[str], taken: frozenset[str]
    ) -> ReadCases:
        """Read the rows as the cases of a table are read, by their numbers as lines."""
        rows = tuple(
            TableRow(number, (row.get("text", ""),), row["unread"])
            if "unread" in row
            else TableRow(number, self._cells(row, key))
            for number, (row, key) in enumerate(zip(stored, keys, strict=True))
        )
        table = Table(tuple(PARTS), rows, is_json=True)
        return read_cases(table, CaseMapping(tuple(PARTS.values())), taken=taken)

    def _cells(self, row: Mapping[str, Any], key: str) -> tuple[Any, ...]:
        kept = {name: row.get(name) for name in FIELDS if name in self.fields}
        metadata = {**(kept.get("metadata") or {}), DRAFTED: self._origin(row)}
        cells = {**kept, "key": key, "input": row.get("input"), "metadata": metadata}
        return tuple(cells.get(name) for name in PARTS)


@dataclass(frozen=True, slots=True)
class _KnownCases:
    """The keys of a suite's current cases, and their inputs."""

    keys: frozenset[str]
    texts: KnownTexts


_kept: RecentValues[_KnownCases] = RecentValues(size=4)


def _known(suite: Suite) -> _KnownCases:
    """Return the cases of a suite to compare with; this process keeps those of the last few versions."""
    current = suite.cases.filter(is_current=True)
    state = current.aggregate(Max("pk"), Count("pk"))

    def read() -> _KnownCases:
        rows = list(current.values_list("key", "input"))
        keys = [key for key, _ in rows]
        return _KnownCases(
            frozenset(keys), KnownTexts(keys, [compared_text(turns) for _, turns in rows])
        )

    return _kept.get((suite.pk, suite.version, *state.values()), read)
