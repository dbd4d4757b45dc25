"""YAML read into plain values, with the line of every one of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from yaml import MappingNode, MarkedYAMLError, Node, ScalarNode, SequenceNode, YAMLError
from yaml._yaml import CParser
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.reader import ReaderError
from yaml.resolver import BaseResolver

from runs.formats._problems import Problem, UnreadableFileError

Path = tuple[str | int, ...]

# An alias repeats what it names: a few lines can unfold to billions of values.
MOST_REPEATED = 100_000
MOST_DEPTH = 60
# The parser calls itself for every level and would run out of stack, which ends the process: a
# text that could nest deeper than this is walked through first.
SAFE_DEPTH = 500
OPENINGS = ("[", "{", "- ", "-\t", "? ", "?\t")
LONGEST_SHOWN = 60
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
        raise ValueError("is not a number")
    return number


READERS: Mapping[str, Callable[[str], Any]] = {
    TEXT: _text,
    NULL: lambda text: None,
    BOOL: lambda text: TRUTHS[text.lower()],
    INT: lambda text: _number(int(text, INT_BASES.get(text[:2], 10))),
    FLOAT: lambda text: _number(float(SPECIAL_FLOATS.get(text.lower(), text))),
}

# What YAML 1.2 takes for more than text: `no` and dates are texts, as in the files' other readers.
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
    """Tells texts, numbers, truths and nothing apart by the core schema of YAML 1.2."""


for _tag, _pattern, _firsts in IMPLICIT:
    _Resolver.add_implicit_resolver(_tag, re.compile(rf"\A(?:{_pattern})\Z"), _firsts)


class _Loader(CParser, _Resolver):
    """The parser of libyaml: nodes with their lines, twenty times as fast as one in Python."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        _Resolver.__init__(self)


@dataclass(frozen=True, slots=True)
class Document:
    """A file's values, and by path the line each stands on and numbers as they are written.

    `elsewhere` names the file of each key of the outermost mapping that stands in another one.
    """

    value: Any
    file: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)
    written: Mapping[Path, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def file_of(self, path: Path) -> str:
        """Return the file a value stands in."""
        return self.elsewhere.get(str(path[0]), self.file) if path else self.file

    def line_of(self, path: Path) -> int:
        """Return the line of a value, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)


def read_document(text: str, file: str = "") -> Document:
    """Return the one document of a YAML text.

    Dates stay as they are written. Raises UnreadableFileError with the line for what is not YAML,
    holds several documents, repeats a key, uses tags of its own, holds what cannot be stored, nests
    too deeply, or unfolds without end.
    """
    try:
        _refuse_depth(text, file)
        root = _Loader(text).get_single_node()
    except (YAMLError, ValueError, RecursionError) as error:
        raise UnreadableFileError([_problem(error, text, file)]) from error
    if root is None:
        raise UnreadableFileError([Problem("the file is empty", file)])
    reading = _Reading(file)
    try:
        return Document(reading.value(root, ()), file, reading.lines, reading.written)
    except RecursionError as error:
        raise UnreadableFileError([Problem("an alias holds itself", file)]) from error


def _refuse_depth(text: str, file: str) -> None:
    """Refuse a text nested so deeply that building its tree would overflow the parser's stack."""
    if sum(map(text.count, OPENINGS)) <= SAFE_DEPTH and " " * SAFE_DEPTH not in text:
        return
    parser, depth = _Loader(text), 0
    while (event := parser.get_event()) is not None:
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > SAFE_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise UnreadableFileError([Problem("the file is nested too deeply", file, line)])


def _problem(error: Exception, text: str, file: str) -> Problem:
    """Return what the parser could not read, with the line it stopped at."""
    said, line = str(error).partition("\n")[0], 0
    if isinstance(error, MarkedYAMLError):
        said = error.problem or error.context or "is not YAML"
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        begun = error.context_mark.line + 1 if error.context_mark else line
        said += f" in what begins on line {begun}" if begun < line else ""
    elif isinstance(error, ReaderError):
        line = text[: error.position].count("\n") + 1
    return Problem(f"not readable as YAML: {said}", file, line)


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
        if len(path) > MOST_DEPTH:
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
        self.repeated += id(node) in self.seen
        self.seen.add(id(node))
        if self.repeated > MOST_REPEATED:
            raise self.refusal(node, "the file unfolds to too many values; are aliases nested?")

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        """Return a mapping, with what `<<` merges in where it has no key of its own."""
        self.refuse_tag(node, (MAPPING,))
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, part in node.value:
            if key.tag == MERGE:
                merged = {**self.merged(part, path), **merged}
                continue
            name = self.key(key)
            if name in own:
                raise self.refusal(key, f"the key {name!r} stands twice")
            own[name] = self.value(part, (*path, name))
            self.lines[(*path, name)] = key.start_mark.line + 1
        return {**merged, **own}

    def merged(self, node: Node, path: Path) -> dict[str, Any]:
        """Return what a merge key brings in; of several mappings the first wins."""
        parts = [node]
        if isinstance(node, SequenceNode):
            self.refuse_tag(node, (LIST,))
            parts = node.value
        found: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, MappingNode):
                raise self.refusal(part, "<< takes a mapping")
            self.count(part)
            found = {**self.mapping(part, path), **found}
        return found

    def key(self, node: Node) -> str:
        """Return a key as it is written."""
        if not isinstance(node, ScalarNode):
            raise self.refusal(node, "a key is not plain text")
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
            shown = repr(node.value[:LONGEST_SHOWN])
            said = "is too large a number" if node.tag == INT else str(error)
            raise self.refusal(node, f"{shown} {said}") from error

    def refuse_tag(self, node: Node, known: Container[str]) -> None:
        """Refuse a node that a tag makes something else than it looks like."""
        if node.tag not in known:
            raise self.refusal(node, f"the tag {node.tag!r} is not known; write a plain value")

    def refusal(self, node: Node, message: str) -> UnreadableFileError:
        """Return the refusal that names the node's line."""
        return UnreadableFileError([Problem(message, self.file, node.start_mark.line + 1)])
