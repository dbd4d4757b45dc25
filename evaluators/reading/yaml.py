"""Read YAML from outside into plain values, each with its line, and write values as YAML.

Both follow the core schema of YAML 1.2; dates stay as written. When reading, size, depth, the number of
values and what aliases unfold to are limited.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from yaml import MappingNode, MarkedYAMLError, Node, ScalarNode, SequenceNode, YAMLError
from yaml._yaml import CEmitter, CParser
from yaml.emitter import Emitter
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from yaml.reader import ReaderError
from yaml.representer import SafeRepresenter
from yaml.resolver import BaseResolver, Resolver
from yaml.serializer import Serializer

Path = tuple[str | int, ...]


class UnreadableYamlError(ValueError):
    """A text is not YAML, or exceeds a limit; `line` counts from 1 and is 0 for the whole text."""

    def __init__(self, message: str, line: int = 0) -> None:
        """Take the problem, with what would be right."""
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """How many values a text may hold, what to do with more, and how many values aliases may repeat."""

    values: int
    remedy: str
    repeated: int


FILE_LIMITS = YamlLimits(1_000_000, "split it, or write its cases as JSON Lines", 500_000)
# A field of a form is shown again with its values, which takes far longer than reading them.
FIELD_LIMITS = YamlLimits(10_000, "put that many into a suite file", 0)


@dataclass(frozen=True, slots=True)
class YamlText:
    """The values of a text; by path the line of each, and numbers as written."""

    value: Any
    lines: Mapping[Path, int] = field(default_factory=dict)
    written: Mapping[Path, str] = field(default_factory=dict)


def read_yaml(text: str, limits: YamlLimits = FILE_LIMITS) -> YamlText | None:
    """Return the one document of a text, None for an empty one.

    Raises UnreadableYamlError with line and remedy if the text is not YAML, has several documents, repeats
    a key, uses custom tags, cannot be stored, nests too deeply, holds too many values, or unfolds to too many.
    """
    try:
        _refuse_excess(text, limits)
        root: Node | None = _Loader(text).get_single_node()
    except UnreadableYamlError:
        raise
    except (YAMLError, ValueError, RecursionError) as error:
        raise _refusal(error, text) from error
    if root is None:
        return None
    reading = _Reading(limits)
    try:
        return YamlText(reading.value(root, ()), reading.lines, reading.written)
    except RecursionError as error:
        raise UnreadableYamlError("an alias contains itself; write the value out") from error


# The parser recurses for every level and could run out of stack, which ends the process. A text that
# could nest deeper than this is scanned first.
SAFE_DEPTH = 500
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
        raise ValueError("contains the character NUL, which cannot be stored")
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


def _refuse_excess(text: str, limits: YamlLimits) -> None:
    """Refuse a text whose tree would overflow the parser's stack or the memory, before building it."""
    could_nest = sum(map(text.count, OPENINGS)) > SAFE_DEPTH or " " * SAFE_DEPTH in text
    if not could_nest and sum(map(text.count, SEPARATORS)) <= limits.values:
        return
    parser, depth, values = _Loader(text), 0, 0
    while (event := parser.get_event()) is not None:
        values += isinstance(event, ScalarEvent | AliasEvent | CollectionStartEvent)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        message = ""
        if depth > SAFE_DEPTH:
            message = f"it is nested too deeply; {SAFE_DEPTH} levels is the limit"
        elif values > limits.values:
            message = f"it contains more than {limits.values:,} values; {limits.remedy}"
        if message:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise UnreadableYamlError(message, line)


def _refusal(error: Exception, text: str) -> UnreadableYamlError:
    """Return the refusal of what the parser could not read, with the line where it stopped."""
    message, line = str(error).partition("\n")[0], 0
    if isinstance(error, MarkedYAMLError):
        message = (error.problem or error.context or "is not YAML").removeprefix("but ")
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        begun = error.context_mark.line + 1 if error.context_mark else line
        message += f" in what begins on line {begun}" if begun < line else ""
    elif isinstance(error, ReaderError):
        line = text[: error.position].count("\n") + 1
    remedy = _remedy(message, text, line)
    return UnreadableYamlError(f"not readable as YAML: {message}{remedy}", line)


def _remedy(message: str, text: str, line: int) -> str:
    """Return a remedy for the text where the parser stopped, "" if none is known."""
    written = text.split("\n")[line - 1] if 0 < line <= text.count("\n") + 1 else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "; indent with spaces, not with tabs"
    return next((f"; {remedy}" for part, remedy in REMEDIES.items() if part in message), "")


MAX_DEPTH = 60
TEXT_UNIT = 400
MAX_SHOWN_LENGTH = 60


class _Reading:
    """One pass over the nodes of a document."""

    def __init__(self, limits: YamlLimits) -> None:
        self.limits = limits
        self.lines: dict[Path, int] = {}
        self.written: dict[Path, str] = {}
        self.seen: set[int] = set()
        self.repeated = 0

    def value(self, node: Node, path: Path) -> Any:
        """Return the plain value of a node and note the lines of it and all within."""
        self.count(node)
        if len(path) > MAX_DEPTH:
            message = f"it is nested deeper than {MAX_DEPTH} levels, or an alias contains itself"
            raise self.refusal(node, message)
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
        """Count a node, key or value, that is read once more, by an alias or a merge; refuse too many."""
        if id(node) in self.seen:
            # A long text counts as many short ones, because it takes as much space.
            self.repeated += 1 + (
                len(node.value) // TEXT_UNIT if isinstance(node.value, str) else 0
            )
        self.seen.add(id(node))
        if self.repeated > self.limits.repeated:
            # A few lines can unfold to billions of values.
            message = "it unfolds to too many values; are aliases nested?"
            alone = "an alias repeats a value; write the value out"
            raise self.refusal(node, message if self.limits.repeated else alone)

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        """Return a mapping; keys merged by `<<` do not override its own."""
        self.refuse_tag(node, (MAPPING,))
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, part in node.value:
            if key.tag == MERGE:
                for name, value in self.merge(part, path).items():
                    merged.setdefault(name, value)
                continue
            self.count(key)
            name = self.key(key)
            if name in own:
                raise self.refusal(key, f"the key {name!r} is repeated; keep one of them")
            own[name] = self.value(part, (*path, name))
            self.lines[(*path, name)] = key.start_mark.line + 1
        return {**merged, **own}

    def merge(self, node: Node, path: Path) -> dict[str, Any]:
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
            for name, value in self.mapping(part, path).items():
                values.setdefault(name, value)
        return values

    def key(self, node: Node) -> str:
        """Return a key as it is written."""
        if not isinstance(node, ScalarNode):
            raise self.refusal(node, "a key is not plain text; write one word, or put it in quotes")
        self.refuse_tag(node, READERS)
        if "\0" in node.value:
            raise self.refusal(node, "a key contains the character NUL, which cannot be stored")
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

    def refusal(self, node: Node, message: str) -> UnreadableYamlError:
        """Return the refusal that names the node's line."""
        return UnreadableYamlError(message, node.start_mark.line + 1)


# Wide enough that no line is folded.
WIDTH = 1_000_000
ESCAPED_EMOJI = r"\U000"


class _CarefulResolver(_Resolver):
    """Finds what YAML 1.1 reads as more than text too, such as `no` and dates, so that it is written in quotes."""


for _first, _listed in Resolver.yaml_implicit_resolvers.items():
    for _tag, _expression in _listed:
        _CarefulResolver.add_implicit_resolver(_tag, _expression, [_first])


class _Representer(SafeRepresenter):
    """Writes texts of several lines as blocks, and decimals with all their digits."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value out wherever it occurs."""
        return True

    def represent_text(self, text: str) -> ScalarNode:
        """Return a text as a block, plain, or with escapes if it would not be read back unchanged otherwise."""
        style = "|" if _fits_block(text) else None if text.isprintable() else '"'
        return self.represent_scalar(TEXT, text, style)

    def represent_decimal(self, number: Decimal) -> ScalarNode:
        """Return a number with all its digits, which a float could lose."""
        digits = f"{number:f}"
        return self.represent_scalar(FLOAT if "." in digits else INT, digits)


_Representer.add_representer(str, _Representer.represent_text)
_Representer.add_representer(Decimal, _Representer.represent_decimal)


class _Dumper(CEmitter, _Representer, _CarefulResolver):
    """The writer of libyaml, ten times as fast as one in Python; it escapes emoji."""

    def __init__(self, stream: io.StringIO) -> None:
        CEmitter.__init__(self, stream, width=WIDTH, allow_unicode=True)
        _Representer.__init__(self, default_flow_style=False, sort_keys=False)
        _CarefulResolver.__init__(self)


class _EmojiDumper(Emitter, Serializer, _Representer, _CarefulResolver):
    """Writes every character that can be shown as it is."""

    def __init__(self, stream: io.StringIO) -> None:
        Emitter.__init__(self, stream, width=WIDTH, allow_unicode=True)
        Serializer.__init__(self)
        _Representer.__init__(self, default_flow_style=False, sort_keys=False)
        _CarefulResolver.__init__(self)


def write_yaml(value: Any) -> str:
    """Return plain values as YAML: mappings, lists, texts, numbers, decimals, booleans and None."""
    text = _written(_Dumper, value)
    return _written(_EmojiDumper, value) if ESCAPED_EMOJI in text else text


def _written(writer: type[_Dumper | _EmojiDumper], value: Any) -> str:
    stream = io.StringIO()
    dumper = writer(stream)
    dumper.open()
    dumper.represent(value)
    dumper.close()
    return stream.getvalue()


def _fits_block(text: str) -> bool:
    """Tell whether a block would be read back as exactly this text."""
    lines = text.split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    starts_plainly = bool(lines[0]) and not lines[0].startswith(" ")
    return plain and starts_plainly and len(lines) > 1 and not text.endswith("\n\n")
