"""What a module for another tool consists of: how its files are recognised, and what they are read into.

A suite becomes the document of one of our own suite files, a result one of our own lines of results. So what
another tool wrote is checked, refused and stored by the same rules as our own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count, islice
from typing import Any

from evaluators.reading.json import read_json
from evaluators.reading.yaml import Path
from runs.formats.bundles import DAMAGE, ZSTANDARD, open_zip
from runs.formats.lines import (
    MAX_FILE_VALUES,
    UnreadableLineError,
    numbered_lines,
    read_object,
    refuse_values,
    whole_text,
    with_plain_numbers,
)
from runs.formats.prompt_programs import RunProgram, run_no_program
from runs.formats.shared_texts import include_all, limit_shared_texts
from runs.formats.tables import Table, read_table
from runs.formats.yaml import YamlDocument, decode_text, read_document
from runs.specs.problems import Problem, UnreadableFileError

TABLE_SUFFIXES = (".csv", ".tsv")
YAML_SUFFIXES = (".yaml", ".yml")
ARCHIVE, XML = b"PK\x03\x04", b"<"
HEAD = 20
# Most tools' results are held at once, and promptfoo writes a hundred values for each.
MAX_RESULT_VALUES = MAX_FILE_VALUES

Row = tuple[int, Mapping[str, Any]]
# What reading a value of an unexpected kind raises.
SHAPE_ERRORS = (AttributeError, ArithmeticError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A file with its values, before anybody knows which tool wrote it.

    It is one document, lines of JSON, a table, or an archive, of which only the content is known. `head` are
    the first objects of lines, of a list or of a table. `run` runs programs that write prompts.
    """

    path: str
    content: bytes
    document: YamlDocument | None = None
    table: Table | None = None
    head: tuple[Mapping[str, Any], ...] = ()
    run: RunProgram = run_no_program

    @property
    def value(self) -> Mapping[str, Any]:
        """Return the object of a document, an empty one for any other file."""
        value = self.document.value if self.document else None
        return value if isinstance(value, Mapping) else {}

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the document, or of the first row."""
        return frozenset(self.value or (self.head[0] if self.head else ()))

    @property
    def is_archive(self) -> bool:
        """Tell whether it is a zip, whatever its name is."""
        return self.content.startswith(ARCHIVE)

    def rows(self) -> Iterator[Row]:
        """Yield the objects of lines, a list or a table with their lines; raises UnreadableFileError."""
        if self.table:
            for row in self.table.rows:
                if row.unread:
                    raise UnreadableFileError([Problem(row.unread, self.path, row.line)])
                yield row.line, dict(zip(self.table.columns, row.cells, strict=True))
        elif self.document:
            listed = self.document.value if isinstance(self.document.value, list) else [self.value]
            for part in listed:
                if not isinstance(part, Mapping):
                    message = "a part of the list is not an object; it has one object for each row"
                    raise UnreadableFileError([Problem(message, self.path)])
                yield 0, part
        else:
            yield from self._lines()

    def _lines(self) -> Iterator[Row]:
        refuse_values(self.content.decode("latin-1"), self.path)
        for number, raw in numbered_lines(self.content):
            try:
                yield number, with_plain_numbers(read_object(raw))
            except UnreadableLineError as error:
                raise UnreadableFileError([Problem(str(error), self.path, number)]) from error


def open_lines(path: str, content: bytes) -> ToolFile | None:
    """Return a file of JSON Lines with its first objects, None if these are unreadable."""
    try:
        head = tuple(read_object(raw) for _, raw in islice(numbered_lines(content), HEAD))
    except UnreadableLineError:
        return None
    return ToolFile(path, content, head=head) if head else None


def open_document(document: YamlDocument, content: bytes = b"") -> ToolFile:
    """Return a file of one document; of a list, the first objects tell whose it is."""
    listed = document.value if isinstance(document.value, list) else []
    head = tuple(part for part in listed[:HEAD] if isinstance(part, Mapping))
    return ToolFile(document.file, content, document, head=head)


def open_file(path: str, content: bytes) -> ToolFile | None:
    """Return a file with its values; None if it is not readable, of which its own reader tells the reason."""
    if content.startswith((ARCHIVE, XML)):
        return ToolFile(path, content)
    name, begins = path.lower(), content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    try:
        if begins in (b"{", b"["):
            return _open_json(path, content)
        if name.endswith(YAML_SUFFIXES):
            return open_document(read_document(decode_text(content, path), path), content)
        if name.endswith(TABLE_SUFFIXES):
            table = read_table(content, file=path)
            rows = (row.cells for row in table.rows[:HEAD] if not row.unread)
            head = tuple(dict(zip(table.columns, cells, strict=True)) for cells in rows)
            return ToolFile(path, content, table=table, head=head)
    except UnreadableFileError:
        return None
    return None


def _open_json(path: str, content: bytes) -> ToolFile | None:
    first, *others = (raw for _, raw in islice(numbered_lines(content), 2))
    if others:
        # Several lines are lines of JSON where the first is a whole object.
        with suppress(UnreadableLineError):
            read_object(first)
            return open_lines(path, content)
    # One line may be the whole file.
    del first, others
    try:
        value = read_values(content, path)
    except ValueError:
        return None
    return open_document(YamlDocument(value, path), content)


def read_values(content: bytes, file: str = "") -> Any:
    """Return the value of JSON from another tool: missing numbers become null.

    Raises ValueError, and UnreadableFileError for what would take too much memory.
    """
    return read_json(
        whole_text(content, file),
        unstorable="replace",
        takes_nan=True,
        max_values=MAX_RESULT_VALUES,
    )


class NothingToReadError(UnreadableFileError):
    """A file of another tool is sound, but nothing of what it names can be read; among others it is left out."""

    code = "nothing_to_read"


def archive_names(file: ToolFile) -> list[str]:
    """Return the names in a zip, none for a damaged one."""
    try:
        with open_zip(BytesIO(file.content), ZSTANDARD) as packed:
            return packed.namelist()
    except DAMAGE:
        return []


@dataclass(slots=True)
class ToolSuite:
    """A suite of another tool as one of our own documents, with the places its values came from.

    `head` are the keys before the cases. `notes` tell what was changed or left out, `problems` what keeps the
    file from being used; `read_with` are the files that were read with it.
    """

    path: str
    head: dict[str, Any] = field(default_factory=dict)
    cases: list[dict[str, Any]] = field(default_factory=list)
    lines: dict[Path, int] = field(default_factory=dict)
    elsewhere: dict[Path, str] = field(default_factory=dict)
    notes: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    read_with: list[str] = field(default_factory=list)

    def summarise(self, message: str) -> None:
        """Tell what the file was read as, before what was changed or left out."""
        self.notes.insert(0, Problem(message, self.path))

    def note(self, message: str, line: int = 0, case: str = "") -> None:
        """Tell what was changed or left out."""
        self.notes.append(Problem(message, self.path, line, case))

    def add(
        self, case: Mapping[str, Any], line: int, file: str = "", lines: Iterable[int] = ()
    ) -> None:
        """Add a case of a line; `lines` are those of its assertions."""
        place: Path = ("tests", len(self.cases))
        self.lines[place] = line
        for name in ("assertions", "evaluators"):
            self.lines |= {(*place, name, n): at for n, at in enumerate(lines)}
        if file and file != self.path:
            self.elsewhere[place] = file
        include_all(case)
        self.cases.append(dict(case))

    def document(self) -> YamlDocument:
        """Return the document; raises UnreadableFileError with the problems."""
        if self.problems:
            raise UnreadableFileError(self.problems)
        value = {**self.head, "tests": self.cases}
        return YamlDocument(value, self.path, lines=self.lines, elsewhere=self.elsewhere)


@dataclass(frozen=True, slots=True)
class ToolResults:
    """Results of another tool as our own lines, with notes about what was changed or left out."""

    rows: Iterable[Row]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One kind of file of another tool: what people call it, and how it is recognised and read.

    `matches` looks at the content alone. The suites may name files in folders `levels_up` above their own. A file that
    can be neither a suite nor results has a `refusal`, the end of a sentence with the remedy.
    """

    tool: str
    label: str
    matches: Callable[[ToolFile], bool]
    read_suites: Callable[[ToolFile, Mapping[str, bytes]], Sequence[ToolSuite]] | None = None
    read_results: Callable[[ToolFile], ToolResults] | None = None
    refusal: str = ""
    levels_up: int = 0

    def suites(self, file: ToolFile, files: Mapping[str, bytes]) -> Sequence[ToolSuite]:
        """Return the suites of a file; raises UnreadableFileError, also for a part of an unexpected shape."""
        with self._refusing(file):
            return self.read_suites(file, files) if self.read_suites else ()

    def results(self, file: ToolFile) -> tuple[Iterable[Row], tuple[str, ...]]:
        """Return the lines, each read when it is its turn, and the notes; both raise UnreadableFileError like `suites`."""
        if self.read_results is None:
            return (), ()
        with self._refusing(file):
            read = self.read_results(file)
        return self._rows(file, read.rows), read.notes

    def _rows(self, file: ToolFile, rows: Iterable[Row]) -> Iterator[Row]:
        with self._refusing(file):
            yield from rows

    @contextmanager
    def _refusing(self, file: ToolFile) -> Iterator[None]:
        # These files follow no schema that we could check first, and their tools change it without notice.
        try:
            with limit_shared_texts(file.path):
                yield
        except SHAPE_ERRORS as error:
            message = (
                f"was recognised as {self.label}, but a part of it has another shape: {error!r}"
            )
            raise UnreadableFileError([Problem(message, file.path)]) from error


class FreeNames:
    """Makes names unique: one that is taken gets the next free number, just as fast however many there are."""

    def __init__(self, separator: str = " ") -> None:
        """Start with all names free."""
        self._separator = separator
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}

    def take(self, name: str, *, longest: int | None = None) -> str:
        """Return the name, or its first `longest` characters with a number."""
        if name in self._taken:
            start = f"{name[:longest]}{self._separator}"
            numbers = count(self._last.get(start, 1) + 1)
            self._last[start] = next(n for n in numbers if f"{start}{n}" not in self._taken)
            name = f"{start}{self._last[start]}"
        self._taken.add(name)
        return name


def as_text(value: Any) -> str:
    """Return a value as text: null as nothing, other values as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def as_data(cell: Any, *, has_texts: bool = False) -> Any:
    """Return a cell of a table, which may hold JSON, as its value; with `has_texts`, texts are JSON too."""
    begins = cell.strip()[:1] if isinstance(cell, str) else ""
    if not begins or begins not in ('{["' if has_texts else "{["):
        return cell
    try:
        return read_values(cell.encode())
    except ValueError:
        return cell


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list, none for anything else."""
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []


def as_turns(value: Any) -> Any:
    """Return what a case asks: the turns of a conversation, the only text of an object, else its JSON."""
    if isinstance(value, Mapping) and value.keys() == {"messages"}:
        value = value["messages"]
    turns = objects(value)
    if turns and all("role" in turn for turn in turns):
        return [
            {"role": as_text(t["role"]).lower(), "content": message_text(t.get("content"))}
            for t in turns
        ]
    return only_text(value)


def only_text(value: Any) -> str:
    """Return the only text of an object, such as that of `{"answer": "…"}`; of any other value its JSON."""
    if (
        isinstance(value, Mapping)
        and len(value) == 1
        and isinstance(next(iter(value.values())), str)
    ):
        return as_text(next(iter(value.values())))
    return as_text(value)


def as_answer(value: Any) -> str:
    """Return what an output says: the last turn of a conversation, or its only text."""
    turns = as_turns(value)
    return turns if isinstance(turns, str) else as_text(turns[-1]["content"])


def message_text(content: Any) -> str:
    """Return the text of a message, which may be given in parts."""
    if isinstance(content, Mapping):
        return as_text(content.get("text"))
    if isinstance(content, list):
        return "\n".join(
            part if isinstance(part, str) else as_text(mapping(part).get("text"))
            for part in content
        )
    return as_text(content)
