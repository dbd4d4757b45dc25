"""Strict reading of a judge's reply: the whole text is one JSON object of the schema, or nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator

from evaluators.judging.answers import storable
from evaluators.judging.requests import canonical_json

FENCE = re.compile(r"\A```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL)
MOST_PROBLEMS = 3
MOST_LENGTH = 1_000_000
MOST_READY = 256

Compiled = tuple[dict[str, Any], Draft202012Validator]
_READY: dict[int, tuple[Mapping[str, Any], Compiled]] = {}


class UnreadableReplyError(ValueError):
    """The reply is not one JSON object of the schema; the message says what it is instead."""


def read_reply(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object that the whole reply is.

    A fence around the whole is allowed. Prose before or after, a second object, duplicate keys,
    NaN and infinities, and keys the schema does not know are not: what cannot be read in one way only
    is not read at all. What no database keeps, such as an escaped NUL, is replaced.

    Raises:
        UnreadableReplyError: with what is wrong, in words the model can mend it by.

    """
    reply = _load(_unfenced(text.strip()))
    if not isinstance(reply, dict):
        raise UnreadableReplyError("the reply is not a JSON object")
    _, validator = _compiled_of(schema)
    errors = sorted(validator.iter_errors(reply), key=lambda error: error.json_path)
    if errors:
        said = "; ".join(_words(error.json_path, error.message) for error in errors[:MOST_PROBLEMS])
        raise UnreadableReplyError(f"the reply does not satisfy the schema: {said}")
    try:
        kept: dict[str, Any] = storable(reply)
    except RecursionError as error:
        raise UnreadableReplyError("the reply nests too deeply") from error
    return kept


def closed_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with every object in it closed against keys it does not name; not to be changed."""
    return _compiled_of(schema)[0]


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(part) for part in value]
    if not isinstance(value, dict):
        return value
    found = {name: _closed(part) for name, part in value.items()}
    if isinstance(found.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    return found


def _unfenced(text: str) -> str:
    match = FENCE.match(text)
    return match.group(1).strip() if match else text


def _load(text: str) -> Any:
    if not text:
        raise UnreadableReplyError("the reply is empty")
    if len(text) > MOST_LENGTH:
        raise UnreadableReplyError(f"the reply is longer than {MOST_LENGTH} characters")
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except UnreadableReplyError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "more text after the JSON value" if "Extra data" in str(error) else str(error)
        raise UnreadableReplyError(f"the reply is not one JSON object alone: {reason}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UnreadableReplyError(f"the key {name!r} stands twice in one object")
        found[name] = value
    return found


def _refuse_constant(name: str) -> Any:
    raise UnreadableReplyError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise UnreadableReplyError(f"{text} is not a finite number")
    return number


def _words(path: str, message: str) -> str:
    return f"{path.removeprefix('$.') if path != '$' else 'object'}: {message[:200]}"


def _compiled_of(schema: Mapping[str, Any]) -> Compiled:
    """Return a schema made ready; one that was seen before is known by being the same object."""
    known = _READY.get(id(schema))
    if known is None or known[0] is not schema:
        if len(_READY) >= MOST_READY:
            _READY.clear()
        # The entry holds on to the schema, so that no other can get its id.
        known = _READY[id(schema)] = (schema, _compiled(canonical_json(schema)))
    return known[1]


@lru_cache(maxsize=MOST_READY)
def _compiled(schema: str) -> Compiled:
    closed: dict[str, Any] = _closed(json.loads(schema))
    return closed, Draft202012Validator(closed)
