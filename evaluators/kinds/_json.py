"""JSON in answers: find it, compare it, show it, and check it against a schema."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from evaluators.kinds._text import LIMIT_S, SlowPatternError, compile_pattern
from evaluators.reading.json import (
    MAX_REPLY_VALUES,
    RefusedJsonError,
    json_decoder,
    read_json,
    storable,
)

FENCE = "```"
MAX_STARTS = 10
MAX_SHOWN_LENGTH = 200
ELLIPSIS = "…"
LONG = 200_000
DEEP = "nested too deeply to show"


def find_json(text: str) -> Any:
    """Return the JSON value of a text, of its last fenced block, or of the last object in its prose.

    Numbers with a point become Decimal. Raises ValueError saying why there is none, RefusedJsonError where
    there is one that is refused.
    """
    try:
        return _parsed(text)
    except RefusedJsonError:
        raise
    except ValueError as error:
        problem = error
    if text.lstrip().startswith(("{", "[")):
        raise problem
    for block in reversed(list(fenced_blocks(text))):
        try:
            return _parsed(block)
        except RefusedJsonError:
            raise
        except ValueError:
            continue
    value = _embedded(text)
    if value is None:
        raise problem
    return value


async def find_long_json(text: str) -> Any:
    """Return what `find_json` finds, a long text read in a thread, so that it does not block the event loop."""
    return await asyncio.to_thread(find_json, text) if len(text) > LONG else find_json(text)


def is_same(left: Any, right: Any) -> bool:
    """Tell whether two JSON values are equal: 1 equals 1.0 but not true, and key order does not matter."""
    pairs = [(left, right)]
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


def exact_number(value: Any) -> Decimal | None:
    """Return a finite number exactly, None for anything else; true is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return number if number.is_finite() else None


def format_value(value: Any, longest: int = MAX_SHOWN_LENGTH) -> str:
    """Return a value as JSON on one line, cut if it is long."""
    text = ""
    try:
        # Encode in pieces, so that only the shown part of a large value is written.
        for piece in _ENCODER.iterencode(value):
            text += storable(piece)
            if len(text) > longest:
                return f"{text[:longest]}{ELLIPSIS}"
    except (RecursionError, ValueError):
        return DEEP
    return text


def shorten_text(text: str, longest: int = MAX_SHOWN_LENGTH) -> str:
    """Return a text without characters that no database stores, cut if it is long."""
    cut: str = storable(text[: longest + 1])
    return cut if len(cut) <= longest else f"{cut[:longest]}{ELLIPSIS}"


def plain_value(value: Any) -> str:
    """Return a text as it is, any other value as JSON."""
    try:
        return value if isinstance(value, str) else _ENCODER.encode(value)
    except (RecursionError, ValueError):
        return DEEP


def is_json(value: Any) -> bool:
    """Tell whether a value can be written as JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _same_scalar(left: Any, right: Any) -> bool:
    numbers = exact_number(left), exact_number(right)
    if None not in numbers:
        return numbers[0] == numbers[1]
    return type(left) is type(right) and bool(left == right)


def _parsed(text: str) -> Any:
    return read_json(text, number=_decimal, unstorable="keep", max_values=MAX_REPLY_VALUES)


def fenced_blocks(text: str) -> Iterator[str]:
    """Yield the text of every block between lines of three backticks."""
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
    """Return the last object in prose, None without one; only the first ten braces are tried."""
    value, position = None, 0
    for _ in range(MAX_STARTS):
        position = text.find("{", position)
        if position < 0:
            break
        try:
            value, position = json_decoder(_decimal).raw_decode(text, position)
        except RefusedJsonError:
            raise
        except (ValueError, RecursionError):
            position += 1
    return value


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise ValueError(f"{text[:MAX_SHOWN_LENGTH]} is too large a number") from error


def _plain(value: Any) -> Any:
    is_float = isinstance(value, Decimal) and isfinite(float(value))
    return float(value) if is_float else str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_plain)


MAX_PROBLEMS = 10
MAX_PROBLEM_LENGTH = 300
REFERENCES = ("$ref", "$dynamicRef")
# The deadline of the check in this context, on the monotonic clock.
_DEADLINE: ContextVar[float] = ContextVar("_DEADLINE")


class UnresolvableReferenceError(Exception):
    """The schema refers to a missing part of itself."""


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return why a schema cannot be used, or ""."""
    plain = dict(schema)
    for key, value in _keywords(plain):
        if key in REFERENCES and not str(value).startswith("#"):
            return f"json_schema: {key} {value!r} points outside the schema, and nothing is fetched"
        if key == "patternProperties":
            return "json_schema: patternProperties is not supported; use propertyNames with pattern"
        if key == "pattern" and isinstance(value, str):
            try:
                compile_pattern(value)
            except ValueError as error:
                return f"json_schema: {error}"
    try:
        Draft202012Validator.check_schema(plain)
    except SchemaError as error:
        return f"json_schema is not a JSON schema: {error.json_path}: {error.message[:MAX_PROBLEM_LENGTH]}"
    return ""


def schema_violations(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return where and why a JSON value does not satisfy a schema, at most ten times.

    Raises SlowPatternError past the time limit, and UnresolvableReferenceError for a missing or endless $ref.
    """
    text = json.dumps(schema, sort_keys=True)
    compiled = _validator if len(text) <= MAX_REMEMBERED_LENGTH else _validator.__wrapped__
    validator = compiled(text)
    _DEADLINE.set(time.monotonic() + LIMIT_S)
    violations: list[str] = []
    try:
        for error in validator.iter_errors(value):
            place = shorten_text(error.json_path)
            violations.append(f"{place}: {error.message[:MAX_PROBLEM_LENGTH]}")
            if len(violations) == MAX_PROBLEMS:
                break
    except Unresolvable as error:
        raise UnresolvableReferenceError(f"the JSON schema has no part {error.ref!r}") from error
    except RecursionError as error:
        reason = "the JSON schema refers to itself endlessly, or the answer is nested too deeply"
        raise UnresolvableReferenceError(reason) from error
    return violations


def _keywords(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield str(key), part
            yield from _keywords(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _keywords(part)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    try:
        match = compile_pattern(pattern).search(instance, timeout=LIMIT_S, concurrent=True)
    except TimeoutError as error:
        raise SlowPatternError(
            f"the pattern {pattern!r} of the JSON schema took longer than {LIMIT_S:g} s"
        ) from error
    if match is None:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Compare items as text: the library compares each with each, in quadratic time."""
    if wanted is True and isinstance(instance, list):
        texts = {json.dumps(_with_plain_numbers(item), sort_keys=True) for item in instance}
        if len(texts) < len(instance):
            yield ValidationError("has items that are not unique")


def _with_plain_numbers(value: Any) -> Any:
    """Return a JSON value in which equal numbers are written alike."""
    if isinstance(value, dict):
        return {name: _with_plain_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_plain_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _timed(rule: Any) -> Any:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if time.monotonic() > _DEADLINE.get():
            raise SlowPatternError(f"the JSON schema took longer than {LIMIT_S:g} s")
        yield from rule(validator, value, instance, schema) or ()

    return check


_RULES = {**Draft202012Validator.VALIDATORS, "pattern": _pattern, "uniqueItems": _unique}
_Validator: Any = extend(  # type: ignore[no-untyped-call]  # its types leave it out
    Draft202012Validator, {name: _timed(rule) for name, rule in _RULES.items()}
)


# Cases may have schemas of megabytes, which the cache would keep for good.
MAX_REMEMBERED_LENGTH = 100_000


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    return _Validator(json.loads(schema), registry=Registry())
