"""YAML read into plain values, with the line of every one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runs.formats._problems import Problem, UnreadableFileError

Path = tuple[str | int, ...]

# An alias repeats what it names: a few lines can unfold to billions of values.
MOST_REPEATED = 100_000
MOST_DEPTH = 60
TAG = "tag:yaml.org,2002:"
MERGE = f"{TAG}merge"
AS_WRITTEN = (f"{TAG}timestamp", f"{TAG}str", f"{TAG}value")
NUMBERS = (f"{TAG}int", f"{TAG}float")
PLAIN = tuple(f"{TAG}{name}" for name in ("null", "bool", "int", "float"))


@dataclass(frozen=True, slots=True)
class Document:
    """A file's values, and by path the line each stands on and numbers as they are written."""

    value: Any
    file: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)
    written: Mapping[Path, str] = field(default_factory=dict)

    def line_of(self, path: Path) -> int:
        """Return the line of a value, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)


def read_document(text: str, file: str = "") -> Document:
    """Return the one document of a YAML text.

    Dates stay as they are written. Raises UnreadableFileError with the line for what is not YAML,
    holds several documents, repeats a key, uses tags of its own, or unfolds without end.
    """
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        said = error.problem or error.context or "is not YAML"
        raise UnreadableFileError([Problem(f"not readable as YAML: {said}", file, line)]) from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise UnreadableFileError([Problem(f"not readable as YAML: {error}", file)]) from error
    if root is None:
        raise UnreadableFileError([Problem("the file is empty", file)])
    reading = _Reading(file, yaml.constructor)
    try:
        return Document(reading.value(root, ()), file, reading.lines, reading.written)
    except RecursionError as error:
        raise UnreadableFileError([Problem("an alias holds itself", file)]) from error


class _Reading:
    """One pass over the nodes of a document."""

    def __init__(self, file: str, construct: Any) -> None:
        self.file = file
        self.construct = construct
        self.lines: dict[Path, int] = {}
        self.written: dict[Path, str] = {}
        self.seen: set[int] = set()
        self.repeated = 0

    def value(self, node: Node, path: Path) -> Any:
        """Return the plain value of a node and note the lines of it and all within."""
        self.repeated += id(node) in self.seen
        self.seen.add(id(node))
        if self.repeated > MOST_REPEATED or len(path) > MOST_DEPTH:
            raise self.refusal(node, "the file unfolds to too many values; are aliases nested?")
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(part, (*path, n)) for n, part in enumerate(node.value)]
        if node.tag in NUMBERS:
            self.written[path] = str(node.value)
        return self.scalar(node)

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        """Return a mapping, with what `<<` merges in where it has no key of its own."""
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
        parts = node.value if isinstance(node, SequenceNode) else [node]
        found: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, MappingNode):
                raise self.refusal(part, "<< takes a mapping")
            found = {**self.mapping(part, path), **found}
        return found

    def key(self, node: Node) -> str:
        """Return a key as it is written."""
        if not isinstance(node, ScalarNode):
            raise self.refusal(node, "a key is not plain text")
        return str(node.value)

    def scalar(self, node: Node) -> Any:
        """Return text, number, truth or nothing."""
        if node.tag in AS_WRITTEN:
            return str(node.value)
        if node.tag not in PLAIN:
            raise self.refusal(node, f"the tag {node.tag!r} is not known; write a plain value")
        try:
            return self.construct.construct_object(node)
        except (ValueError, YAMLError) as error:
            raise self.refusal(node, f"{node.value!r} is not readable: {error}") from error

    def refusal(self, node: Node, message: str) -> UnreadableFileError:
        """Return the refusal that names the node's line."""
        return UnreadableFileError([Problem(message, self.file, node.start_mark.line + 1)])
