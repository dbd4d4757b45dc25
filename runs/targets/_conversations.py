"""Conversations as agents and files write them: turns, the tools called in them, and the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evaluators.kinds import normal_spelling
from evaluators.kinds._base import Message, Step

LONGEST_SHOWN = 120
CALLS = "tool_calls"
CALL_NAMES = ("tool", "name", "tool_name")
CALL_INPUTS = ("input", "arguments", "args")
CALL_OUTPUTS = ("output", "result")


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said, the tools that were called (None when no turn tells), and the last answer."""

    messages: tuple[Message, ...] = ()
    steps: tuple[Step, ...] | None = None
    answer: str = ""


def read_conversation(turns: Any) -> Conversation:
    """Return the conversation a list of turns holds.

    A turn has a role and a content: a text, blocks of text, or JSON, which becomes text. Its
    `tool_calls` become steps, in the form {tool, input, output} or that of the OpenAI API, where a
    later turn of role tool brings the output. Raises ValueError, naming the turn.
    """
    if not isinstance(turns, list | tuple):
        raise ValueError(f"messages is {type(turns).__name__}, not a list of turns")
    reading = _Turns()
    for turn in turns:
        reading.read(turn)
    steps = tuple(reading.steps) if reading.tells_calls else None
    said = [turn.content for turn in reading.messages if turn.role == "assistant" and turn.content]
    return Conversation(tuple(reading.messages), steps, said[-1] if said else "")


class _Turns:
    """The turns of one conversation being read."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.steps: list[Step] = []
        self.tells_calls = False
        self.places: dict[str, int] = {}

    def read(self, turn: Any) -> None:
        """Add a turn and the calls in it."""
        if not isinstance(turn, Mapping) or not isinstance(turn.get("role"), str):
            raise ValueError(f"messages holds {_shown(turn)}, not a role with its content")
        fields = {normal_spelling(str(key)): value for key, value in turn.items()}
        content = _text(fields.get("content"))
        self.messages.append(Message(fields["role"], content))
        if fields.get(CALLS) is not None:
            self.tells_calls = True
            for call in _list(fields[CALLS]):
                self._add(call)
        place = self.places.get(str(fields.get("tool_call_id") or ""))
        if place is not None and self.steps[place].output is None:
            self.steps[place] = replace(self.steps[place], output=content)

    def _add(self, call: Any) -> None:
        if not isinstance(call, Mapping):
            raise ValueError(f"tool_calls holds {_shown(call)}, not a call with tool and input")
        fields = {normal_spelling(str(key)): value for key, value in call.items()}
        inner = fields.get("function")
        if isinstance(inner, Mapping):
            fields = {**fields, **inner}
        name = _first(fields, CALL_NAMES)
        if not isinstance(name, str) or not name:
            raise ValueError(f"tool_calls holds {_shown(call)}, which does not name its tool")
        if fields.get("id"):
            self.places[str(fields["id"])] = len(self.steps)
        self.steps.append(
            Step(
                type="tool",
                name=name,
                input=arguments_of(_first(fields, CALL_INPUTS)),
                output=_first(fields, CALL_OUTPUTS),
                duration_ms=_milliseconds(fields.get("duration_ms")),
                error=str(fields.get("error") or ""),
            )
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"tool_calls is {type(value).__name__}, not a list of calls")
    return value


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def arguments_of(value: Any) -> Any:
    """Return the arguments of a call: the JSON a text is, else the value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _milliseconds(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"tool_calls: duration_ms is {value!r}, not a number of 0 or more")
    return int(value)


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and any(_is_block(part) for part in content):
        return "\n".join(_blocks(content))
    return json.dumps(content, ensure_ascii=False)


def _is_block(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("type"), str)


def _blocks(content: list[Any]) -> Iterator[str]:
    for block in content:
        found = block if isinstance(block, Mapping) else {}
        text = _first(found, ("text", "value"))
        if "text" not in str(found.get("type")) or not isinstance(text, str):
            shown = f"a block of type {found['type']}" if found.get("type") else _shown(block)
            raise ValueError(f"messages holds {shown}, and only text can be judged")
        yield text
