"""Lines of JSON, read strictly: what no database keeps is refused with its reason."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

# Databases read JSON to a limited depth; what is said in a conversation or trace is far from it.
MOST_DEPTH = 200
# A longer whole number is no finite one to most readers.
MOST_DIGITS = 300
UNSTORABLE = re.compile("[\\x00\ud800-\udfff]")
UNSTORABLE_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class UnreadableLineError(ValueError):
    """A line is not an object of JSON that can be stored; the message says why."""


class WrittenFloat(float):
    """A number that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        """Read a number; raises ValueError for one that is not finite."""
        number = super().__new__(cls, text)
        if not math.isfinite(number):
            raise ValueError(f"{text} is not a finite number")
        number.text = text
        return number


def with_plain_numbers(value: Any) -> Any:
    """Return a value whose numbers remember nothing."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return {name: with_plain_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_plain_numbers(part) for part in value]
    return value


def lines_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank with their numbers from 1; only a line feed ends a line."""
    for number, raw in enumerate(content.removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1):
        if raw.strip():
            yield number, raw


def read_object(raw: bytes) -> dict[str, Any]:
    """Return the object of a line, its numbers with a point as WrittenFloat.

    Raises UnreadableLineError for what is not JSON, no object, repeats a key, is nested too deeply or
    holds what cannot be stored.
    """
    try:
        fields: Any = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=WrittenFloat,
            parse_int=_whole,
        )
        if raw.count(b"[") + raw.count(b"{") > MOST_DEPTH or UNSTORABLE_ESCAPE.search(raw):
            _check_storable(fields)
    except (ValueError, RecursionError) as error:
        raise UnreadableLineError(_reason(error)) from error
    if not isinstance(fields, dict):
        raise UnreadableLineError("the line is not a JSON object")
    return fields


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not readable as JSON: {error.msg} at character {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:20]}… is too large a number")
    return int(text)


def _check_storable(value: Any, depth: int = 0) -> None:
    """Refuse depth and characters that no database keeps: NUL and halves of surrogate pairs."""
    if depth > MOST_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str) and UNSTORABLE.search(value):
        raise ValueError("the line holds a character that cannot be stored: NUL or half of a pair")
    if isinstance(value, dict):
        for name, part in value.items():
            _check_storable(name, depth)
            _check_storable(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            _check_storable(part, depth + 1)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
