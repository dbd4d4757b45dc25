"""Read YAML into plain values, each with its line; problems come with a remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from yaml import MappingNode, MarkedYAMLError, Node, ScalarNode, SequenceNode, YAMLError
from yaml._yaml import CParser
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from yaml.reader import ReaderError
from yaml.resolver import BaseResolver

from runs.specs.problems import Problem, UnreadableFileError

MAX_BYTES = 50_000_000


def refuse_size(content: bytes, file: str) -> None:
    """Raise UnreadableFileError for a file that is too large to be a suite."""
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 1_000_000} MB"
        raise UnreadableFileError([Problem(message, file)])


def decode_text(content: bytes, file: str) -> str:
    """Return the text of a file; raises UnreadableFileError for one too large or not in UTF-8."""
    refuse_size(content, file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UnreadableFileError(
            [Problem("not text in UTF-8; save it as UTF-8", file, line)]
        ) from error


# The parser recurses for every level and could run out of stack, which ends the process. A text that
# could nest deeper than this is scanned first.
SAFE_DEPTH = 500
MAX_VALUES = 1_000_000
SEPARATORS = (",", ":", "\n")
OPENINGS = ("[", "{", "- ", "-\t", "? ", "?\t")
# Messages of the parser, with the most likely remedy.
REMEDIES = {
    "mapping values are not allowed": "put a text with a colon in it in quotes",
    "could not find expected ':'": "put a colon after the key, or the text in quotes",
    "cannot start any token": "put the text in quotes",
    "did not find expected": "close what is open, and line up keys and items of one list",
    "found unexpected": "close the quotes",
    "undefined alias": "name the value with & before an alias * takes it up",
    "found another document": "write one document, without ---",
    "unknown escape": "write \\\\ for a backslash, or use single quotes",
    "control characters": "save the file as text, without them",
    "invalid": "write the character itself, or in another way",
}
TAG = "tag:yaml.org,2002:"
MERGE = f"{TAG}merge"
TEXT, NULL, BOOL = f"{TAG}str", f"{TAG}null", f"{TAG}bool"
INT, FLOAT = f"{TAG}int", f"{TAG}float"
LIST, MAPPING = f"{TAG}seq", f"{TAG}map"
TRUTHS = {"true": True, "false": False}
INT_BASES = {"0x": 16, "0o": 8}
SPECIAL_FLOATS = {".inf": "inf", "-.inf": "-inf", "+.inf": "inf", ".nan": "nan"}


def _text(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds the character NUL, which cannot be stored")
    return text


def _number(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("is not a number; write one, or put it in quotes")
    return number


READERS: Mapping[str, Callable[[str], Any]] = {
    TEXT: _text,
    NULL: lambda text: None,
    BOOL: lambda text: TRUTHS[text.lower()],
    INT: lambda text: _number(int(text, INT_BASES.get(text[:2], 10))),
    FLOAT: lambda text: _number(float(SPECIAL_FLOATS.get(text.lower(), text))),
}

# What YAML 1.2 reads as more than text: `no` and dates are texts, as in other tools for these files.
IMPLICIT = (
    (NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (INT, r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        FLOAT,
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    (MERGE, r"<<", ["<"]),
)


class _Resolver(BaseResolver):
    """Resolves texts, numbers, booleans and null by the core schema of YAML 1.2."""


for _tag, _pattern, _firsts in IMPLICIT:
    _Resolver.add_implicit_resolver(_tag, re.compile(rf"\A(?:{_pattern})\Z"), _firsts)


class _Loader(CParser, _Resolver):
    """The parser of libyaml: nodes with their lines, twenty times as fast as one in Python."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        _Resolver.__init__(self)


def parse_yaml(text: str, file: str = "") -> Node | None:
    """Return the root of the one document of a text, None for an empty one.

    Raises UnreadableFileError with line and remedy for what is not YAML, holds several documents,
    nests too deeply or holds too many values.
    """
    try:
        _refuse_excess(text, file)
        root: Node | None = _Loader(text).get_single_node()
    except (YAMLError, ValueError, RecursionError) as error:
        raise UnreadableFileError([_problem(error, text, file)]) from error
    return root


def _refuse_excess(text: str, file: str) -> None:
    """Refuse a text whose tree would overflow the parser's stack or the memory, before building it."""
    could_nest = sum(map(text.count, OPENINGS)) > SAFE_DEPTH or " " * SAFE_DEPTH in text
    if not could_nest and sum(map(text.count, SEPARATORS)) <= MAX_VALUES:
        return
    parser, depth, values = _Loader(text), 0, 0
    while (event := parser.get_event()) is not None:
        values += isinstance(event, ScalarEvent | AliasEvent | CollectionStartEvent)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        message = ""
        if depth > SAFE_DEPTH:
            message = f"the file is nested too deeply; {SAFE_DEPTH} levels is the limit"
        elif values > MAX_VALUES:
            message = f"the file holds more than {MAX_VALUES:,} values; split it, or write its cases as JSON Lines"
        if message:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise UnreadableFileError([Problem(message, file, line)])


def _problem(error: Exception, text: str, file: str) -> Problem:
    """Return the parser's problem, with the line where it stopped."""
    message, line = str(error).partition("\n")[0], 0
    if isinstance(error, MarkedYAMLError):
        message = (error.problem or error.context or "is not YAML").removeprefix("but ")
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        begun = error.context_mark.line + 1 if error.context_mark else line
        message += f" in what begins on line {begun}" if begun < line else ""
    elif isinstance(error, ReaderError):
        line = text[: error.position].count("\n") + 1
    return Problem(f"not readable as YAML: {message}{_remedy(message, text, line)}", file, line)


def _remedy(message: str, text: str, line: int) -> str:
    """Return a remedy for the text where the parser stopped, "" if none is known."""
    written = text.split("\n")[line - 1] if 0 < line <= text.count("\n") + 1 else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "; indent with spaces, not with tabs"
    return next((f"; {remedy}" for part, remedy in REMEDIES.items() if part in message), "")


Path = tuple[str | int, ...]

# An alias repeats its value: a few lines can unfold to billions of values.
MAX_REPEATED = 500_000
MAX_DEPTH = 60
TEXT_UNIT = 400
MAX_SHOWN_LENGTH = 60


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A file's values; by path the line of each, and numbers as written.

    `elsewhere` names the file of each outermost key whose value comes from another file.
    """

    value: Any
    file: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)
    written: Mapping[Path, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def file_at(self, path: Path) -> str:
        """Return the file a value stands in."""
        return self.elsewhere.get(str(path[0]), self.file) if path else self.file

    def line_at(self, path: Path) -> int:
        """Return the line of a value, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)


def read_document(text: str, file: str = "") -> YamlDocument:
    """Return the one document of a YAML text.

    Dates stay as written. Raises UnreadableFileError with the line if the text is not YAML, has several
    documents, repeats a key, uses custom tags, cannot be stored, nests too deeply, or unfolds without end.
    """
    root = parse_yaml(text, file)
    if root is None:
        raise UnreadableFileError(
            [Problem("the file is empty; a suite names its cases under tests", file)]
        )
    reading = _Reading(file)
    try:
        return YamlDocument(reading.value(root, ()), file, reading.lines, reading.written)
    except RecursionError as error:
        raise UnreadableFileError(
            [Problem("an alias holds itself; write the value out", file)]
        ) from error


class _Reading:
    """One pass over the nodes of a document."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Path, int] = {}
        self.written: dict[Path, str] = {}
        self.seen: set[int] = set()
        self.repeated = 0

    def value(self, node: Node, path: Path) -> Any:
        """Return the plain value of a node and note the lines of it and all within."""
        self.count(node)
        if len(path) > MAX_DEPTH:
            raise self.refusal(node, "the file unfolds to too many values; are aliases nested?")
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            self.refuse_tag(node, (LIST,))
            return [self.value(part, (*path, n)) for n, part in enumerate(node.value)]
        if node.tag in (INT, FLOAT):
            self.written[path] = str(node.value)
        return self.scalar(node)

    def count(self, node: Node) -> None:
        """Count a node that is read once more, by an alias or a merge; refuse too many."""
        if id(node) in self.seen:
            # A long text counts as many short ones, because it takes as much space.
            self.repeated += 1 + (
                len(node.value) // TEXT_UNIT if isinstance(node.value, str) else 0
            )
        self.seen.add(id(node))
        if self.repeated > MAX_REPEATED:
            raise self.refusal(node, "the file unfolds to too many values; are aliases nested?")

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        """Return a mapping; keys merged by `<<` do not override its own."""
        self.refuse_tag(node, (MAPPING,))
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, part in node.value:
            if key.tag == MERGE:
                merged = {**self.merged(part, path), **merged}
                continue
            name = self.key(key)
            if name in own:
                raise self.refusal(key, f"the key {name!r} is repeated; keep one of them")
            own[name] = self.value(part, (*path, name))
            self.lines[(*path, name)] = key.start_mark.line + 1
        return {**merged, **own}

    def merged(self, node: Node, path: Path) -> dict[str, Any]:
        """Return what a merge key brings in; of several mappings the first wins."""
        parts = [node]
        if isinstance(node, SequenceNode):
            self.refuse_tag(node, (LIST,))
            parts = node.value
        values: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, MappingNode):
                raise self.refusal(part, "<< takes a mapping")
            self.count(part)
            values = {**self.mapping(part, path), **values}
        return values

    def key(self, node: Node) -> str:
        """Return a key as it is written."""
        if not isinstance(node, ScalarNode):
            raise self.refusal(node, "a key is not plain text; write one word, or put it in quotes")
        self.refuse_tag(node, READERS)
        if "\0" in node.value:
            raise self.refusal(node, "a key holds the character NUL, which cannot be stored")
        return str(node.value)

    def scalar(self, node: Node) -> Any:
        """Return text, number, truth or nothing."""
        self.refuse_tag(node, READERS)
        try:
            return READERS[node.tag](str(node.value))
        except (ValueError, KeyError, OverflowError) as error:
            shown = repr(node.value[:MAX_SHOWN_LENGTH])
            message = "is too large a number; put it in quotes" if node.tag == INT else str(error)
            raise self.refusal(node, f"{shown} {message}") from error

    def refuse_tag(self, node: Node, known: Container[str]) -> None:
        """Refuse a node with an unknown tag."""
        if node.tag not in known:
            raise self.refusal(node, f"the tag {node.tag!r} is not known; write a plain value")

    def refusal(self, node: Node, message: str) -> UnreadableFileError:
        """Return the refusal that names the node's line."""
        return UnreadableFileError([Problem(message, self.file, node.start_mark.line + 1)])


def describe_value(value: Any) -> str:
    """Describe a value in words."""
    match value:
        case bool():
            return "true or false"
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return f"{value!r}"
