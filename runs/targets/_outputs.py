"""Outputs as plain JSON: the form of a recorded line and of the stored output of a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from evaluators.kinds._base import Output, Step
from evaluators.scoring.types import Usage
from runs.targets._conversations import read_conversation
from runs.targets._files import files_from_json

STEP_FIELDS = tuple(field.name for field in fields(Step))
STEP_FIGURES = ("started_ms", "duration_ms", "input_tokens", "output_tokens")
LARGEST_COUNT = 2**31 - 1
# What a run can add up thousands of without leaving its column.
LARGEST_USD = 100_000


def output_from_json(
    stored: Mapping[str, Any], *, beside: Mapping[str, bytes] | None = None
) -> Output:
    """Return the output a recorded line holds: output, messages, trace, files, usage, latency, cost.

    `output` may be a conversation itself. Its last answer is the text where none is given, and the
    tools called in it are the trace where none is given. `beside` are the files of the suite that
    `files` may name. Raises ValueError or TypeError, naming the field, for another form.
    """
    text, turns = stored.get("output"), stored.get("messages")
    if isinstance(text, list):
        text, turns = None, turns or text
    if text is not None and not isinstance(text, str):
        raise TypeError(f"output is {type(text).__name__}, not text")
    spoken = read_conversation(turns or ())
    trace = stored.get("trace")
    return Output(
        text=spoken.answer if text is None else text,
        messages=spoken.messages,
        trace=spoken.steps if trace is None else tuple(_step(step) for step in _listed(trace)),
        files=files_from_json(stored.get("files"), beside),
        usage=_usage(stored),
    )


def _listed(trace: Any) -> list[Any]:
    if not isinstance(trace, list):
        raise TypeError(f"trace is {type(trace).__name__}, not a list of steps")
    return trace


def _step(step: Any) -> Step:
    if not isinstance(step, Mapping):
        raise ValueError(f"trace holds {step!r}, not a step with type and name")
    known = {name: step[name] for name in STEP_FIELDS if name in step}
    if not (isinstance(known.get("type"), str) and isinstance(known.get("name"), str)):
        raise ValueError(f"trace holds {step!r}, not a step with type and name")
    for name in STEP_FIGURES:
        value = known.get(name)
        is_figure = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if value is not None and not is_figure:
            said = f"{name} is {value!r}, not a number of 0 or more"
            raise ValueError(f"trace holds a step whose {said}")
    return Step(**known)


def _usage(stored: Mapping[str, Any]) -> Usage:
    usage = stored.get("usage") or {}
    if not isinstance(usage, Mapping):
        raise TypeError(f"usage is {type(usage).__name__}, not input_tokens and output_tokens")
    cost = stored.get("cost_usd")
    return Usage(
        input_tokens=_count(usage, "input_tokens"),
        output_tokens=_count(usage, "output_tokens"),
        cost_usd=_money(cost),
        latency_ms=_count(stored, "latency_ms"),
    )


def _count(holder: Mapping[str, Any], name: str) -> int | None:
    value = holder.get(name)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LARGEST_COUNT
    ):
        raise ValueError(f"{name} is {value!r}, not a number of 0 or more")
    return int(value)


def _money(value: Any) -> Decimal | None:
    if value is None:
        return None
    try:
        usd = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"cost_usd is {value!r}, not an amount of dollars") from error
    if not usd.is_finite() or not 0 <= usd <= LARGEST_USD:
        raise ValueError(f"cost_usd is {value!r}, not an amount of 0 to {LARGEST_USD} dollars")
    return usd


def messages_as_json(output: Output) -> list[dict[str, str]]:
    """Return the turns of the conversation."""
    return [{"role": turn.role, "content": turn.content} for turn in output.messages]


def trace_as_json(output: Output) -> list[dict[str, Any]] | None:
    """Return the steps without the fields that say nothing; None when none are reported."""
    if output.trace is None:
        return None
    return [
        {
            name: value
            for name in STEP_FIELDS
            if (value := getattr(step, name)) not in (None, "") or name in ("type", "name")
        }
        for step in output.trace
    ]


def usage_as_json(usage: Usage) -> dict[str, Any]:
    """Return the figures that were reported; money as text."""
    figures = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "latency_ms": usage.latency_ms,
        "cost_usd": None if usage.cost_usd is None else str(usage.cost_usd),
    }
    return {name: value for name, value in figures.items() if value is not None}


def output_from_columns(
    text: str,
    messages: list[Any],
    trace: list[Any] | None,
    usage: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
) -> Output:
    """Return the output that a result keeps, from the columns the functions above filled."""
    output = output_from_json(
        {
            "output": text,
            "messages": messages,
            "trace": trace,
            "usage": usage,
            "latency_ms": usage.get("latency_ms"),
            "cost_usd": usage.get("cost_usd"),
        }
    )
    return replace(output, files=dict(files or {}))
