"""Read YAML from outside into plain values, each with its line, and write values as YAML.

Both follow the core schema of YAML 1.2; dates stay as written. When reading, size, depth, the number of
values and what aliases unfold to are limited.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from yaml import MarkedYAMLError, ScalarNode, YAMLError
from yaml._yaml import CEmitter, CParser
from yaml.emitter import Emitter
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
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
        return _Reading(text, limits).document()
    except UnreadableYamlError:
        raise
    except RecursionError as error:
        message = "<< is nested too deeply; write the merged values out"
        raise UnreadableYamlError(message) from error
    except (YAMLError, ValueError) as error:
        raise _refusal(error, text) from error


# Messages of the parser, with the most likely remedy.
REMEDIES = {
    "mapping values are not allowed": "put a text with a colon in it in quotes",
    "could not find expected ':'": "put a colon after the key, or the text in quotes",
    "cannot start any token": "put the text in quotes",
    "did not find expected": "close what is open, and line up keys and items of one list",
    "found unexpected": "close the quotes",
    "duplicate anchor": "give each value a name of its own after &",
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
TEXT_UNIT, PATH_UNIT = 400, 10
MAX_SHOWN_LENGTH = 60


# Stubs do not know that every event of libyaml has its marks.
Event = Any
# Returns the next event: of the text, or of a value that an alias repeats.
Take = Callable[[], Event]


class _Reading:
    """One pass over the events of libyaml, whose parser is twenty times as fast as one in Python."""

    def __init__(self, text: str, limits: YamlLimits) -> None:
        self.parser = CParser(text)
        self.resolver: Any = _Resolver()
        self.limits = limits
        self.lines: dict[Path, int] = {}
        self.written: dict[Path, str] = {}
        # The events of values with an anchor, for aliases: which of `kept` they are, without an end while it is not read.
        self.anchored: dict[str, slice] = {}
        self.open: list[str] = []
        self.kept: list[Event] = []
        self.values = self.repeated = 0

    def document(self) -> YamlText | None:
        """Return the values of the only document, None where there is none."""
        self.parser.get_event()
        if self.parser.check_event(StreamEndEvent):
            return None
        self.parser.get_event()
        value = self.value(self.next(), (), self.next)
        self.parser.get_event()
        if not self.parser.check_event(StreamEndEvent):
            raise _unreadable(self.parser.peek_event(), "found another document")
        return YamlText(value, self.lines, self.written)

    def next(self) -> Event:
        """Return the next event of the text."""
        event = self.parser.get_event()
        if self.open:
            self.kept.append(event)
        return event

    def value(self, event: Event, path: Path, take: Take) -> Any:
        """Return the plain value that begins with an event, and note the lines of it and all within."""
        event, take = self.begin(event, path, take)
        if len(path) > MAX_DEPTH:
            message = f"it is nested too deeply; {MAX_DEPTH} levels is the limit"
            raise self.refusal(event, message)
        self.lines[path] = event.start_mark.line + 1
        if isinstance(event, MappingStartEvent):
            return self.mapping(event, path, take)
        if isinstance(event, SequenceStartEvent):
            parts = self.parts(event, take)
            return [self.value(part, (*path, n), take) for n, part in enumerate(parts)]
        tag = self.tag(event)
        if tag in (INT, FLOAT):
            self.written[path] = event.value
        return self.scalar(event, tag)

    def begin(self, event: Event, path: Path, take: Take) -> tuple[Event, Take]:
        """Count a value or a key, and refuse too many; return the first event of it, and what returns its others.

        What takes the space of several values counts as several: a long path, and an event that is kept for aliases.
        """
        if isinstance(event, AliasEvent):
            events = self.aliased(event)
            event, take = events[0], iter(events[1:]).__next__
        if take != self.next:
            # A long text counts as many short ones, because it takes as much space.
            text = event.value if isinstance(event, ScalarEvent) else ""
            self.repeated += 1 + len(path) // PATH_UNIT + len(text) // TEXT_UNIT
            if self.repeated > self.limits.repeated:
                # A few lines can unfold to billions of values.
                message = "it unfolds to too many values; are aliases nested?"
                alone = "an alias repeats a value; write the value out"
                raise self.refusal(event, message if self.limits.repeated else alone)
            return event, take
        self.values += 1 + len(path) // PATH_UNIT + bool(self.open) + 2 * (event.anchor is not None)
        if self.values > self.limits.values:
            message = f"it contains more than {self.limits.values:,} values; {self.limits.remedy}"
            raise self.refusal(event, message)
        if event.anchor is not None:
            if event.anchor in self.anchored:
                raise _unreadable(event, f"found duplicate anchor {event.anchor!r}")
            if not self.open:
                self.kept.append(event)
            first = len(self.kept) - 1
            if isinstance(event, ScalarEvent):
                self.anchored[event.anchor] = slice(first, first + 1)
            else:
                self.anchored[event.anchor] = slice(first, None)
                self.open.append(event.anchor)
        return event, take

    def end(self, event: Event, take: Take) -> None:
        """Let aliases repeat a list or mapping, which has been read to its end."""
        if event.anchor is not None and take == self.next:
            first = self.anchored[self.open.pop()].start
            self.anchored[event.anchor] = slice(first, len(self.kept))

    def aliased(self, alias: Event) -> list[Event]:
        """Return the events of the value that an alias repeats."""
        place = self.anchored.get(alias.anchor)
        if place is None:
            raise _unreadable(alias, f"found undefined alias {alias.anchor!r}")
        if place.stop is None:
            raise self.refusal(alias, "an alias contains itself; write the value out")
        return self.kept[place]

    def parts(self, event: Event, take: Take) -> Iterator[Event]:
        """Yield the first event of each value of a list; the others must be taken before the next."""
        self.refuse_tag(event, self.tag(event), (LIST,))
        while not isinstance(part := take(), SequenceEndEvent):
            yield part
        self.end(event, take)

    def mapping(self, event: Event, path: Path, take: Take) -> dict[str, Any]:
        """Return a mapping; keys merged by `<<` do not override its own."""
        self.refuse_tag(event, self.tag(event), (MAPPING,))
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        while not isinstance(key := take(), MappingEndEvent):
            key, _ = self.begin(key, path, take)
            tag = self.tag(key)
            if tag == MERGE:
                for name, value in self.merge(take(), path, take).items():
                    merged.setdefault(name, value)
                continue
            name = self.key(key, tag)
            if name in own:
                raise self.refusal(key, f"the key {name!r} is repeated; keep one of them")
            own[name] = self.value(take(), (*path, name), take)
            self.lines[(*path, name)] = key.start_mark.line + 1
        self.end(event, take)
        return {**merged, **own}

    def merge(self, event: Event, path: Path, take: Take) -> dict[str, Any]:
        """Return what a merge key brings in; of several mappings the first wins."""
        event, take = self.begin(event, path, take)
        if not isinstance(event, SequenceStartEvent):
            return self.merged(event, take, path)
        values: dict[str, Any] = {}
        for part in self.parts(event, take):
            for name, value in self.merged(*self.begin(part, path, take), path).items():
                values.setdefault(name, value)
        return values

    def merged(self, event: Event, take: Take, path: Path) -> dict[str, Any]:
        """Return one mapping that is merged."""
        if not isinstance(event, MappingStartEvent):
            raise self.refusal(event, "<< takes a mapping")
        return self.mapping(event, path, take)

    def key(self, event: Event, tag: str) -> str:
        """Return a key as it is written."""
        if not isinstance(event, ScalarEvent):
            raise self.refusal(
                event, "a key is not plain text; write one word, or put it in quotes"
            )
        self.refuse_tag(event, tag, READERS)
        if "\0" in event.value:
            raise self.refusal(event, "a key contains the character NUL, which cannot be stored")
        return str(event.value)

    def scalar(self, event: Event, tag: str) -> Any:
        """Return text, number, truth or nothing."""
        self.refuse_tag(event, tag, READERS)
        try:
            return READERS[tag](event.value)
        except (ValueError, KeyError, OverflowError) as error:
            shown = repr(event.value[:MAX_SHOWN_LENGTH])
            message = "is too large a number; put it in quotes" if tag == INT else str(error)
            raise self.refusal(event, f"{shown} {message}") from error

    def tag(self, event: Event) -> str:
        """Return the tag that is written, otherwise that of a list, of a mapping, or of how a scalar looks."""
        if event.tag not in (None, "!"):
            return str(event.tag)
        if isinstance(event, ScalarEvent):
            return str(self.resolver.resolve(ScalarNode, event.value, event.implicit))
        return LIST if isinstance(event, SequenceStartEvent) else MAPPING

    def refuse_tag(self, event: Event, tag: str, known: Container[str]) -> None:
        """Refuse a value with an unknown tag."""
        if tag not in known:
            raise self.refusal(event, f"the tag {tag!r} is not known; write a plain value")

    def refusal(self, event: Event, message: str) -> UnreadableYamlError:
        """Return the refusal that names the line of an event."""
        return UnreadableYamlError(message, event.start_mark.line + 1)


def _unreadable(event: Event, problem: str) -> MarkedYAMLError:
    """Return the error of a parser at an event."""
    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


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
