"""JSON schemas for answers: checked when saved, and matched under a time limit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from evaluators.kinds._patterns import LIMIT_S, SlowPatternError, compiled

MOST_PROBLEMS = 10
LONGEST_PROBLEM = 300
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
                compiled(value)
            except ValueError as error:
                return f"json_schema: {error}"
    try:
        Draft202012Validator.check_schema(plain)
    except SchemaError as error:
        return f"json_schema is not a JSON schema: {error.json_path}: {error.message[:LONGEST_PROBLEM]}"
    return ""


def problems_of(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return where and why a JSON value does not satisfy a schema, the first ten.

    Raises SlowPatternError past the time limit, and UnresolvableReferenceError for a $ref that
    leads nowhere or for ever to itself.
    """
    validator = _validator(json.dumps(schema, sort_keys=True))
    _END.set(time.monotonic() + LIMIT_S)
    found: list[str] = []
    try:
        for error in validator.iter_errors(value):
            found.append(f"{error.json_path}: {error.message[:LONGEST_PROBLEM]}")
            if len(found) == MOST_PROBLEMS:
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
        match = compiled(pattern).search(instance, timeout=LIMIT_S, concurrent=True)
    except TimeoutError as error:
        raise SlowPatternError(
            f"the pattern {pattern!r} of the JSON schema took longer than {LIMIT_S:g} s"
        ) from error
    if match is None:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Hold items against one another by their spelling: the library's way takes their square."""
    if wanted is True and isinstance(instance, list):
        spellings = {json.dumps(_plain(item), sort_keys=True) for item in instance}
        if len(spellings) < len(instance):
            yield ValidationError("has items that are not unique")


def _plain(value: Any) -> Any:
    """Return a JSON value in which equal numbers are spelt alike."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
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
