"""Read what an agent sends, without trusting its form: the paths into a reply, and readers for its parts."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from pydantic import Field, field_validator, model_validator
from pydantic.config import JsonDict

from evaluators.kinds._base import CaseFacts, Message, Output, Step
from evaluators.kinds._json_paths import PathError, describe, follow, is_missing, parse_path
from evaluators.scoring.types import Usage
from runs.target_kinds._base import AgentReading, AgentReply, TargetConfig
from runs.target_kinds._outputs import (
    MAX_COUNT,
    MAX_USD,
    STEP_FIGURES,
    STEP_IDS,
    STEP_TYPES,
    Arguments,
    Conversation,
    check_steps,
    read_conversation,
    select_files,
)

NANO_USD = Decimal("0.000000001")
NAME_KEYS = ("name", "tool", "tool_name", "toolName")
INPUT_KEYS = ("input", "args", "arguments", "parameters")
OUTPUT_KEYS = ("output", "result", "response", "content")
FILE_NAMES = ("path", "name", "filename")
FILE_TEXTS = ("content", "text")
FILE_BYTES = ("base64", "content_base64", "data")


class UnreadablePartError(ValueError):
    """A part of the reply cannot be read; the message shows it."""


def read_text(value: Any) -> str:
    """Return a text, the texts of content blocks joined, or any other value as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        raise UnreadablePartError("there is null")
    if isinstance(value, list) and value and all(_is_block(part) for part in value):
        return "".join(str(part.get("text") or "") for part in value)
    return json.dumps(value, ensure_ascii=False)


def _is_block(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def read_turns(value: Any) -> Conversation:
    """Return the turns of a conversation and its tool calls."""
    try:
        return read_conversation(_list(value))
    except ValueError as error:
        raise UnreadablePartError(str(error)) from None


def read_steps(value: Any) -> tuple[Step, ...]:
    """Return the steps of the agent, from Evalsite's form or from tool calls in the form of model servers."""
    steps = list(_flat(_list(value)))
    arguments = Arguments()
    try:
        check_steps(len(steps))
        return tuple(_step(number, step, arguments) for number, step in enumerate(steps))
    except UnreadablePartError:
        raise
    except ValueError as error:
        raise UnreadablePartError(str(error)) from None


def _flat(steps: Iterable[Any]) -> Iterable[Any]:
    """Yield the steps, also those of lists in the list, which `[*].tool_calls` gives."""
    for step in steps:
        if isinstance(step, list):
            yield from step
        elif step is not None:
            yield step


def _step(number: int, step: Any, arguments: Arguments) -> Step:
    if isinstance(step, str) and step:
        return Step(type="tool", name=step)
    facts = step if isinstance(step, dict) else {}
    # {"type": "function", "function": {"name": …, "arguments": "{…}"}}
    inner = facts.get("function")
    merged = {**facts, **inner} if isinstance(inner, dict) else facts
    name = _first(merged, NAME_KEYS)
    if not isinstance(name, str) or not name:
        raise UnreadablePartError(f"step {number} is {describe(step)}, without a name")
    error, kind = merged.get("error"), merged.get("type")
    # Steps may be numbered from 0.
    step_id, parent_id = (
        "" if merged.get(name) is None else str(merged[name]) for name in STEP_IDS
    )
    return Step(
        type=str(kind) if kind in STEP_TYPES else "tool",
        name=name[:200],
        input=arguments.read(_first(merged, INPUT_KEYS)),
        output=_first(merged, OUTPUT_KEYS),
        error="" if error in (None, "", False) else str(error),
        cost_usd=_usd(merged.get("cost_usd")),
        id=step_id,
        parent_id=parent_id,
        **{figure: _figure(merged.get(figure)) for figure in STEP_FIGURES},
    )


def _figure(value: Any) -> int | None:
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_figure and 0 <= value <= MAX_COUNT else None


def _usd(value: Any) -> Decimal | None:
    try:
        return read_usd(value)
    except UnreadablePartError:
        return None


def read_files(value: Any) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the files by path, and why others are left out.

    The value is {path: text}, or a list of {path, content or base64}.
    """
    named = value.items() if isinstance(value, dict) else map(_named, enumerate(_list(value)))
    try:
        return select_files(((str(path), file) for path, file in named), _content)
    except ValueError as error:
        raise UnreadablePartError(str(error)) from None


def _named(numbered: tuple[int, Any]) -> tuple[str, Any]:
    number, file = numbered
    path = _first(file, FILE_NAMES) if isinstance(file, dict) else None
    if not isinstance(path, str):
        raise UnreadablePartError(f"file {number} is {describe(file)}, without a path")
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
            raise UnreadablePartError(f"file {path!r} is not base64: {error}") from None
    if not isinstance(text, str):
        raise UnreadablePartError(f"file {path!r} is {describe(file)}, without content or base64")
    return text.encode()


def read_count(value: Any) -> int:
    """Return a number of tokens."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_COUNT:
        raise UnreadablePartError(f"there is {describe(value)}, not a number of 0 or more")
    return int(value)


def read_usd(value: Any) -> Decimal:
    """Return an amount of dollars, rounded to a billionth."""
    try:
        usd = Decimal(str(value))
    except InvalidOperation:
        usd = Decimal(-1)
    if isinstance(value, bool) or not usd.is_finite() or not 0 <= usd <= MAX_USD:
        message = f"not an amount of 0 to {MAX_USD} dollars"
        raise UnreadablePartError(f"there is {describe(value)}, {message}")
    return usd.quantize(NANO_USD)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnreadablePartError(f"there is {describe(value)}, not a list")
    return value


def _first(facts: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((facts[name] for name in names if facts.get(name) is not None), None)


REPLY = "Content of the reply"
OUTPUT = "output_path"
PATHS = (
    *(OUTPUT, "messages_path", "tool_calls_path", "files_path"),
    *("input_tokens_path", "output_tokens_path", "cost_path"),
)
SHOWN: JsonDict = {"section": REPLY, "widget": "code"}

Value = TypeVar("Value")


class ReplyPaths(TargetConfig):
    """The paths to the parts of a reply; "" for a part that the agent does not report."""

    output_path: str = Field(
        "",
        title="Output",
        description="Such as output or choices.0.message.content. Empty: the whole reply, as text.",
        json_schema_extra=SHOWN,
    )
    messages_path: str = Field(
        "",
        title="Conversation",
        description="Turns with role and content, such as messages.",
        json_schema_extra=SHOWN,
    )
    tool_calls_path: str = Field(
        "",
        title="Tool calls or steps",
        description="Such as steps or choices.0.message.tool_calls.",
        json_schema_extra=SHOWN,
    )
    files_path: str = Field(
        "",
        title="Files",
        description="Such as artifacts. They are kept with the result.",
        json_schema_extra=SHOWN,
    )
    input_tokens_path: str = Field(
        "",
        title="Input tokens",
        description="Such as usage.prompt_tokens.",
        json_schema_extra=SHOWN,
    )
    output_tokens_path: str = Field(
        "",
        title="Output tokens",
        description="Such as usage.completion_tokens.",
        json_schema_extra=SHOWN,
    )
    cost_path: str = Field(
        "",
        title="Cost in US dollars",
        description="Such as cost_usd. It counts towards the budget of a run.",
        json_schema_extra=SHOWN,
    )

    @field_validator(*PATHS)
    @classmethod
    def _is_path(cls, value: str) -> str:
        path = value.strip()
        if path:
            try:
                parse_path(path)
            except PathError as error:
                raise ValueError(f"“{path}” is not a path: {error}") from None
        return path

    @model_validator(mode="after")
    def _has_output_path(self) -> ReplyPaths:
        if not self.output_path and any(getattr(self, name) for name in PATHS):
            raise ValueError(
                "Give the path of the output too: other parts of the reply have a path."
            )
        return self


def read(paths: ReplyPaths, case: CaseFacts, reply: AgentReply) -> AgentReading:
    """Return the output of a reply, or the path that cannot be read and what stands there."""
    if not paths.output_path:
        return _read_plain(case, reply)
    # A reply from the ledger has its JSON alone, without the text.
    if not reply.is_json:
        if not reply.text.strip():
            return AgentReading(problem="the agent sent an empty body, not JSON")
        kind = reply.content_type or "no content type"
        return AgentReading(problem=f"the agent sent {kind}, not JSON: {describe(reply.text)}")
    usage = Usage()
    try:
        usage = _usage(paths, reply.json)
        return AgentReading(_output(paths, case, reply.json, usage), usage=usage)
    except UnreadablePartError as error:
        return AgentReading(problem=str(error), usage=usage)


def _read_plain(case: CaseFacts, reply: AgentReply) -> AgentReading:
    if not reply.text.strip():
        return AgentReading(problem="the agent answered with no text")
    return AgentReading(Output(text=reply.text, messages=_turns(case, reply.text)))


def _output(paths: ReplyPaths, case: CaseFacts, json: Any, usage: Usage) -> Output:
    text = _at(paths, OUTPUT, json, read_text) or ""
    files, warnings = _at(paths, "files_path", json, read_files) or ({}, ())
    if not text.strip() and not files:
        raise UnreadablePartError(f"output, path {paths.output_path}: there is no text")
    conversation = _at(paths, "messages_path", json, read_turns)
    steps = _at(paths, "tool_calls_path", json, read_steps)
    if conversation is not None:
        steps = conversation.steps if steps is None else steps
        warnings = (*warnings, *conversation.warnings)
    return Output(
        text=text,
        messages=_turns(case, text) if conversation is None else conversation.messages,
        trace=steps,
        files=files,
        usage=usage,
        warnings=warnings,
    )


def _usage(paths: ReplyPaths, json: Any) -> Usage:
    return Usage(
        input_tokens=_at(paths, "input_tokens_path", json, read_count),
        output_tokens=_at(paths, "output_tokens_path", json, read_count),
        cost_usd=_at(paths, "cost_path", json, read_usd),
    )


def _at(paths: ReplyPaths, setting: str, json: Any, reader: Any) -> Any:
    """Return the value at the path of a setting; None if the agent does not report it."""
    path = getattr(paths, setting)
    is_output = setting == OUTPUT
    if not path or (not is_output and is_missing(path, json)):
        return None
    try:
        return reader(follow(path, json))
    except (PathError, UnreadablePartError) as error:
        label = str(ReplyPaths.model_fields[setting].title).lower()
        raise UnreadablePartError(f"{label}, path {path}: {error}") from None


def _turns(case: CaseFacts, text: str) -> tuple[Message, ...]:
    return (*case.input, Message("assistant", text))
