"""The variables of prompts: what of a case and its output a judge is shown.

What the agent, its tools or a customer wrote never enters the instructions: it is quoted, and the
instructions speak of it by its label. What the suite's author wrote (criteria, expected
outcomes) stands in the instructions as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.kinds._base import Context, Message, Step

PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
METADATA = re.compile(r"metadata(?:\.[\w-]+)*\Z")
NOTHING = "(none given)"
NO_TRACE = "(the agent reports no tool calls)"
NO_CALLS = "(no tool was called)"

ANSWER, QUESTION, CONVERSATION = "candidate_answer", "question", "input"
REFERENCE, TOOLS = "reference_answer", "tool_calls"
SAME = {
    **{"output": ANSWER, "answer": ANSWER, "expected_output": REFERENCE},
    **{"expected_messages": REFERENCE, "input_messages": CONVERSATION},
    **{"output_messages": "messages", "expected_outcome": "criteria", "outcome": "criteria"},
    **{"note": "metadata.note", "metadata_json": "metadata"},
}
SHOWS_OUTPUT = {ANSWER, "output", "answer", TOOLS}


@dataclass(frozen=True, slots=True)
class Written:
    """A prompt with its variables filled in: the instructions, and the quoted texts they speak of."""

    instructions: str
    quoted: tuple[tuple[str, str], ...]


def known_variables() -> tuple[str, ...]:
    """Return the names a prompt may use."""
    return (*sorted({*_QUOTED, *_TRUSTED, *SAME}), "metadata", "metadata.<key>")


def variables_in(prompt: str) -> tuple[str, ...]:
    """Return the names between double braces, as written, in order."""
    return tuple(match.strip() for match in PLACEHOLDER.findall(prompt))


def unknown_variables(prompt: str) -> tuple[str, ...]:
    """Return the names in a prompt that mean nothing."""
    return tuple(dict.fromkeys(name for name in variables_in(prompt) if not _is_known(name)))


def fill(prompt: str, context: Context, *, always: tuple[str, ...] = ()) -> Written:
    """Return the prompt with each variable replaced; those in `always` are quoted even if not named.

    Nothing a value holds is read as a variable.
    """
    quoted: dict[str, str] = {}

    def put(name: str) -> str:
        name = SAME.get(name, name)
        if name in _TRUSTED:
            return _TRUSTED[name](context) or NOTHING
        text = _untrusted(name, context)
        if not text:
            return NOTHING
        quoted[name] = text
        return f"[quoted text: {name}]"

    instructions = PLACEHOLDER.sub(lambda match: put(match.group(1).strip()), prompt)
    for name in always:
        put(name)
    return Written(instructions, tuple(quoted.items()))


def _is_known(name: str) -> bool:
    return name in _QUOTED or name in _TRUSTED or name in SAME or bool(METADATA.match(name))


def _untrusted(name: str, context: Context) -> str:
    if name in _QUOTED:
        return _QUOTED[name](context)
    value: Any = context.case.metadata
    for key in name.split(".")[1:]:
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else _json(value)


def question_of(context: Context) -> str:
    """Return what the target was asked last, the whole conversation where no user speaks in it."""
    asked = [turn.content for turn in context.case.input if turn.role == "user"]
    return asked[-1] if asked else _conversation(context)


def _conversation(context: Context) -> str:
    return _turns(context.case.input)


def _turns(turns: tuple[Message, ...]) -> str:
    if len(turns) == 1 and turns[0].role == "user":
        return turns[0].content
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)


def _tool_calls(context: Context) -> str:
    if context.output.trace is None:
        return NO_TRACE
    calls = [step for step in context.output.trace if step.type == "tool"]
    return "\n".join(f"{n}. {_call(step)}" for n, step in enumerate(calls, 1)) or NO_CALLS


def _call(step: Step) -> str:
    facts = {"tool": step.name, "input": step.input, "output": step.output, "error": step.error}
    return _json({name: value for name, value in facts.items() if value not in (None, "")})


def _listed(texts: tuple[str, ...]) -> str:
    return "\n".join(f"{n}. {text}" for n, text in enumerate(texts, 1))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


_QUOTED: Mapping[str, Callable[[Context], str]] = {
    QUESTION: question_of,
    CONVERSATION: _conversation,
    ANSWER: lambda context: context.output.text or "(the answer is empty)",
    REFERENCE: lambda context: context.case.expected_output,
    TOOLS: _tool_calls,
    "messages": lambda context: _turns(context.output.messages),
}
_TRUSTED: Mapping[str, Callable[[Context], str]] = {
    "criteria": lambda context: context.case.criteria,
    "expected_outcomes": lambda context: _listed(context.case.expected_outcomes),
}
