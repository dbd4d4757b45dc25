"""JSON values: found in an answer, held against one another, and shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn

FENCE = "```"
MOST_STARTS = 10
LONGEST_SHOWN = 200
ELLIPSIS = "…"
# Halves of surrogate pairs: JSON can spell them, no database keeps them.
HALVES = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"
DEEP = "nested too deeply to show"


class UnclearJsonError(ValueError):
    """An object of the JSON has a key twice, so that its readers would not agree on what it says."""


def json_in(text: str) -> Any:
    """Return the JSON value a text is, or that of its last fenced block, or of an object in its prose.

    Numbers with a point come as Decimal. Raises UnclearJsonError for a key that stands twice, and
    ValueError with what keeps the text from being JSON.
    """
    try:
        return _parsed(text)
    except UnclearJsonError:
        raise
    except ValueError as error:
        problem = error
    if text.lstrip().startswith(("{", "[")):
        raise problem
    for block in reversed(list(_blocks(text))):
        try:
            return _parsed(block)
        except UnclearJsonError:
            raise
        except ValueError:
            continue
    found = _embedded(text)
    if found is None:
        raise problem
    return found


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal: 1 is 1.0 and not true, the order of keys says nothing."""
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs += [(left[key], right[key]) for key in left]
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif not _same_scalar(left, right):
            return False
    return True


def number_of(value: Any) -> Decimal | None:
    """Return a finite number exactly, None for anything else; true is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return number if number.is_finite() else None


def shown_value(value: Any, longest: int = LONGEST_SHOWN) -> str:
    """Return a value as JSON on one line, its end left out when it is long."""
    text = ""
    try:
        # Piece by piece, so that of a large value only what is shown is written.
        for piece in _ENCODER.iterencode(value):
            text += HALVES.sub(REPLACEMENT, piece)
            if len(text) > longest:
                return f"{text[:longest]}{ELLIPSIS}"
    except (RecursionError, ValueError):
        return DEEP
    return text


def shown_text(text: str, longest: int = LONGEST_SHOWN) -> str:
    """Return a text as it is, without what no database keeps, its end left out when it is long."""
    cut = HALVES.sub(REPLACEMENT, text[: longest + 1].replace("\0", REPLACEMENT))
    return cut if len(cut) <= longest else f"{cut[:longest]}{ELLIPSIS}"


def spelt_value(value: Any) -> str:
    """Return a text as it is and any other value as JSON."""
    try:
        return value if isinstance(value, str) else _ENCODER.encode(value)
    except (RecursionError, ValueError):
        return DEEP


def is_json(value: Any) -> bool:
    """Tell whether a value of a file or form can stand in JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _same_scalar(one: Any, other: Any) -> bool:
    numbers = number_of(one), number_of(other)
    if None not in numbers:
        return numbers[0] == numbers[1]
    return type(one) is type(other) and bool(one == other)


def _parsed(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _blocks(text: str) -> Iterator[str]:
    """Yield what stands between lines of three backticks, of JSON or of nothing named."""
    lines: list[str] | None = None
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if lines is None:
            lines = [] if stripped.startswith(FENCE) else None
        elif stripped == FENCE:
            yield "".join(lines)
            lines = None
        else:
            lines.append(line)


def _embedded(text: str) -> Any:
    """Return the last object that stands in prose, None without one; only the first ten braces are tried."""
    found, at = None, 0
    for _ in range(MOST_STARTS):
        at = text.find("{", at)
        if at < 0:
            break
        try:
            found, at = _DECODER.raw_decode(text, at)
        except UnclearJsonError:
            raise
        except (ValueError, RecursionError):
            at += 1
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UnclearJsonError(f"the key {shown_value(twice)} stands twice")
    return found


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise ValueError(f"{text[:LONGEST_SHOWN]} is too large a number") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _plain(value: Any) -> Any:
    is_float = isinstance(value, Decimal) and isfinite(float(value))
    return float(value) if is_float else str(value)


_DECODER = json.JSONDecoder(
    parse_float=_decimal, parse_constant=_refuse_constant, object_pairs_hook=_object
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_plain)
