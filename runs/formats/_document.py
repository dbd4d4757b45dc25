"""YAML read into plain values, with the line of every one of them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from yaml import MappingNode, Node, ScalarNode, SequenceNode

from runs.formats._parsing import FLOAT, INT, LIST, MAPPING, MERGE, READERS, parsed
from runs.formats._problems import Problem, UnreadableFileError

Path = tuple[str | int, ...]

# An alias repeats what it names: a few lines can unfold to billions of values.
MOST_REPEATED = 500_000
MOST_DEPTH = 60
TEXT_UNIT = 400
LONGEST_SHOWN = 60


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
    root = parsed(text, file)
    if root is None:
        raise UnreadableFileError(
            [Problem("the file is empty; a suite names its cases under tests", file)]
        )
    reading = _Reading(file)
    try:
        return Document(reading.value(root, ()), file, reading.lines, reading.written)
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
        if id(node) in self.seen:
            # A long text counts as the many short ones that it would fill a database like.
            self.repeated += 1 + (
                len(node.value) // TEXT_UNIT if isinstance(node.value, str) else 0
            )
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
                raise self.refusal(key, f"the key {name!r} stands twice; keep one of them")
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
            shown = repr(node.value[:LONGEST_SHOWN])
            said = "is too large a number; put it in quotes" if node.tag == INT else str(error)
            raise self.refusal(node, f"{shown} {said}") from error

    def refuse_tag(self, node: Node, known: Container[str]) -> None:
        """Refuse a node that a tag makes something else than it looks like."""
        if node.tag not in known:
            raise self.refusal(node, f"the tag {node.tag!r} is not known; write a plain value")

    def refusal(self, node: Node, message: str) -> UnreadableFileError:
        """Return the refusal that names the node's line."""
        return UnreadableFileError([Problem(message, self.file, node.start_mark.line + 1)])


def named(value: Any) -> str:
    """Say in words what a value is."""
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
