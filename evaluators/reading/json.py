"""Read JSON from outside: files, forms, and the answers of agents, judges and scripts.

Depth, number of values and size of numbers are limited, a repeated key costs no more than another one, and
what no database stores is refused or replaced.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from typing import Any, Literal, NoReturn

# Databases limit the depth of JSON; conversations and traces are far from it.
MAX_DEPTH = 200
MAX_VALUES = 1_000_000
# In what a model or an agent replies, many of which are read at a time.
MAX_REPLY_VALUES = 250_000
# Most readers take a longer whole number for infinity.
MAX_DIGITS = 300
MAX_SHOWN_LENGTH = 60
# NUL and lone surrogates: JSON can contain them, databases cannot.
UNSTORABLE = re.compile("[\\x00\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
TOO_DEEP = "nested too deeply"
_ESCAPED = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
# A string that is not closed reaches to the end, so that no character is looked at twice.
_QUOTED = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
_PART = re.compile(rf'(?:[^"]++|{_QUOTED.pattern}){{1,10000}}+', re.DOTALL)
_SIGNS = (",", "[", "{")


class RefusedJsonError(ValueError):
    """A text is JSON that is refused: readers would disagree about it, or it exceeds a limit."""


class TooManyValuesError(RefusedJsonError):
    """A text has more values than may be held in memory."""


def finite_float(text: str) -> float:
    """Return a number; raises ValueError for one that is not finite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:MAX_SHOWN_LENGTH]} is not a finite number")
    return number


def read_json(
    text: str,
    *,
    number: Callable[[str], Any] = finite_float,
    keeps_last: bool = False,
    unstorable: Literal["refuse", "replace", "keep"] = "refuse",
    takes_nan: bool = False,
    max_values: int = MAX_VALUES,
) -> Any:
    """Return the JSON value of a text; `number` reads each number with a point or an exponent.

    A repeated key is refused, or its last value counts with `keeps_last`. `unstorable` says what to do with
    characters that no database stores; with `takes_nan`, NaN and Infinity are null. Raises ValueError saying why:
    RefusedJsonError, or JSONDecodeError with the position of what is not JSON.
    """
    refuse_excess(text, max_values)
    try:
        decoder = json_decoder(number, keeps_last=keeps_last, takes_nan=takes_nan)
        value = decoder.decode(text)
    except RecursionError as error:
        raise RefusedJsonError(TOO_DEEP) from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _refuse_depth(value)
    if unstorable == "keep" or (not _ESCAPED.search(text) and is_storable(text)):
        return value
    if unstorable == "refuse" and not is_storable(value):
        reason = (
            "a text contains a character that cannot be stored: NUL or half of a surrogate pair"
        )
        raise RefusedJsonError(reason)
    return storable(value)


def storable(value: Any) -> Any:
    """Return a JSON value with a replacement for each character that no database stores."""
    if isinstance(value, str):
        return value if is_storable(value) else UNSTORABLE.sub(REPLACEMENT, value)
    if isinstance(value, Mapping):
        return {storable(name): storable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [storable(part) for part in value]
    return value


def is_storable(value: Any) -> bool:
    """Tell whether a database can store every text of a JSON value, keys included."""
    if isinstance(value, str):
        return "\0" not in value and (value.isascii() or UNSTORABLE.search(value) is None)
    if isinstance(value, Mapping):
        return all(is_storable(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple):
        return all(map(is_storable, value))
    return True


@cache
def json_decoder(
    number: Callable[[str], Any], *, keeps_last: bool = False, takes_nan: bool = False
) -> json.JSONDecoder:
    """Return the decoder behind `read_json`, for texts with more than JSON in them."""
    return json.JSONDecoder(
        object_pairs_hook=None if keeps_last else _object,
        parse_float=number,
        parse_int=_whole,
        parse_constant=_no_number if takes_nan else _refuse_constant,
    )


def refuse_excess(text: str, max_values: int) -> None:
    """Raise TooManyValuesError before too many values take memory: each but the first follows a sign."""
    if sum(map(text.count, _SIGNS)) < max_values:
        return
    if any(count > max_values for count in accumulate(_count_signs(text), initial=1)):
        raise TooManyValuesError(f"it contains more than {max_values:,} values")


def count_values(text: str) -> int:
    """Return how many values a JSON text has, without reading it."""
    return 1 + sum(_count_signs(text))


def _count_signs(text: str) -> Iterator[int]:
    """Yield the numbers of signs outside quotes, part by part: what is between millions of quotes takes memory."""
    for part in _PART.finditer(text):
        unquoted = _QUOTED.sub("", part[0])
        yield sum(map(unquoted.count, _SIGNS))


def _refuse_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [part for part in level if isinstance(part, dict | list)]
        level = [
            inner
            for part in containers
            for inner in (part.values() if isinstance(part, dict) else part)
        ]
        if not level:
            return
    raise RefusedJsonError(TOO_DEEP)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                shown = repr(name[:MAX_SHOWN_LENGTH])
                raise RefusedJsonError(f"the key {shown} is repeated in one object")
            names.add(name)
    return values


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text[:20]}… is too large a number")
    return int(text)


def _no_number(_: str) -> None:
    """Stand for a number that is none."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
