"""The parser of suite files: YAML's nodes with their lines, and what would mend a text that is none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from yaml import MarkedYAMLError, Node, YAMLError
from yaml._yaml import CParser
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from yaml.reader import ReaderError
from yaml.resolver import BaseResolver

from runs.formats._problems import Problem, UnreadableFileError

# The parser calls itself for every level and would run out of stack, which ends the process: a
# text that could nest deeper than this is walked through first.
SAFE_DEPTH = 500
MOST_VALUES = 1_000_000
SEPARATORS = (",", ":", "\n")
OPENINGS = ("[", "{", "- ", "-\t", "? ", "?\t")
# What the parser says, and what most often mends it.
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


def parsed(text: str, file: str = "") -> Node | None:
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
    """Refuse a text whose tree would overflow the parser's stack or fill the memory, unbuilt."""
    could_nest = sum(map(text.count, OPENINGS)) > SAFE_DEPTH or " " * SAFE_DEPTH in text
    if not could_nest and sum(map(text.count, SEPARATORS)) <= MOST_VALUES:
        return
    parser, depth, values = _Loader(text), 0, 0
    while (event := parser.get_event()) is not None:
        values += isinstance(event, ScalarEvent | AliasEvent | CollectionStartEvent)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        said = ""
        if depth > SAFE_DEPTH:
            said = f"the file is nested too deeply; {SAFE_DEPTH} levels are the most"
        elif values > MOST_VALUES:
            said = f"the file holds more than {MOST_VALUES:,} values; split it, or write its cases as JSON Lines"
        if said:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise UnreadableFileError([Problem(said, file, line)])


def _problem(error: Exception, text: str, file: str) -> Problem:
    """Return what the parser could not read, with the line it stopped at."""
    said, line = str(error).partition("\n")[0], 0
    if isinstance(error, MarkedYAMLError):
        said = (error.problem or error.context or "is not YAML").removeprefix("but ")
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        begun = error.context_mark.line + 1 if error.context_mark else line
        said += f" in what begins on line {begun}" if begun < line else ""
    elif isinstance(error, ReaderError):
        line = text[: error.position].count("\n") + 1
    return Problem(f"not readable as YAML: {said}{_remedy(said, text, line)}", file, line)


def _remedy(said: str, text: str, line: int) -> str:
    """Return what would mend a text the parser stopped at, as far as can be told."""
    written = text.split("\n")[line - 1] if 0 < line <= text.count("\n") + 1 else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "; indent with spaces, not with tabs"
    return next((f"; {remedy}" for part, remedy in REMEDIES.items() if part in said), "")
