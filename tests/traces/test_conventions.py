"""Attributes of the three conventions become the same step, question and answer."""

from __future__ import annotations

import json
from collections import UserDict
from typing import Any

import pytest

from runs.traces.conventions import answer, question, read_execution, read_place, read_step
from runs.traces.spans import Span

ASKED = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Too small?"}]
CALL = {"tool": "find_order", "input": {"id": "A-7"}}


def make_span(*, parent: str = "", **attributes: Any) -> Span:
    """Return a span; `__` in the name of an attribute is a dot."""
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return Span("1", "2", parent, "POST /v1", 10**18, 10**18 + 5 * 10**6, named)


MODELS = {
    "GenAI": {
        "gen_ai__operation__name": "chat",
        "gen_ai__request__model": "juno",
        "gen_ai__response__model": "juno-1",
        "gen_ai__input__messages": json.dumps(
            [
                {"role": "system", "parts": [{"type": "text", "content": "Be kind."}]},
                {"role": "user", "parts": [{"type": "text", "content": "Too small?"}]},
            ]
        ),
        "gen_ai__output__messages": [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": "I look."},
                    {"type": "tool_call", "name": "find_order", "arguments": {"id": "A-7"}},
                ],
            }
        ],
        "gen_ai__usage__input_tokens": 7,
        "gen_ai__usage__output_tokens": 3,
        "gen_ai__usage__cost": 0.25,
    },
    "OpenInference": {
        "openinference__span__kind": "LLM",
        "llm__model_name": "juno-1",
        "llm__input_messages__0__message__role": "system",
        "llm__input_messages__0__message__content": "Be kind.",
        "llm__input_messages__1__message__role": "user",
        "llm__input_messages__1__message__contents__0__message_content__type": "text",
        "llm__input_messages__1__message__contents__0__message_content__text": "Too small?",
        "llm__output_messages__0__message__role": "assistant",
        "llm__output_messages__0__message__content": "I look.",
        "llm__output_messages__0__message__tool_calls__0__tool_call__function__name": "find_order",
        "llm__output_messages__0__message__tool_calls__0__tool_call__function__arguments": (
            '{"id": "A-7"}'
        ),
        "input__value": '{"raw": 1}',
        "llm__token_count__prompt": 7,
        "llm__token_count__completion": 3,
        "llm__cost__prompt": 0.05,
        "llm__cost__completion": 0.2,
    },
    "OpenLLMetry": {
        "llm__request__type": "chat",
        "gen_ai__request__model": "juno-1",
        "gen_ai__prompt__0__role": "system",
        "gen_ai__prompt__0__content": "Be kind.",
        "gen_ai__prompt__1__role": "user",
        "gen_ai__prompt__1__content": "Too small?",
        "gen_ai__completion__0__role": "assistant",
        "gen_ai__completion__0__content": "I look.",
        "gen_ai__completion__0__tool_calls__0__name": "find_order",
        "gen_ai__completion__0__tool_calls__0__arguments": '{"id": "A-7"}',
        "gen_ai__usage__prompt_tokens": 7,
        "gen_ai__usage__completion_tokens": 3,
        "gen_ai__usage__input_cost": 0.05,
        "gen_ai__usage__output_cost": 0.2,
    },
}
TOOLS = {
    "GenAI": {
        "gen_ai__operation__name": "execute_tool",
        "gen_ai__tool__name": "find_order",
        "gen_ai__tool__call__arguments": {"id": "A-7"},
        "gen_ai__tool__call__result": '{"paid": 5}',
    },
    "OpenInference": {
        "openinference__span__kind": "TOOL",
        "tool__name": "find_order",
        "input__value": '{"id": "A-7"}',
        "output__value": '{"paid": 5}',
    },
    "OpenLLMetry": {
        "traceloop__span__kind": "tool",
        "traceloop__entity__name": "find_order",
        "traceloop__entity__input": '{"args": [], "kwargs": {"id": "A-7"}}',
        "traceloop__entity__output": '{"paid": 5}',
    },
}
AGENTS = {
    "GenAI": {
        "gen_ai__operation__name": "invoke_agent",
        "gen_ai__agent__name": "refunds",
        "gen_ai__input__messages": [{"role": "user", "content": "Too small?"}],
        "gen_ai__output__messages": [
            {"role": "assistant", "parts": [{"type": "text", "content": "A refund."}]}
        ],
    },
    "OpenInference": {
        "openinference__span__kind": "AGENT",
        "agent__name": "refunds",
        "input__value": "Too small?",
        "output__value": "A refund.",
    },
    "OpenLLMetry": {
        "traceloop__span__kind": "workflow",
        "traceloop__entity__name": "refunds",
        "traceloop__entity__input": '{"args": ["Too small?"], "kwargs": {}}',
        "traceloop__entity__output": '"A refund."',
    },
}


@pytest.mark.parametrize("convention", MODELS)
def test_a_call_of_a_model(convention: str) -> None:
    step = read_step(make_span(**MODELS[convention]))
    assert step == {
        "type": "model",
        "name": "juno-1",
        "input": ASKED,
        "output": [{"role": "assistant", "content": "I look.", "tool_calls": [CALL]}],
        "duration_ms": 5,
        "input_tokens": 7,
        "output_tokens": 3,
        "cost_usd": "0.25",
    }
    assert (question(step["input"]), answer(step["output"])) == (ASKED, "I look.")


@pytest.mark.parametrize("convention", TOOLS)
def test_a_call_of_a_tool(convention: str) -> None:
    step = read_step(make_span(**TOOLS[convention]))
    assert step == {
        **{"type": "tool", "name": "find_order", "duration_ms": 5},
        **{"input": {"id": "A-7"}, "output": {"paid": 5}},
    }


@pytest.mark.parametrize("convention", AGENTS)
def test_an_agent(convention: str) -> None:
    step = read_step(make_span(**AGENTS[convention]))
    assert (step["type"], step["name"]) == ("agent", "refunds")
    assert question(step["input"]) == [{"role": "user", "content": "Too small?"}]
    assert answer(step["output"]) == "A refund."


def test_a_span_of_no_convention_is_a_step() -> None:
    assert read_step(make_span(http__route="/")) == {
        "type": "step",
        "name": "POST /v1",
        "duration_ms": 5,
    }
    step = read_step(make_span(input__value='"a\\u0000\\ud800b"', output__value='"no JSON"'[:-1]))
    assert (step["input"], step["output"]) == ("a\ufffd\ufffdb", '"no JSON')
    kinds = {"RETRIEVER": "retrieval", "EMBEDDING": "embedding", "CHAIN": "step", "other": "step"}
    for kind, expected in kinds.items():
        assert read_step(make_span(openinference__span__kind=kind))["type"] == expected


@pytest.mark.parametrize(
    ("value", "turns", "text"),
    [
        ({"question": "Why?", "answer": "So."}, ["Why?"], "So."),
        ({"messages": [{"role": "user", "content": "Why?"}]}, ["Why?"], ""),
        ({"a": 1}, ['{"a": 1}'], '{"a": 1}'),
        ([{"role": "user", "content": ""}, {"role": "user", "content": "Why?"}], ["Why?"], ""),
        ([1, 2], ["[1, 2]"], "[1, 2]"),
        ("", [], ""),
        (None, [], ""),
    ],
)
def test_questions_and_answers_are_found_in_what_agents_take_and_give(
    value: Any, turns: list[str], text: str
) -> None:
    assert [turn["content"] for turn in question(value)] == turns
    assert answer(value) == text


def test_an_execution_is_named_by_the_span_or_the_resource_of_the_first() -> None:
    about = {"evalsite__run": "support:3", "evalsite__case": "C-1"}
    assert read_execution(make_span(parent="9", **about)) is not None
    assert read_execution(make_span(evalsite__case="C-1")) is None
    resource = {"evalsite.run": 7, "evalsite.case": "C-1", "evalsite.repetition": "2"}
    whole = Span("1", "2", "", "a", None, None, {"evalsite.case": "C-2"}, resource)
    named = read_execution(whole)
    assert named is not None
    assert (named.run, named.case, named.repetition) == ("7", "C-2", 2)
    assert read_execution(Span("1", "2", "9", "a", None, None, {}, resource)) is None


class Looked(UserDict[str, str]):
    """Attributes that can be looked up, and are too many to be copied."""

    def keys(self) -> Any:
        pytest.fail("the attributes of a resource were copied for a span")


def test_the_resource_is_not_copied_for_each_of_its_spans() -> None:
    resource = Looked(
        {"evalsite.run": "s:1", "evalsite.case": "C-1", "evalsite.suite": "s", "more": "x"}
    )
    root = Span("1", "2", "", "a", None, None, {"evalsite.case": "C-2"}, resource)
    assert read_place(root) == ("s", "C-2")
    named = read_execution(root)
    assert named is not None
    assert (named.run, named.case, named.repetition) == ("s:1", "C-2", 1)
