"""Where an agent's reply holds what, by paths, and what is read there."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import Field, field_validator, model_validator
from pydantic.config import JsonDict

from evaluators.kinds._base import CaseFacts, Message, Output
from evaluators.scoring.types import Usage
from runs.targets._base import AgentReading, AgentReply, TargetConfig
from runs.targets._paths import PathError, describe, follow, leads_nowhere, parse_path
from runs.targets._replies import (
    UnreadableReplyError,
    read_count,
    read_files,
    read_steps,
    read_text,
    read_turns,
    read_usd,
)

REPLY = "What the reply holds"
OUTPUT = "output_path"
PATHS = (
    *(OUTPUT, "messages_path", "tool_calls_path", "files_path"),
    *("input_tokens_path", "output_tokens_path", "cost_path"),
)
SHOWN: JsonDict = {"section": REPLY, "widget": "code"}

Value = TypeVar("Value")


class ReplyPaths(TargetConfig):
    """The paths to the parts of a reply; "" for what the agent does not report."""

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
        path = value.strip().removeprefix("$.").strip()
        if path:
            try:
                parse_path(path)
            except PathError as error:
                raise ValueError(f"“{path}” is no path: {error}") from None
        return path

    @model_validator(mode="after")
    def _says_where_the_output_is(self) -> ReplyPaths:
        if not self.output_path and any(getattr(self, name) for name in PATHS):
            raise ValueError("Say where the output is, too: other parts of the reply have a path.")
        return self


def read(paths: ReplyPaths, case: CaseFacts, reply: AgentReply) -> AgentReading:
    """Return the output a reply holds, or which path leads nowhere and what stood there instead."""
    if not paths.output_path:
        return _read_plain(case, reply)
    if not reply.is_json:
        kind = reply.content_type or "no content type"
        return AgentReading(problem=f"the agent sent {kind}, not JSON: {describe(reply.text)}")
    usage = Usage()
    try:
        usage = _usage(paths, reply.json)
        return AgentReading(_output(paths, case, reply.json, usage), usage=usage)
    except UnreadableReplyError as error:
        return AgentReading(problem=str(error), usage=usage)


def _read_plain(case: CaseFacts, reply: AgentReply) -> AgentReading:
    if not reply.text.strip():
        return AgentReading(problem="the agent answered with no text")
    return AgentReading(Output(text=reply.text, messages=_turns(case, reply.text)))


def _output(paths: ReplyPaths, case: CaseFacts, json: Any, usage: Usage) -> Output:
    text = _at(paths, OUTPUT, json, read_text) or ""
    files, warnings = _at(paths, "files_path", json, read_files) or ({}, ())
    if not text.strip() and not files:
        raise UnreadableReplyError(f"output, path {paths.output_path}: there is no text")
    spoken = _at(paths, "messages_path", json, read_turns)
    steps = _at(paths, "tool_calls_path", json, read_steps)
    if steps is None and spoken is not None:
        steps = spoken.steps
    return Output(
        text=text,
        messages=_turns(case, text) if spoken is None else spoken.messages,
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
    """Return what stands at the path of a setting; None where the agent does not report it."""
    path = getattr(paths, setting)
    is_output = setting == OUTPUT
    if not path or (not is_output and leads_nowhere(path, json)):
        return None
    try:
        return reader(follow(path, json))
    except (PathError, UnreadableReplyError) as error:
        label = str(ReplyPaths.model_fields[setting].title).lower()
        raise UnreadableReplyError(f"{label}, path {path}: {error}") from None


def _turns(case: CaseFacts, text: str) -> tuple[Message, ...]:
    return (*case.input, Message("assistant", text))
