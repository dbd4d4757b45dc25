"""Map the columns of a table to the parts of a case: chosen by a person, or guessed from the names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

from runs.formats.tables import REASON_COLUMNS, Table


class CasePart(StrEnum):
    """A part of a case that a column can hold."""

    IGNORED = "ignored"
    KEY = "key"
    TITLE = "title"
    INPUT = "input"
    SYSTEM = "system"
    EXPECTED_OUTPUT = "expected_output"
    OUTCOMES = "expected_outcomes"
    ASSERTION = "assertion"
    CRITERIA = "criteria"
    TAGS = "tags"
    METADATA = "metadata"
    OUTPUT = "output"


LABELS: Mapping[CasePart, str] = {
    CasePart.IGNORED: "Left out",
    CasePart.KEY: "Key",
    CasePart.TITLE: "Title",
    CasePart.INPUT: "Input",
    CasePart.SYSTEM: "System prompt",
    CasePart.EXPECTED_OUTPUT: "Expected output",
    CasePart.OUTCOMES: "Expected outcomes",
    CasePart.ASSERTION: "promptfoo assertion",
    CasePart.CRITERIA: "Criteria",
    CasePart.TAGS: "Tags",
    CasePart.METADATA: "Metadata",
    CasePart.OUTPUT: "Recorded output",
}
# Several columns may each hold some of these.
SEVERAL = (
    CasePart.IGNORED,
    CasePart.OUTCOMES,
    CasePart.ASSERTION,
    CasePart.TAGS,
    CasePart.METADATA,
)


class Split(StrEnum):
    """How a cell with several expected outcomes is split; a JSON list is always read as a list."""

    LINES = "lines"
    SEMICOLON = "semicolon"
    BAR = "bar"
    NONE = "none"


SEPARATORS = {Split.LINES: "\n", Split.SEMICOLON: ";", Split.BAR: "|"}


@dataclass(frozen=True, slots=True)
class CaseMapping:
    """The part of each column, in order, and how cells are read.

    With `last_answer` the answer that ends a conversation is the expected output.
    """

    parts: tuple[CasePart, ...]
    split: Split = Split.LINES
    last_answer: bool = field(default=False)

    def problems(self) -> tuple[str, ...]:
        """Return the problems of the mapping: no input, or a part in two columns."""
        messages = [
            f"{self.parts.count(part)} columns are the {LABELS[part].lower()}; choose one"
            for part in CasePart
            if part not in SEVERAL and self.parts.count(part) > 1
        ]
        if CasePart.INPUT not in self.parts:
            messages.insert(0, "no column is the input; choose the one with what a case asks")
        return tuple(messages)


# By names as they are after `_plain`; the first column of a part wins, the earlier name first.
NAMES: Mapping[CasePart, tuple[str, ...]] = {
    CasePart.KEY: (
        *(
            "id",
            "key",
            "case",
            "case id",
            "case key",
            "test id",
            "eval id",
            "example id",
            "item id",
        ),
        *("dataset item id", "external id", "name of case", "nr", "no", "number", "#"),
    ),
    CasePart.INPUT: (
        *("input", "question", "prompt", "messages", "inputs", "query", "user input", "vars"),
        *("user message", "message", "conversation", "input messages", "user query", "user prompt"),
        *("request", "instruction", "text", "frage"),
    ),
    CasePart.SYSTEM: ("system", "system prompt", "system message"),
    CasePart.EXPECTED_OUTPUT: (
        *("expected output", "expected", "expected answer", "reference", "reference answer"),
        *("reference output", "reference outputs", "answer", "ideal", "ground truth", "target"),
        *("expected response", "ideal answer", "gold", "gold answer", "label", "antwort"),
    ),
    CasePart.CRITERIA: ("criteria", "rubric", "grading criteria"),
    CasePart.TITLE: ("title", "name", "description"),
    CasePart.OUTPUT: (
        *("output", "response", "recorded output", "actual output", "model output", "completion"),
        *("outputs", "actual", "model response"),
    ),
}
OUTCOMES = re.compile(
    r"(expected )?(outcomes?|must|checks?|checklist|assertions?|expectations?)( \d+)?"
)
TAGS = ("tags", "tag", "labels", "category", "categories")
METADATA = re.compile(r"metadata\b|meta\b")
ASSERTION = re.compile(r"__expected\d*")
PROMPTFOO = {"__description": CasePart.TITLE}
ROWS_TRIED = 50


def suggest(table: Table) -> CaseMapping:
    """Return the most likely mapping, from the column names and the first rows."""
    names = [_plain(name) for name in table.columns]
    parts: list[CasePart | None] = [_of_many(column) for column in table.columns]
    for part, known in NAMES.items():
        free = [place for place, taken in enumerate(parts) if taken is None]
        best = min(
            (place for place in free if names[place] in known),
            key=lambda place: known.index(names[place]),
            default=None,
        )
        if best is not None and part not in parts:
            parts[best] = part
    _turn_output_of_data_sets(table, parts)
    if CasePart.INPUT not in parts and (place := _longest_free(table, parts)) is not None:
        parts[place] = CasePart.INPUT
    chosen = tuple(part or CasePart.METADATA for part in parts)
    return CaseMapping(chosen, _split(table, chosen), _ends_with_answers(table, chosen))


def guessed_input(table: Table) -> str:
    """Return the column that is suggested as the input for its long texts, "" if its name says so."""
    parts = suggest(table).parts
    column = next((n for n, part in enumerate(parts) if part is CasePart.INPUT), None)
    if column is None or _plain(table.columns[column]) in NAMES[CasePart.INPUT]:
        return ""
    return table.columns[column]


def find_part(word: str) -> CasePart | None:
    """Return the part that a person names on the command line, None if there is no such part."""
    name = _plain(word).replace(" ", "_")
    short = {
        "outcomes": CasePart.OUTCOMES,
        "outcome": CasePart.OUTCOMES,
        "expected": CasePart.EXPECTED_OUTPUT,
    }
    if name in ("ignore", "ignored", "left_out"):
        return CasePart.IGNORED
    return short.get(name) or next((part for part in CasePart if part == name), None)


def _plain(name: str) -> str:
    """Return a column's name in lower-case words, so that expectedOutput and expected_output are the same."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return re.sub(r"[\s_\-./:]+", " ", spaced).strip().lower()


def _of_many(column: str) -> CasePart | None:
    """Return the part of a column if several columns may have that part, else None."""
    name = _plain(column)
    written = column.strip().lower()
    if written in REASON_COLUMNS:
        return CasePart.IGNORED
    if ASSERTION.fullmatch(written):
        return CasePart.ASSERTION
    if written.startswith("__"):
        return PROMPTFOO.get(written) or CasePart.METADATA
    if OUTCOMES.fullmatch(name):
        return CasePart.OUTCOMES
    if name in TAGS:
        return CasePart.TAGS
    if METADATA.match(name):
        return CasePart.METADATA
    return None


def _turn_output_of_data_sets(table: Table, parts: list[CasePart | None]) -> None:
    """Map the output to the expected output if it and the input are objects, as in exported data sets."""
    if CasePart.EXPECTED_OUTPUT in parts or not {CasePart.INPUT, CasePart.OUTPUT} <= set(parts):
        return
    asked, message = parts.index(CasePart.INPUT), parts.index(CasePart.OUTPUT)
    first = next((row for row in table.rows if not row.unread), None)
    if first and _is_object(first.cells[asked]) and _is_object(first.cells[message]):
        parts[message] = CasePart.EXPECTED_OUTPUT


def _is_object(cell: Any) -> bool:
    return isinstance(cell, dict) or (isinstance(cell, str) and cell.lstrip()[:1] == "{")


def _longest_free(table: Table, parts: Sequence[CasePart | None]) -> int | None:
    """Return the column with the longest texts among the unmapped ones."""
    free = [place for place, part in enumerate(parts) if part is None]
    rows = [row for row in islice(table.rows, ROWS_TRIED) if not row.unread]
    return max(free, key=lambda at: sum(len(str(row.cells[at])) for row in rows), default=None)


def _texts(table: Table, parts: Sequence[CasePart], part: CasePart) -> list[Any]:
    places = [place for place, other in enumerate(parts) if other is part]
    rows = [row for row in islice(table.rows, ROWS_TRIED) if not row.unread]
    return [cell for row in rows for place in places if (cell := row.cells[place])]


def _split(table: Table, parts: Sequence[CasePart]) -> Split:
    """Return how most cells of outcomes are split: by lines, unless most contain another separator."""
    cells = [cell for cell in _texts(table, parts, CasePart.OUTCOMES) if isinstance(cell, str)]
    cells = [cell for cell in cells if cell.lstrip()[:1] != "["]
    if not cells or any("\n" in cell.strip() for cell in cells):
        return Split.LINES
    for split in (Split.SEMICOLON, Split.BAR):
        if sum(SEPARATORS[split] in cell for cell in cells) * 2 > len(cells):
            return split
    return Split.LINES


def _ends_with_answers(table: Table, parts: Sequence[CasePart]) -> bool:
    """Tell whether the input is a column of conversations, which end with the expected answer."""
    if CasePart.EXPECTED_OUTPUT in parts or CasePart.INPUT not in parts:
        return False
    return _plain(table.columns[parts.index(CasePart.INPUT)]) in ("messages", "conversation")
