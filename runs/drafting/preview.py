"""Drafted cases as their page, the API and the command line show them: read as cases, with problems and duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from runs.cases.preview import EDITED, PreviewRow, known_cases, with_findings
from runs.cases.services import DRAFTED
from runs.drafting.questions import give_keys
from runs.formats.table_cases import ReadCases, read_cases
from runs.formats.table_mapping import CaseMapping, CasePart
from runs.formats.tables import Table, TableRow
from runs.models.jobs import ModelJob
from runs.specs.suites import CaseSpec

# The fields of a case that can be left out, with their names.
FIELDS: Mapping[str, str] = {
    "title": "Titles",
    "expected_output": "Expected outputs",
    "expected_outcomes": "Expected outcomes",
    "tags": "Tags",
    "metadata": "Metadata",
}
PARTS: Mapping[str, CasePart] = {**EDITED, "metadata": CasePart.METADATA}


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
    def rows(self) -> Sequence[PreviewRow]:
        """Return the drafted cases in their order."""
        stored: Sequence[Mapping[str, Any]] = self.outcome.get("rows", ())
        taken = known_cases(self.suite).keys
        keys = give_keys(stored, taken)
        read = self._read(stored, keys, taken)
        cases = dict(zip(read.places, read.cases, strict=True))
        reasons = {row.line: f"{row.column} {row.reason}.".lstrip() for row in read.rejected}
        rows = [
            PreviewRow(
                number=number,
                key=key,
                cells=row,
                case=cases.get(number),
                choice=row.get("taken"),
                part=self._part(row),
                problems=[reasons[number]] if number in reasons else [],
                left_out=row.get("left_out", ()),
            )
            for number, (row, key) in enumerate(zip(stored, keys, strict=True))
        ]
        return with_findings(rows, self.suite)

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
