"""JSON in answers: find it, compare it, show it, and check it against a schema."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, NoReturn

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from evaluators.kinds._text import LIMIT_S, SlowPatternError, compile_pattern

FENCE = "```"
MAX_STARTS = 10
MAX_SHOWN_LENGTH = 200
ELLIPSIS = "…"
# Halves of surrogate pairs: JSON can spell them, no database keeps them.
HALVES = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"
DEEP = "nested too deeply to show"


class UnclearJsonError(ValueError):
    """An object of the JSON has a key twice, so that its readers would not agree on what it says."""


def read_json(text: str) -> Any:
    """Return the JSON value a text is, or that of its last fenced block, or of an object in its prose.

    Numbers with a point come as Decimal. Raises UnclearJsonError for a repeated key, and
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


def is_same(one: Any, other: Any) -> bool:
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


def exact_number(value: Any) -> Decimal | None:
    """Return a finite number exactly, None for anything else; true is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return number if number.is_finite() else None


def format_value(value: Any, longest: int = MAX_SHOWN_LENGTH) -> str:
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


def shorten_text(text: str, longest: int = MAX_SHOWN_LENGTH) -> str:
    """Return a text as it is, without what no database keeps, its end left out when it is long."""
    cut = HALVES.sub(REPLACEMENT, text[: longest + 1].replace("\0", REPLACEMENT))
    return cut if len(cut) <= longest else f"{cut[:longest]}{ELLIPSIS}"


def plain_value(value: Any) -> str:
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
    numbers = exact_number(one), exact_number(other)
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
    for _ in range(MAX_STARTS):
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
        raise UnclearJsonError(f"the key {format_value(twice)} is repeated")
    return found


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise ValueError(f"{text[:MAX_SHOWN_LENGTH]} is too large a number") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _plain(value: Any) -> Any:
    is_float = isinstance(value, Decimal) and isfinite(float(value))
    return float(value) if is_float else str(value)


_DECODER = json.JSONDecoder(
    parse_float=_decimal, parse_constant=_refuse_constant, object_pairs_hook=_object
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_plain)


MAX_PROBLEMS = 10
MAX_PROBLEM_LENGTH = 300
REFERENCES = ("$ref", "$dynamicRef")
# When the check in this context has taken too long, on the monotonic clock.
_END: ContextVar[float] = ContextVar("_END")


class UnresolvableReferenceError(Exception):
    """The schema points to a place it does not hold."""


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return what keeps a schema from being used, or ""."""
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
    """Return where and why a JSON value does not satisfy a schema, the first ten.

    Raises SlowPatternError past the time limit, and UnresolvableReferenceError for a $ref that
    leads nowhere or for ever to itself.
    """
    validator = _validator(json.dumps(schema, sort_keys=True))
    _END.set(time.monotonic() + LIMIT_S)
    found: list[str] = []
    try:
        for error in validator.iter_errors(value):
            found.append(f"{error.json_path}: {error.message[:MAX_PROBLEM_LENGTH]}")
            if len(found) == MAX_PROBLEMS:
                break
    except Unresolvable as error:
        raise UnresolvableReferenceError(f"the JSON schema has no place {error.ref!r}") from error
    except RecursionError as error:
        said = "the JSON schema leads for ever to itself, or the answer is nested too deeply"
        raise UnresolvableReferenceError(said) from error
    return found


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
    """Hold items against one another by their spelling: the library's way takes their square."""
    if wanted is True and isinstance(instance, list):
        spellings = {json.dumps(_with_plain_numbers(item), sort_keys=True) for item in instance}
        if len(spellings) < len(instance):
            yield ValidationError("has items that are not unique")


def _with_plain_numbers(value: Any) -> Any:
    """Return a JSON value in which equal numbers are spelt alike."""
    if isinstance(value, dict):
        return {name: _with_plain_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_plain_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _timed(rule: Any) -> Any:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if time.monotonic() > _END.get():
            raise SlowPatternError(f"the JSON schema took longer than {LIMIT_S:g} s")
        yield from rule(validator, value, instance, schema) or ()

    return check


_RULES = {**Draft202012Validator.VALIDATORS, "pattern": _pattern, "uniqueItems": _unique}
_Validator: Any = extend(  # type: ignore[no-untyped-call]  # its types leave it out
    Draft202012Validator, {name: _timed(rule) for name, rule in _RULES.items()}
)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    return _Validator(json.loads(schema), registry=Registry())
