"""One row of a table as a case, by the part of it that each column holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from runs.formats._case_cells import (
    UnreadableCellError,
    assertion_of,
    expected_of,
    metadata_of,
    outcomes_of,
    recorded_of,
    tags_of,
    text_of,
    turns_of,
)
from runs.formats._case_mapping import CaseMapping, Part
from runs.formats._cases import LONGEST_KEY, LONGEST_TITLE
from runs.formats._content import CaseContent
from runs.formats._table_rows import Row

LONGEST_TAG = 200
LONGEST_BEGINNING = 80
HASH_LENGTH = 12
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is no case: where it stands, the column that is wrong ("" for all of it), and why."""

    line: int
    column: str
    reason: str
    cells: tuple[Any, ...]


class RefusedRowError(Exception):
    """A row is no case: the column that is wrong, "" for all of it, and the reason."""

    def __init__(self, column: str, reason: str) -> None:
        """Keep both."""
        super().__init__(reason)
        self.column = column
        self.reason = reason


class RowReader:
    """The columns of a table by the part of a case each holds."""

    def __init__(self, columns: Sequence[str], mapping: CaseMapping) -> None:
        """Find the columns of each part."""
        self.mapping = mapping
        self.unused: dict[str, int] = {}
        self.places: dict[Part, list[tuple[int, str]]] = {}
        for place, (name, part) in enumerate(zip(columns, mapping.parts, strict=True)):
            self.places.setdefault(part, []).append((place, name))

    def column(self, part: Part) -> str:
        """Return the name of the first column of a part, "" when none holds it."""
        return self.places[part][0][1] if part in self.places else ""

    def case(self, row: Row) -> CaseContent:
        """Return the case of a row; raises RefusedRowError."""
        if row.unread:
            raise RefusedRowError("", row.unread)
        asked, expected = self._asked(row)
        title = self._one(row, Part.TITLE, _short(LONGEST_TITLE), "")
        key = self._one(row, Part.KEY, _key, "")
        answer, claims, metadata = self._assertions(row)
        for name, cell in self._filled(row, Part.METADATA):
            metadata |= self._read(name, partial(metadata_of, name), cell)
        return CaseContent(
            key=key or self._made_key(asked),
            input=asked,
            title=title if Part.TITLE in self.places else beginning_of(asked),
            tags=tuple(dict.fromkeys(self._several(row, Part.TAGS, _checked_tags))),
            expected_output=expected or answer,
            expected_outcomes=(*self._several(row, Part.OUTCOMES, self._outcomes), *claims),
            criteria=self._one(row, Part.CRITERIA, text_of, ""),
            metadata=metadata,
            recorded_output=self._one(row, Part.OUTPUT, recorded_of, None),
        )

    def _asked(self, row: Row) -> tuple[tuple[Mapping[str, Any], ...], str]:
        """Return the input and the expected output, which may be the last turn of it."""
        asked: tuple[Mapping[str, Any], ...] = self._one(row, Part.INPUT, turns_of, ())
        if not asked:
            raise RefusedRowError(self.column(Part.INPUT), "is empty; write what the case asks")
        expected = self._one(row, Part.EXPECTED_OUTPUT, expected_of, "")
        ends = self.mapping.last_answer and len(asked) > 1 and asked[-1]["role"] == "assistant"
        if ends and not expected:
            *before, last = asked
            asked, expected = tuple(before), str(last["content"])
        if system := self._one(row, Part.SYSTEM, text_of, ""):
            asked = ({"role": "system", "content": system}, *asked)
        return asked, expected

    def _made_key(self, asked: Any) -> str:
        if Part.KEY in self.places:
            raise RefusedRowError(self.column(Part.KEY), "is empty; give the case a key of its own")
        written = json.dumps(asked, ensure_ascii=False, sort_keys=True)
        return f"row-{hashlib.sha256(written.encode()).hexdigest()[:HASH_LENGTH]}"

    def _assertions(self, row: Row) -> tuple[str, tuple[str, ...], dict[str, Any]]:
        answer = ""
        claims: list[str] = []
        kept: dict[str, Any] = {}
        for name, cell in self._filled(row, Part.ASSERTION):
            said, listed, is_understood = self._read(name, assertion_of, cell)
            answer, claims = answer or said, [*claims, *listed]
            if not is_understood:
                kept[name] = cell
                self.unused[name] = self.unused.get(name, 0) + 1
        return answer, tuple(claims), kept

    def _outcomes(self, cell: Any) -> tuple[str, ...]:
        return outcomes_of(cell, self.mapping.split)

    def _filled(self, row: Row, part: Part) -> Iterable[tuple[str, Any]]:
        for place, name in self.places.get(part, ()):
            cell = row.cells[place]
            is_empty = not cell.strip() if isinstance(cell, str) else cell in (None, [], {})
            if not is_empty:
                yield name, cell

    def _one(self, row: Row, part: Part, read: Callable[[Any], T], missing: T) -> T:
        for name, cell in self._filled(row, part):
            return self._read(name, read, cell)
        return missing

    def _several(self, row: Row, part: Part, read: Callable[[Any], tuple[str, ...]]) -> list[str]:
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
    """Raise RefusedRowError for a key that stands in the table or the suite already."""
    column = reader.column(Part.KEY)
    if key in lines:
        said = f"the key {key!r} stands" if column else "the same input stands"
        raise RefusedRowError(
            column or reader.column(Part.INPUT),
            f"{said} on line {lines[key]} already; give each case its own",
        )
    if key in taken:
        raise RefusedRowError(column, f"the suite has a case {key!r} already")


def _short(most: int) -> Callable[[Any], str]:
    def read(cell: Any) -> str:
        text = text_of(cell).strip()
        if len(text) > most:
            said = f"has {len(text)} characters, and {most} is the most"
            raise UnreadableCellError(said)
        return text

    return read


def beginning_of(asked: Sequence[Mapping[str, Any]]) -> str:
    """Return the first words of what a case asks, on one line, as a table without titles names it."""
    turns = sorted(asked, key=lambda turn: turn.get("role") != "user")
    texts = (str(turn.get("content") or "") for turn in turns)
    line = " ".join(next(filter(str.strip, texts), "").split())
    if len(line) <= LONGEST_BEGINNING:
        return line
    most = line[:LONGEST_BEGINNING]
    return f"{(most.rpartition(' ')[0] or most[:-1]).rstrip(' ,;:.')}…"


_key = _short(LONGEST_KEY)


def _checked_tags(cell: Any) -> tuple[str, ...]:
    tags = tags_of(cell)
    if long := next((tag for tag in tags if len(tag) > LONGEST_TAG), ""):
        said = f"a tag has {len(long)} characters, and {LONGEST_TAG} is the most"
        raise UnreadableCellError(said)
    return tags
