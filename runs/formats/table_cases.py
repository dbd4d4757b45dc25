"""Read cases from a table by a column mapping, and write them: CSV, JSON Lines or a JSON list."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from evaluators.reading.json import is_storable
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.formats.lines import UnreadableLineError, read_object, with_plain_numbers
from runs.formats.reading import Fields, Reading
from runs.formats.suite_cases import MAX_KEY_LENGTH, MAX_TITLE_LENGTH, read_turns
from runs.formats.table_mapping import (
    SEPARATORS,
    CaseMapping,
    CasePart,
    Split,
)
from runs.formats.tables import REASON_COLUMNS, Table, TableRow, escape_formula
from runs.formats.yaml import YamlDocument
from runs.specs.problems import UnreadableFileError
from runs.specs.suites import MAX_CASE_TAG_LENGTH, CaseSpec, too_many
from runs.target_kinds._outputs import output_from_json

MARKER = re.compile(r"\A(?:[-*•–]|\d{1,2}[.)]|\[[ xX]?\])\s+")
# What a promptfoo assertion says to a judge, or as an answer in full.
ASKED = re.compile(r"\A(?:llm-rubric|g-eval|factuality|grade)(?:\([^)]*\))?:\s*(.+)\Z", re.S)
CONTAINS = re.compile(r"\A(not-)?i?contains(?:\([^)]*\))?:\s*(.+)\Z", re.S)
EQUALS = re.compile(r"\A(?:equals|similar)(?:\([^)]*\))?:\s*(.+)\Z", re.S)
TYPED = re.compile(r"\A(?:not-)?[a-z][a-z0-9-]*(?:\([^)]*\))?:")
Turn = Mapping[str, Any]


class UnreadableCellError(ValueError):
    """A cell cannot be read as its part of the case; the message says why."""


def cell_text(cell: Any) -> str:
    """Return a cell as text: other values as JSON, null as an empty text."""
    if cell is None:
        return ""
    text = cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
    if not is_storable(text):
        raise UnreadableCellError(
            "contains a NUL character or half a surrogate pair, which cannot be stored"
        )
    return text


def parse_cell(cell: Any) -> Any:
    """Return the list or object that a cell is or contains as JSON, None for any other cell."""
    if isinstance(cell, list | dict):
        return cell
    if not isinstance(cell, str) or cell.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return with_plain_numbers(
            read_object(b'{"cell":' + cell.encode("utf-8", "surrogatepass") + b"}")["cell"]
        )
    except UnreadableLineError:
        return None


def cell_turns(cell: Any) -> tuple[Turn, ...]:
    """Return a conversation, or a text as a single user message."""
    structure = parse_cell(cell)
    if (
        isinstance(structure, dict)
        and isinstance(structure.get("messages"), list)
        and len(structure) == 1
    ):
        structure = structure["messages"]
    if not _is_conversation(structure):
        return ({"role": "user", "content": cell_text(cell)},)
    reading = Reading(YamlDocument(value={"input": structure}), {})
    try:
        turns = read_turns(Fields(reading, (), value={"input": structure}), "input", structure)
    except UnreadableFileError as error:
        raise UnreadableCellError(str(error.problems[0])) from error
    if reading.problems:
        raise UnreadableCellError(str(reading.problems[0]))
    return turns


def cell_expected_output(cell: Any) -> str:
    """Return the expected output: of a conversation, what the assistant says in it."""
    structure = parse_cell(cell)
    if (
        isinstance(structure, dict)
        and isinstance(structure.get("messages"), list)
        and len(structure) == 1
    ):
        structure = structure["messages"]
    if isinstance(structure, dict) and "role" in structure and "content" in structure:
        structure = [structure]
    if not _is_conversation(structure):
        return cell_text(cell)
    message = [turn["content"] for turn in cell_turns(structure) if turn["role"] == "assistant"]
    return "\n\n".join(content for content in message if content)


def cell_outcomes(cell: Any, split: Split) -> tuple[str, ...]:
    """Return the expected outcomes of a cell, without bullets and numbers before them."""
    structure = parse_cell(cell)
    if isinstance(structure, list):
        return tuple(text for part in structure if (text := cell_text(_claim(part)).strip()))
    text = cell_text(cell)
    parts = [text] if split is Split.NONE else text.split(SEPARATORS[split])
    shorn = (MARKER.sub("", part.strip()) for part in parts)
    return tuple(part for part in shorn if part)


def cell_tags(cell: Any) -> tuple[str, ...]:
    """Return the tags of a cell: a JSON list, or separated by commas, semicolons, bars or lines."""
    structure = parse_cell(cell)
    parts = structure if isinstance(structure, list) else re.split(r"[,;|\n]", cell_text(cell))
    return tuple(dict.fromkeys(text for part in parts if (text := cell_text(part).strip())))


def column_metadata(name: str, cell: Any) -> dict[str, Any]:
    """Return the metadata from a column; an object in a column named metadata is used as it is."""
    plain = name.strip().lower()
    if plain.startswith("__metadata:"):
        return {name.strip()[len("__metadata:") :] or name: cell}
    if plain in ("metadata", "meta") and isinstance(structure := parse_cell(cell), dict):
        cell_text(structure)
        return dict(structure)
    cell_text(cell)
    return {name: cell}


def cell_recorded_output(cell: Any) -> dict[str, Any]:
    """Return a recorded output in the form of a recorded line."""
    structure = parse_cell(cell)
    if isinstance(structure, dict) and structure.keys() & {"output", "messages"}:
        try:
            output_from_json(structure)
        except (ValueError, TypeError) as error:
            raise UnreadableCellError(f"the recorded output is not readable: {error}") from error
        return structure
    return {"output": cell_text(cell)}


def read_assertion(cell: Any) -> tuple[str, tuple[str, ...], bool]:
    """Return a promptfoo assertion as an expected output or outcomes, and whether it was understood.

    Without a type it is the full answer.
    """
    text = cell_text(cell).strip()
    if asked := ASKED.match(text):
        return "", (asked[1].strip(),), True
    if contains := CONTAINS.match(text):
        word = "Does not contain" if contains[1] else "Contains"
        return "", (f"{word} “{contains[2].strip()}”",), True
    if equals := EQUALS.match(text):
        return equals[1].strip(), (), True
    return ("", (), False) if TYPED.match(text) else (text, (), True)


def _claim(part: Any) -> Any:
    """Return the text of an outcome, which some tools keep in an object with its weight."""
    if isinstance(part, dict):
        named = ("text", "outcome", "criterion", "claim", "value")
        return next((part[name] for name in named if isinstance(part.get(name), str)), part)
    return part


def _is_conversation(structure: Any) -> bool:
    return (
        isinstance(structure, list)
        and bool(structure)
        and all(isinstance(turn, dict) and "role" in turn for turn in structure)
    )


MAX_BEGINNING_LENGTH = 80
HASH_LENGTH = 12
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not a case: its line, the wrong column ("" for the whole row), and the reason."""

    line: int
    column: str
    reason: str
    cells: tuple[Any, ...]


class RefusedRowError(Exception):
    """A row is not a case; holds the wrong column, "" for the whole row, and the reason."""

    def __init__(self, column: str, reason: str) -> None:
        """Keep both."""
        super().__init__(reason)
        self.column = column
        self.reason = reason


class RowReader:
    """Reads cases from rows, by the part of a case in each column."""

    def __init__(self, columns: Sequence[str], mapping: CaseMapping) -> None:
        """Find the columns of each part."""
        self.mapping = mapping
        self.unused: dict[str, int] = {}
        self.places: dict[CasePart, list[tuple[int, str]]] = {}
        for place, (name, part) in enumerate(zip(columns, mapping.parts, strict=True)):
            self.places.setdefault(part, []).append((place, name))

    def column(self, part: CasePart) -> str:
        """Return the name of the first column of a part, "" when none holds it."""
        return self.places[part][0][1] if part in self.places else ""

    def case(self, row: TableRow) -> CaseSpec:
        """Return the case of a row; raises RefusedRowError."""
        if row.unread:
            raise RefusedRowError("", row.unread)
        asked, expected = self._asked(row)
        title = self._cell(row, CasePart.TITLE, _short(MAX_TITLE_LENGTH), "")
        key = self._cell(row, CasePart.KEY, _key, "")
        tags = tuple(dict.fromkeys(self._several(row, CasePart.TAGS, _checked_tags)))
        if reason := too_many("tags", tags):
            raise RefusedRowError(self.column(CasePart.TAGS), reason)
        answer, claims, metadata = self._assertions(row)
        for name, cell in self._filled(row, CasePart.METADATA):
            metadata |= self._read(name, partial(column_metadata, name), cell)
        return CaseSpec(
            key=key or self._made_key(asked),
            input=asked,
            title=title if CasePart.TITLE in self.places else title_from_input(asked),
            tags=tags,
            expected_output=expected or answer,
            expected_outcomes=(*self._several(row, CasePart.OUTCOMES, self._outcomes), *claims),
            criteria=self._cell(row, CasePart.CRITERIA, cell_text, ""),
            metadata=metadata,
            recorded_output=self._cell(row, CasePart.OUTPUT, cell_recorded_output, None),
        )

    def _asked(self, row: TableRow) -> tuple[tuple[Mapping[str, Any], ...], str]:
        """Return the input and the expected output, which may be the last turn of it."""
        asked: tuple[Mapping[str, Any], ...] = self._cell(row, CasePart.INPUT, cell_turns, ())
        if not asked:
            raise RefusedRowError(self.column(CasePart.INPUT), "is empty; write what the case asks")
        expected = self._cell(row, CasePart.EXPECTED_OUTPUT, cell_expected_output, "")
        ends = self.mapping.last_answer and len(asked) > 1 and asked[-1]["role"] == "assistant"
        if ends and not expected:
            *before, last = asked
            asked, expected = tuple(before), str(last["content"])
        if system := self._cell(row, CasePart.SYSTEM, cell_text, ""):
            asked = ({"role": "system", "content": system}, *asked)
        return asked, expected

    def _made_key(self, asked: Any) -> str:
        if CasePart.KEY in self.places:
            raise RefusedRowError(
                self.column(CasePart.KEY), "is empty; give the case a key of its own"
            )
        written = json.dumps(asked, ensure_ascii=False, sort_keys=True)
        return f"row-{hashlib.sha256(written.encode()).hexdigest()[:HASH_LENGTH]}"

    def _assertions(self, row: TableRow) -> tuple[str, tuple[str, ...], dict[str, Any]]:
        answer = ""
        claims: list[str] = []
        kept: dict[str, Any] = {}
        for name, cell in self._filled(row, CasePart.ASSERTION):
            message, listed, is_understood = self._read(name, read_assertion, cell)
            answer, claims = answer or message, [*claims, *listed]
            if not is_understood:
                kept[name] = cell
                self.unused[name] = self.unused.get(name, 0) + 1
        return answer, tuple(claims), kept

    def _outcomes(self, cell: Any) -> tuple[str, ...]:
        return cell_outcomes(cell, self.mapping.split)

    def _filled(self, row: TableRow, part: CasePart) -> Iterable[tuple[str, Any]]:
        for place, name in self.places.get(part, ()):
            cell = row.cells[place]
            is_empty = not cell.strip() if isinstance(cell, str) else cell in (None, [], {})
            if not is_empty:
                yield name, cell

    def _cell(self, row: TableRow, part: CasePart, read: Callable[[Any], T], missing: T) -> T:
        for name, cell in self._filled(row, part):
            return self._read(name, read, cell)
        return missing

    def _several(
        self, row: TableRow, part: CasePart, read: Callable[[Any], tuple[str, ...]]
    ) -> list[str]:
        return [
            text for name, cell in self._filled(row, part) for text in self._read(name, read, cell)
        ]

    def _read(self, name: str, read: Callable[[Any], T], cell: Any) -> T:
        try:
            return read(cell)
        except UnreadableCellError as error:
            raise RefusedRowError(name, str(error)) from error


def check_key(
    key: str, lines: Mapping[str, int], taken: Collection[str], reader: RowReader
) -> None:
    """Raise RefusedRowError for a key that the table or the suite already has."""
    column = reader.column(CasePart.KEY)
    if key in lines:
        message = f"the key {key!r} is" if column else "the same input is"
        raise RefusedRowError(
            column or reader.column(CasePart.INPUT),
            f"{message} on line {lines[key]} already; give each case its own",
        )
    if key in taken:
        raise RefusedRowError(column, f"the suite already has a case {key!r}")


def _short(most: int) -> Callable[[Any], str]:
    def read(cell: Any) -> str:
        text = cell_text(cell).strip()
        if len(text) > most:
            message = f"has {len(text)} characters; {most} is the limit"
            raise UnreadableCellError(message)
        return text

    return read


def title_from_input(asked: Sequence[Mapping[str, Any]]) -> str:
    """Return the first words of a case's input on one line: the title of a case from a table without titles."""
    turns = sorted(asked, key=lambda turn: turn.get("role") != "user")
    texts = (str(turn.get("content") or "") for turn in turns)
    line = " ".join(next(filter(str.strip, texts), "").split())
    if len(line) <= MAX_BEGINNING_LENGTH:
        return line
    most = line[:MAX_BEGINNING_LENGTH]
    return f"{(most.rpartition(' ')[0] or most[:-1]).rstrip(' ,;:.')}…"


_key = _short(MAX_KEY_LENGTH)


def _checked_tags(cell: Any) -> tuple[str, ...]:
    tags = cell_tags(cell)
    if long := next((tag for tag in tags if len(tag) > MAX_CASE_TAG_LENGTH), ""):
        message = f"a tag has {len(long)} characters; {MAX_CASE_TAG_LENGTH} is the limit"
        raise UnreadableCellError(message)
    return tags


def case_row(case: CaseSpec) -> list[str]:
    """Return a case in the cells of CASE_COLUMNS, each a plain text where that is read back as the same, else JSON."""
    outcomes, tags, recorded = case.expected_outcomes, case.tags, case.recorded_output
    asked = str(case.input[-1].get("content") or "")
    is_plain = cell_turns(asked) == tuple(case.input) and asked.strip()
    expected = case.expected_output
    if cell_expected_output(expected) != expected:
        expected = _json([{"role": "assistant", "content": expected}])
    listed = "\n".join(outcomes)
    # Where no cell has several lines, cells are split at what they have in common.
    splits = (Split.LINES,) if len(outcomes) > 1 else SEPARATORS
    is_listed = all(cell_outcomes(listed, split) == tuple(outcomes) for split in splits)
    return [
        *(case.key, case.title),
        ", ".join(tags) if cell_tags(", ".join(tags)) == tuple(tags) else _json(tags),
        asked if is_plain else _json(case.input),
        expected,
        listed if is_listed else _json(outcomes),
        case.criteria,
        _json(case.metadata) if case.metadata else "",
        "" if recorded is None else _json(recorded),
    ]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def rejected_csv(table: Table, rejected: Iterable[Rejected]) -> Iterable[str]:
    """Yield a CSV of the rejected rows with line and reason, to be corrected and uploaded again.

    A cell that a spreadsheet would take for a formula gets an apostrophe.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    yield "\ufeff"
    writer.writerow([*map(escape_formula, table.columns), *REASON_COLUMNS])
    for row in rejected:
        cells = (*row.cells, *("",) * (len(table.columns) - len(row.cells)))
        reason = f"{row.column}: {row.reason}" if row.column else row.reason
        writer.writerow(
            [*(escape_formula(_spelled(cell)) for cell in cells), escape_formula(reason), row.line]
        )
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _spelled(cell: Any) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ReadCases:
    """The cases of a table with the place of each among its rows, and the rows rejected, in the order of the file.

    `skipped_rows` counts rows that were skipped for their key. `unused` counts, by column, promptfoo
    assertions that are kept in the metadata because no outcome can express them.
    """

    cases: tuple[CaseSpec, ...]
    places: tuple[int, ...]
    rejected: tuple[Rejected, ...]
    skipped_rows: int = 0
    unused: Mapping[str, int] = field(default_factory=dict)


def read_cases(
    table: Table,
    mapping: CaseMapping,
    *,
    taken: Collection[str] = (),
    skipped: Collection[str] = (),
    titles: Mapping[str, str] | None = None,
) -> ReadCases:
    """Return the cases of a table; rows with `taken` keys are rejected, those with `skipped` keys skipped.

    `titles` are titles that people wrote, by key; they stay if no column has titles. Without a column of
    keys, each key is made from the input, so that the same question is the same case when the table is read
    again. Raises ValueError for a mapping with problems.
    """
    if problems := mapping.problems():
        raise ValueError("; ".join(problems))
    reader = RowReader(table.columns, mapping)
    known = {} if reader.column(CasePart.TITLE) else titles or {}
    cases, places, rejected = [], [], []
    lines: dict[str, int] = {}
    skipped_rows = 0
    for place, row in enumerate(table.rows):
        try:
            case = reader.case(row)
            if case.key in skipped:
                skipped_rows += 1
                continue
            check_key(case.key, lines, taken, reader)
        except RefusedRowError as refusal:
            rejected.append(Rejected(row.line, refusal.column, refusal.reason, row.cells))
            continue
        lines[case.key] = row.line
        places.append(place)
        cases.append(case.replace(title=known[case.key]) if case.key in known else case)
    return ReadCases(tuple(cases), tuple(places), tuple(rejected), skipped_rows, reader.unused)


class Existing(StrEnum):
    """What happens to a row whose key the suite already has."""

    UPDATE = "update"
    SKIP = "skip"
    REFUSE = "refuse"


class RowsRejectedError(DomainError):
    """Some rows were rejected, and nobody chose to leave them out."""

    code = "rows_rejected"


class NoCasesError(DomainError):
    """A table has no row that is a case."""

    code = "no_cases"


@dataclass(frozen=True, slots=True)
class TableReading:
    """How to read a table."""

    mapping: CaseMapping
    existing: Existing = Existing.UPDATE

    def as_json(self) -> dict[str, Any]:
        """Return the reading as stored with an upload."""
        return {
            "parts": list(self.mapping.parts),
            "split": self.mapping.split,
            "last_answer": self.mapping.last_answer,
            "existing": self.existing,
        }

    def cases(self, table: Table, keys: Collection[str], titles: Mapping[str, str]) -> ReadCases:
        """Return the cases of a table for a suite with these keys and with these titles written by people.

        Raises ValueError for a mapping with problems.
        """
        is_skipped, is_refused = (
            self.existing is choice for choice in (Existing.SKIP, Existing.REFUSE)
        )
        return read_cases(
            table,
            self.mapping,
            taken=keys if is_refused else (),
            skipped=keys if is_skipped else (),
            titles=titles,
        )


def check_rejected(found: ReadCases, *, leaves_out: bool) -> None:
    """Raise NoCasesError if no row is a case, and RowsRejectedError unless rejected rows may be left out."""
    count = len(found.rejected)
    rows = "1 row is" if count == 1 else f"{count} rows are"
    if not found.cases and not found.skipped_rows:
        raise NoCasesError(f"There is nothing to store: {rows} rejected.")
    if count and not leaves_out:
        raise RowsRejectedError(f"{rows} rejected. Correct the file, or choose to leave them out.")


def upload_note(cases: tuple[CaseSpec, ...], name: str) -> str:
    """Return the note of the version made from a table."""
    return f"{counted(len(cases), 'case')} from {name}"[:200]
