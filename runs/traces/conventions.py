"""Read spans as steps of an agent, by the attributes of three conventions, and steps as question and answer.

These are OpenTelemetry's for generative AI (`gen_ai.…`), OpenInference's (`openinference.…`, `llm.…`,
`input.value`) and OpenLLMetry's (`traceloop.…`). Where a span has attributes of several, the first here counts;
but the input and the output of a step that calls neither a model nor a tool are first those of OpenInference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from evaluators.reading.json import read_json
from runs.target_kinds._outputs import MAX_COUNT, Arguments, read_arguments, read_money
from runs.traces.spans import MAX_NAME_LENGTH, Span

RUN, CASE, REPETITION, SUITE = (
    f"evalsite.{name}" for name in ("run", "case", "repetition", "suite")
)
# What a span says it is, and what the step becomes.
KINDS: Sequence[tuple[str, Mapping[str, str]]] = (
    (
        "gen_ai.operation.name",
        {
            **dict.fromkeys(("chat", "text_completion", "generate_content"), "model"),
            "execute_tool": "tool",
            **dict.fromkeys(("invoke_agent", "create_agent", "invoke_workflow"), "agent"),
            **{"embeddings": "embedding", "retrieval": "retrieval"},
        },
    ),
    (
        "openinference.span.kind",
        {
            **{"llm": "model", "tool": "tool", "agent": "agent", "embedding": "embedding"},
            **dict.fromkeys(("retriever", "reranker"), "retrieval"),
        },
    ),
    ("traceloop.span.kind", {"tool": "tool", **dict.fromkeys(("agent", "workflow"), "agent")}),
    (
        "llm.request.type",
        {**dict.fromkeys(("chat", "completion"), "model"), "embedding": "embedding"},
    ),
)
NAMES: Mapping[str, Sequence[str]] = {
    "tool": ("gen_ai.tool.name", "tool.name"),
    "model": (
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "embedding.model_name",
    ),
    "agent": ("gen_ai.agent.name", "agent.name"),
}
NAMES = {**NAMES, "embedding": NAMES["model"]}
INPUTS: Mapping[str, Sequence[str]] = {
    "tool": ("gen_ai.tool.call.arguments", "tool.parameters", "input.value"),
    "model": ("gen_ai.input.messages", "llm.input_messages", "gen_ai.prompt", "input.value"),
    "": ("input.value", "gen_ai.input.messages", "llm.input_messages", "gen_ai.prompt"),
}
OUTPUTS: Mapping[str, Sequence[str]] = {
    "tool": ("gen_ai.tool.call.result", "output.value"),
    "model": ("gen_ai.output.messages", "llm.output_messages", "gen_ai.completion", "output.value"),
    "": ("output.value", "gen_ai.output.messages", "llm.output_messages", "gen_ai.completion"),
}
ENTITY = "traceloop.entity"
INPUT_TOKENS = (
    *("gen_ai.usage.input_tokens", "llm.token_count.prompt"),
    *("gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
)
OUTPUT_TOKENS = (
    *("gen_ai.usage.output_tokens", "llm.token_count.completion"),
    *("gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
)
# One of the first row, or the sum of one of the pairs.
COSTS = ("gen_ai.usage.cost", "llm.cost.total")
COST_PARTS = (
    ("gen_ai.usage.input_cost", "gen_ai.usage.output_cost"),
    ("llm.cost.prompt", "llm.cost.completion"),
)
# llm.input_messages.0.message.content, gen_ai.prompt.0.content
FLAT_MESSAGE = re.compile(r"\A(\d{1,4})\.(?:message\.)?(.+)\Z")
FLAT_CALL = re.compile(
    r"\Atool_calls\.(\d{1,4})\.(?:tool_call\.(?:function\.)?)?(name|arguments)\Z"
)
FLAT_PART = re.compile(r"\Acontents\.\d{1,4}\.message_content\.text\Z")
TEXT_TYPES = ("text", "tool_call_response", "output_text", "input_text")
TEXT_KEYS = ("content", "text", "response", "result")
NS_PER_MS = 1_000_000
MAX_KEY_LENGTH = 200
# Reads what is a JSON text, and returns anything else as it is.
Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ExecutionName:
    """The execution that a span is the answer of."""

    run: str
    case: str
    repetition: int

    def as_json(self) -> list[Any]:
        """Return the mark as a database stores it."""
        return [self.run, self.case, self.repetition]


def read_execution(span: Span) -> ExecutionName | None:
    """Return the execution that a span names, itself or, for the first span of a trace, by its resource."""
    about = partial(_attribute, span, with_resource=not span.parent_id)
    run, case = (_text(about(name))[:MAX_KEY_LENGTH] for name in (RUN, CASE))
    if not run or not case:
        return None
    repetition = about(REPETITION, 1)
    is_number = isinstance(repetition, int | str) and str(repetition).isdecimal()
    return ExecutionName(
        run, case, min(int(repetition), MAX_COUNT) if is_number and len(str(repetition)) < 10 else 0
    )


def read_place(span: Span) -> tuple[str, str]:
    """Return the suite and the case that a span or its resource names, "" for none."""
    suite, case = (_text(_attribute(span, name))[:MAX_KEY_LENGTH] for name in (SUITE, CASE))
    return suite, case


def _attribute(span: Span, name: str, otherwise: Any = None, *, with_resource: bool = True) -> Any:
    """Return what a span says, else its resource, which a request has once for all its spans."""
    if name in span.attributes or not with_resource:
        return span.attributes.get(name, otherwise)
    return span.resource.get(name, otherwise)


def _text(value: Any) -> str:
    return str(value).strip() if isinstance(value, str | int) else ""


def read_step(span: Span) -> dict[str, Any]:
    """Return a span as a step of a trace, without its place in it; what it does not say is left out.

    Raises ValueError for too many values in its texts together.
    """
    about, read = span.attributes, Arguments().read
    kind = _kind(about)
    step = {
        "type": kind,
        "name": _name(span, kind),
        "input": _first_value(about, INPUTS.get(kind, INPUTS[""]), f"{ENTITY}.input", read),
        "output": _plain_output(
            _first_value(about, OUTPUTS.get(kind, OUTPUTS[""]), f"{ENTITY}.output", read)
        ),
        "duration_ms": _duration(span),
        "input_tokens": _count(about, INPUT_TOKENS),
        "output_tokens": _count(about, OUTPUT_TOKENS),
        "cost_usd": _cost(about),
        "error": span.error,
    }
    return {name: value for name, value in step.items() if value not in (None, "", [], {})}


def _kind(about: Mapping[str, Any]) -> str:
    for name, kinds in KINDS:
        if kind := kinds.get(str(about.get(name, "")).lower()):
            return kind
    if "gen_ai.tool.name" in about or "tool.name" in about:
        return "tool"
    return "step"


def _name(span: Span, kind: str) -> str:
    names = (*NAMES.get(kind, ()), f"{ENTITY}.name")
    found = next((text for name in names if (text := _text(span.attributes.get(name)))), "")
    return (found or span.name or kind)[:MAX_NAME_LENGTH]


def _first_value(about: Mapping[str, Any], names: Iterable[str], entity: str, read: Read) -> Any:
    for name in names:
        value = about.get(name)
        if value is None:
            value = _flat_messages(about, name, read)
        if value not in (None, "", []):
            return _read_value(value, read)
    return _entity(_read_value(about.get(entity), read))


def _read_value(written: Any, read: Read = read_arguments) -> Any:
    """Return a value as it was before it was written as an attribute: JSON is read, messages have one form."""
    value = read(written)
    if isinstance(value, str) and value.startswith('"') and value.endswith('"'):
        try:
            value = read_json(value, unstorable="replace")
        except ValueError:
            return value
    return [_message(message, read) for message in value] if _are_messages(value) else value


def _are_messages(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(part, dict) and "role" in part for part in value)


def _entity(value: Any) -> Any:
    """Return what a decorated function was called with, without the frame that OpenLLMetry puts around it."""
    if isinstance(value, dict) and value.keys() <= {"args", "kwargs"} and value:
        args, kwargs = value.get("args") or [], value.get("kwargs") or {}
        if not kwargs and isinstance(args, list) and len(args) == 1:
            return args[0]
        return kwargs if not args else value
    return value


def _message(message: Mapping[str, Any], read: Read) -> dict[str, Any]:
    """Return a message with role, content, and the tool calls in it."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        parts = message.get("content")
    calls = message.get("tool_calls")
    calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    if isinstance(parts, list):
        blocks = [part for part in parts if isinstance(part, dict)]
        texts = (_first(part, TEXT_KEYS) for part in blocks if part.get("type") in TEXT_TYPES)
        content = "\n".join(text for text in texts if isinstance(text, str) and text)
        calls += [part for part in blocks if part.get("type") == "tool_call"]
    else:
        content = parts if isinstance(parts, str) else "" if parts is None else json.dumps(parts)
    fields = {"role": str(message.get("role") or "user"), "content": content}
    return {**fields, "tool_calls": [_call(call, read) for call in calls]} if calls else fields


def _call(call: Mapping[str, Any], read: Read) -> dict[str, Any]:
    inner = call.get("function")
    about = inner if isinstance(inner, dict) else call
    arguments = read(_first(about, ("arguments", "input")))
    return {"tool": str(_first(about, ("name", "tool")) or ""), "input": arguments}


def _first(values: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _flat_messages(about: Mapping[str, Any], prefix: str, read: Read) -> list[dict[str, Any]]:
    """Return messages that are written as one attribute each for role and content."""
    begin = f"{prefix}."
    messages: dict[int, dict[str, Any]] = {}
    texts: dict[int, list[str]] = {}
    calls: dict[tuple[int, int], dict[str, Any]] = {}
    for name, value in about.items():
        found = FLAT_MESSAGE.match(name[len(begin) :]) if name.startswith(begin) else None
        if found is None:
            continue
        place, key = int(found[1]), found[2]
        message = messages.setdefault(
            place, {"role": "assistant" if "output" in prefix else "user", "content": ""}
        )
        if key == "role":
            message["role"] = _text(value) or message["role"]
        elif key == "content":
            message["content"] = value if isinstance(value, str) else json.dumps(value)
        elif FLAT_PART.match(key):
            texts.setdefault(place, []).append(_text(value))
        elif call := FLAT_CALL.match(key):
            part = calls.setdefault((place, int(call[1])), {"tool": "", "input": None})
            part["tool" if call[2] == "name" else "input"] = (
                _text(value) if call[2] == "name" else read(value)
            )
    for place, listed in texts.items():
        message = messages[place]
        message["content"] = "\n".join(filter(None, (message["content"], *listed)))
    for (place, _), part in sorted(calls.items()):
        messages[place].setdefault("tool_calls", []).append(part)
    return [messages[place] for place in sorted(messages)]


def _plain_output(value: Any) -> Any:
    """Return the text of a single answer, and anything else as it is."""
    is_one = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)
    if is_one and value[0].keys() == {"role", "content"}:
        return value[0]["content"]
    return value


def _duration(span: Span) -> int | None:
    if span.started_ns is None or span.ended_ns is None:
        return None
    duration_ms = round((span.ended_ns - span.started_ns) / NS_PER_MS)
    return duration_ms if duration_ms <= MAX_COUNT else None


def _count(about: Mapping[str, Any], names: Iterable[str]) -> int | None:
    for name in names:
        value = about.get(name)
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 <= value <= MAX_COUNT
        ):
            return int(value)
    return None


def _cost(about: Mapping[str, Any]) -> str | None:
    """Return the cost as text; a cost that cannot be is none."""
    for names in (*((name,) for name in COSTS), *COST_PARTS):
        try:
            parts = [usd for name in names if (usd := read_money(about.get(name))) is not None]
        except ValueError:
            continue
        if parts:
            return f"{sum(parts, Decimal(0)):f}"
    return None


QUESTION_KEYS = ("input", "question", "query", "prompt", "message", "messages", "text")
ANSWER_KEYS = ("output", "answer", "response", "result", "text", "content", "message", "messages")


def question(value: Any) -> list[dict[str, str]]:
    """Return the input of a step as the turns of a case."""
    value = _unwrap(value, QUESTION_KEYS)
    if _are_messages(value):
        turns = [
            {"role": str(message["role"]), "content": str(message.get("content") or "")}
            for message in value
        ]
        return [turn for turn in turns if turn["content"].strip()]
    text = _as_text(value)
    return [{"role": "user", "content": text}] if text.strip() else []


def answer(value: Any) -> str:
    """Return the output of a step as the text of an answer, "" for none."""
    value = _unwrap(value, ANSWER_KEYS)
    if _are_messages(value):
        texts = [
            str(message.get("content") or "")
            for message in value
            if message["role"] not in ("user", "system", "tool")
        ]
        return next((text for text in reversed(texts) if text.strip()), "")
    return _as_text(value)


def _unwrap(value: Any, names: Iterable[str]) -> Any:
    """Return the text or the list that an object has under the first of the names; anything else as it is."""
    inner = _first(value, names) if isinstance(value, dict) else None
    if isinstance(inner, str):
        return inner
    return _read_value(inner) if isinstance(inner, list) else value


def _as_text(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else ""
        if value is None
        else json.dumps(value, ensure_ascii=False)
    )
