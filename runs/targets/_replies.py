"""What an agent sends, read without trusting its form: texts, turns, steps, files and figures."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from evaluators.kinds._base import Step
from runs.targets._conversations import Conversation, arguments_of, read_conversation
from runs.targets._files import kept_files
from runs.targets._outputs import LARGEST_COUNT, LARGEST_USD
from runs.targets._paths import describe

MOST_STEPS = 5000
NANO_USD = Decimal("0.000000001")
NAME_KEYS = ("name", "tool", "tool_name", "toolName")
INPUT_KEYS = ("input", "args", "arguments", "parameters")
OUTPUT_KEYS = ("output", "result", "response", "content")
FIGURES = ("started_ms", "duration_ms", "input_tokens", "output_tokens")
FILE_NAMES = ("path", "name", "filename")
FILE_TEXTS = ("content", "text")
FILE_BYTES = ("base64", "content_base64", "data")


class UnreadableReplyError(ValueError):
    """A part of the reply has a form that cannot be read; says what stood there."""


def read_text(value: Any) -> str:
    """Return a text, the texts of content blocks joined, or any other value as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        raise UnreadableReplyError("there is null")
    if isinstance(value, list) and value and all(_is_block(part) for part in value):
        return "".join(str(part.get("text") or "") for part in value)
    return json.dumps(value, ensure_ascii=False)


def _is_block(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def read_turns(value: Any) -> Conversation:
    """Return the turns of a conversation with the tools that were called in them."""
    try:
        return read_conversation(_list(value))
    except ValueError as error:
        raise UnreadableReplyError(str(error)) from None


def read_steps(value: Any) -> tuple[Step, ...]:
    """Return the steps the agent took: Evalsite's own form, or tool calls as model servers spell them."""
    steps = _list(value)
    if len(steps) > MOST_STEPS:
        raise UnreadableReplyError(f"there are {len(steps)} steps; {MOST_STEPS} are the most")
    return tuple(_step(number, step) for number, step in enumerate(_flat(steps)))


def _flat(steps: Iterable[Any]) -> Iterable[Any]:
    """Yield the steps of lists in the list too: that is what `[*].tool_calls` gives."""
    for step in steps:
        if isinstance(step, list):
            yield from step
        elif step is not None:
            yield step


def _step(number: int, step: Any) -> Step:
    if isinstance(step, str) and step:
        return Step(type="tool", name=step)
    facts = step if isinstance(step, dict) else {}
    # {"type": "function", "function": {"name": …, "arguments": "{…}"}}
    inner = facts.get("function")
    merged = {**facts, **inner} if isinstance(inner, dict) else facts
    name = _first(merged, NAME_KEYS)
    if not isinstance(name, str) or not name:
        raise UnreadableReplyError(f"step {number} is {describe(step)}, without a name")
    error = merged.get("error")
    return Step(
        type="model" if merged.get("type") == "model" else "tool",
        name=name[:200],
        input=arguments_of(_first(merged, INPUT_KEYS)),
        output=_first(merged, OUTPUT_KEYS),
        error="" if error in (None, "", False) else str(error),
        **{figure: _figure(merged.get(figure)) for figure in FIGURES},
    )


def _figure(value: Any) -> int | None:
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_figure and 0 <= value <= LARGEST_COUNT else None


def read_files(value: Any) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the files by path, and why others are left out.

    They are told as {path: text}, or as a list of {path, content or base64}.
    """
    named = value.items() if isinstance(value, dict) else map(_named, enumerate(_list(value)))
    try:
        return kept_files(((str(path), file) for path, file in named), _content)
    except ValueError as error:
        raise UnreadableReplyError(str(error)) from None


def _named(numbered: tuple[int, Any]) -> tuple[str, Any]:
    number, file = numbered
    path = _first(file, FILE_NAMES) if isinstance(file, dict) else None
    if not isinstance(path, str):
        raise UnreadableReplyError(f"file {number} is {describe(file)}, without a path")
    return path, file


def _content(path: str, file: Any) -> bytes:
    if isinstance(file, str):
        return file.encode()
    facts = file if isinstance(file, dict) else {}
    encoded = _first(facts, FILE_BYTES)
    text = _first(facts, FILE_TEXTS)
    if facts.get("encoding") == "base64" and encoded is None:
        encoded = text
    if isinstance(encoded, str):
        try:
            return base64.b64decode("".join(encoded.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise UnreadableReplyError(f"file {path!r} is not base64: {error}") from None
    if not isinstance(text, str):
        raise UnreadableReplyError(f"file {path!r} is {describe(file)}, without content or base64")
    return text.encode()


def read_count(value: Any) -> int:
    """Return a number of tokens."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= LARGEST_COUNT:
        raise UnreadableReplyError(f"there is {describe(value)}, not a number of 0 or more")
    return int(value)


def read_usd(value: Any) -> Decimal:
    """Return an amount of dollars, to a billionth."""
    try:
        usd = Decimal(str(value))
    except InvalidOperation:
        usd = Decimal(-1)
    if isinstance(value, bool) or not usd.is_finite() or not 0 <= usd <= LARGEST_USD:
        said = f"not an amount of 0 to {LARGEST_USD} dollars"
        raise UnreadableReplyError(f"there is {describe(value)}, {said}")
    return usd.quantize(NANO_USD)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnreadableReplyError(f"there is {describe(value)}, not a list")
    return value


def _first(facts: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((facts[name] for name in names if facts.get(name) is not None), None)
