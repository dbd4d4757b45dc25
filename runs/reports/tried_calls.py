"""The calls of a try of an evaluator, and those that a dry run did not make, as they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runs.models import CallStatus
from runs.plan import OUTCOMES_PATH


@dataclass(frozen=True, slots=True)
class CallShown:
    """One call of a judge as it is read; `occasion` says which of several it was."""

    path: str
    occasion: str
    model: str
    status: str
    is_ok: bool
    http_status: int | None
    error: str
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    latency_ms: int | None
    request: str
    reply: str


@dataclass(frozen=True, slots=True)
class RequestShown:
    """One request that a dry run did not send: each message whole, and what goes beside them.

    It is asked so many `times`. `in_all` is how many calls its evaluator makes at most, where more follow
    that depend on the replies. One that `is_beside` the tree asks for the expected outcomes.
    """

    path: str
    model: str
    address: str
    messages: Sequence[Mapping[str, Any]]
    settings: str
    mode: str
    tokens: int
    cost_usd: Decimal | None
    times: int
    in_all: int | None
    is_beside: bool


def call_shown(call: Mapping[str, Any]) -> CallShown:
    """Return a call of a try."""
    cost = call["cost_usd"]
    return CallShown(
        path=call["path"],
        occasion=_occasion(call),
        model=call["model"],
        status=CallStatus(call["status"]).label,
        is_ok=call["status"] == CallStatus.OK,
        http_status=call["http_status"],
        error=call["error"],
        input_tokens=call["input_tokens"],
        output_tokens=call["output_tokens"],
        cost_usd=None if cost is None else Decimal(cost),
        latency_ms=call["latency_ms"],
        request=call["request"],
        reply=call["reply"],
    )


def _occasion(call: Mapping[str, Any]) -> str:
    """Say which of several calls of one evaluator it was."""
    parts = (
        (f"sample {call['sample'] + 1}", call["sample"]),
        (f"round {call['round'] + 1}", call["round"]),
        (f"repair {call['repair']}", call["repair"]),
    )
    return ", ".join(words for words, number in parts if number)


def request_shown(request: Mapping[str, Any]) -> RequestShown:
    """Return a request of a dry run, its body as it would travel."""
    body = json.loads(request["body"])
    messages = body.pop("messages", ()) if request["is_chat"] else ()
    asked = body.get("response_format") or {}
    cost = request["cost_usd"]
    return RequestShown(
        path=request["path"],
        model=request["model"],
        address=request["address"],
        messages=messages,
        settings=_spelled(body),
        mode=str(asked.get("type", "text")) if request["is_chat"] else "",
        tokens=request["tokens"],
        cost_usd=None if cost is None else Decimal(cost),
        times=request["times"],
        in_all=request["in_all"],
        is_beside=request["path"] == OUTCOMES_PATH,
    )


def script_shown(script: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a program of a dry run with its command spelled out."""
    return {**script, "command": _spelled(script["command"])}


def _spelled(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
