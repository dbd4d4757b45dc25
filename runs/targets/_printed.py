"""What an agent's program prints: a plain text, or one JSON object with everything it reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from evaluators.judging.answers import storable
from evaluators.kinds._base import CaseFacts, Message, Output, Step
from evaluators.scoring.types import Usage
from runs.targets._paths import describe
from runs.targets._replies import (
    UnreadableReplyError,
    read_count,
    read_files,
    read_steps,
    read_text,
    read_turns,
    read_usd,
)

Reply = Literal["auto", "text", "json"]
STEPS = ("tool_calls", "trace", "steps")
ANSWERS = ("output", "messages", "error")
KNOWN = {*ANSWERS, *STEPS, "files", "usage", "cost_usd"}
INPUT_TOKENS = ("input_tokens", "prompt_tokens")
OUTPUT_TOKENS = ("output_tokens", "completion_tokens")

Value = TypeVar("Value")


class AgentError(Exception):
    """The agent says itself that it failed."""


def read_printed(printed: str, reply: Reply, case: CaseFacts) -> Output:
    """Return the output that was printed; latency and files left behind are the caller's to add.

    Raises UnreadableReplyError, naming the part that cannot be read, and AgentError.
    """
    told = None if reply == "text" else _object(printed)
    if reply == "json" and told is None:
        raise UnreadableReplyError(f"it printed {describe(printed)}, which is not one JSON object")
    if told is None or (reply == "auto" and not _is_meant(told)):
        return Output(text=printed, messages=_turns(case, printed))
    return _output(told, case)


def _object(printed: str) -> Mapping[str, Any] | None:
    if not printed.lstrip().startswith("{"):
        return None
    try:
        told = storable(json.loads(printed))
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _is_meant(told: Mapping[str, Any]) -> bool:
    """Tell a report from an answer that happens to be JSON: nothing in it but what reports hold."""
    return set(told) <= KNOWN and any(name in told for name in ANSWERS)


def _output(told: Mapping[str, Any], case: CaseFacts) -> Output:
    if told.get("error") and "output" not in told:
        raise AgentError(read_text(told["error"]))
    spoken = _part(told, "messages", read_turns)
    text = _part(told, "output", read_text)
    if text is None and spoken is None:
        raise UnreadableReplyError("it printed a JSON object with neither output nor messages")
    answer = text if text is not None else spoken.answer if spoken else ""
    steps: tuple[Step, ...] | None = next(
        (_part(told, name, read_steps) for name in STEPS if told.get(name) is not None), None
    )
    if steps is None and spoken is not None:
        steps = spoken.steps
    files, warnings = _part(told, "files", read_files) or ({}, ())
    return Output(
        text=answer,
        messages=spoken.messages if spoken else _turns(case, answer),
        trace=steps,
        files=files,
        usage=_usage(told),
        warnings=warnings,
    )


def _usage(told: Mapping[str, Any]) -> Usage:
    usage = told.get("usage") or {}
    if not isinstance(usage, dict):
        raise UnreadableReplyError(f"usage: there is {describe(usage)}, not an object")
    return Usage(
        input_tokens=_first(usage, INPUT_TOKENS),
        output_tokens=_first(usage, OUTPUT_TOKENS),
        cost_usd=_part(told, "cost_usd", read_usd),
    )


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    name = next((name for name in names if usage.get(name) is not None), "")
    return _part(usage, name, read_count) if name else None


def _part(told: Mapping[str, Any], name: str, reader: Callable[[Any], Value]) -> Value | None:
    """Return what the reader makes of a part; None where the agent does not report it."""
    if told.get(name) is None:
        return None
    try:
        return reader(told[name])
    except UnreadableReplyError as error:
        raise UnreadableReplyError(f"{name}: {error}") from None


def _turns(case: CaseFacts, text: str) -> tuple[Message, ...]:
    return (*case.input, Message("assistant", text))
