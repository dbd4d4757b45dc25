"""What is sent: the body of a chat call, its reply modes and the hash it is known by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from evaluators.judging.answers import storable
from evaluators.judging.calls import ChatCall
from evaluators.judging.specs import REPLY_MODES, ModelSpec

# What a user may not set among a model's parameters, because the client sets or needs it itself.
RESERVED_PARAMETERS = (
    "model", "messages", "stream", "stream_options", "response_format", "n", "tools", "functions",
)  # fmt: skip
MODE_REFUSALS = (400, 422)
# These mostly mean something else, an unknown model say: they count when they name the parameter.
PARAMETER_REFUSALS = (404, 415, 501)
MODE_PARAMETER = "response_format"
MODE_WORDS = (MODE_PARAMETER, "json_schema", "json_object", "json mode", "structured", "schema")
SCHEMA_NAME = "reply"
CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def canonical_json(value: Any) -> str:
    """Return the one spelling of a JSON value that equal values share."""
    return CANONICAL.encode(value)


def sha256_of(value: Any) -> str:
    """Return the hash of a JSON value, the same for every spelling of it."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def request_hash(spec: ModelSpec, call: ChatCall) -> str:
    """Return what a call is recognised by: endpoint, model, parameters, messages and schema."""
    messages = call.request_hash or [dict(message) for message in call.messages]
    parts = [spec.base_url, spec.model_id, dict(spec.parameters), messages, call.schema]
    return sha256_of(parts)


def chat_body(spec: ModelSpec, call: ChatCall, mode: str) -> dict[str, Any]:
    """Return the body to send; parameters never override what the client sets."""
    own = {
        name: value for name, value in spec.parameters.items() if name not in RESERVED_PARAMETERS
    }
    body: dict[str, Any] = {"model": spec.model_id, "messages": storable(call.messages), **own}
    if call.schema is not None and mode != "text":
        body["response_format"] = response_format(call.schema, mode)
    return body


def response_format(schema: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the field that asks for a JSON object in this mode."""
    if mode == "json_object":
        return {"type": "json_object"}
    is_strict = set(schema.get("required", ())) == set(schema.get("properties", {}))
    named = {"name": SCHEMA_NAME, "schema": dict(schema), "strict": is_strict}
    return {"type": "json_schema", "json_schema": named}


def weaker_mode(mode: str) -> str | None:
    """Return the next mode to try, None after the last."""
    place = REPLY_MODES.index(mode)
    return REPLY_MODES[place + 1] if place + 1 < len(REPLY_MODES) else None


def refuses_mode(http_status: int | None, message: str) -> bool:
    """Return whether an answer refuses the reply mode.

    That is a 400 or 422 that speaks of it or of nothing at all, and a 404, 415 or 501 that names
    the parameter itself.
    """
    said = message.lower()
    if http_status in PARAMETER_REFUSALS:
        return MODE_PARAMETER in said
    if http_status not in MODE_REFUSALS:
        return False
    return not said.strip() or any(word in said for word in MODE_WORDS)
