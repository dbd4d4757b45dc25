"""Conversations: the answer, the turns and the tools called in them, in the forms agents write."""

from __future__ import annotations

import pytest

from evaluators.kinds._base import Message, Step
from runs.target_kinds._outputs import output_from_json, read_conversation


def called(**call):
    return read_conversation([{"role": "assistant", "content": "", "tool_calls": [call]}]).steps


@pytest.mark.parametrize(
    ("call", "step"),
    [
        ({"tool": "find", "input": {"id": 7}, "output": [1]}, Step("tool", "find", {"id": 7}, [1])),
        (
            {"name": "find", "args": {"id": 7}, "result": "ok"},
            Step("tool", "find", {"id": 7}, "ok"),
        ),
        ({"toolName": "find", "durationMs": 12.0}, Step("tool", "find", duration_ms=12)),
        ({"tool": "find", "error": "not allowed"}, Step("tool", "find", error="not allowed")),
        (
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "find", "arguments": '{"id": 7}'},
            },
            Step("tool", "find", {"id": 7}),
        ),
        ({"function": {"name": "find", "arguments": "{no json"}}, Step("tool", "find", "{no json")),
    ],
)
def test_a_call_of_a_tool_is_a_step(call, step):
    assert called(**call) == (step,)


def test_a_later_turn_brings_what_a_tool_returned():
    read = read_conversation(
        [
            {"role": "user", "content": "Where is it?"},
            {
                "role": "assistant",
                "content": None,
                "toolCalls": [{"id": "c1", "function": {"name": "find", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "on its way"},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "On"}, {"type": "text", "value": "its way."}],
            },
        ]
    )

    assert read.steps == (Step("tool", "find", {}, "on its way"),)
    assert read.answer == "On\nits way."
    assert read.messages[0] == Message("user", "Where is it?")
    assert [turn.role for turn in read.messages] == ["user", "assistant", "tool", "assistant"]


def test_turns_that_tell_nothing_of_tools_are_no_trace_and_none_called_is_an_empty_one():
    assert read_conversation([{"role": "assistant", "content": "Hi"}]).steps is None
    turns = [{"role": "assistant", "content": "Hi", "tool_calls": []}]
    assert read_conversation(turns).steps == ()


def test_content_that_is_json_becomes_text():
    turns = [{"role": "assistant", "content": {"total": 3}}]
    assert read_conversation(turns).answer == '{"total": 3}'


def test_an_output_may_be_a_conversation_and_its_trace_goes_before_the_calls_in_it():
    turns = [{"role": "assistant", "content": "Done.", "tool_calls": [{"tool": "find"}]}]

    output = output_from_json({"output": turns})
    assert (output.text, len(output.messages), output.trace) == (
        "Done.",
        1,
        (Step("tool", "find"),),
    )
    assert output_from_json({"messages": turns}).text == "Done."
    assert output_from_json({"output": "Short.", "messages": turns}).text == "Short."
    traced = output_from_json({"output": turns, "trace": [{"type": "model", "name": "juno"}]})
    assert traced.trace == (Step("model", "juno"),)


def test_of_very_many_turns_the_first_and_the_last_are_kept_with_a_warning():
    turns = [{"role": "user", "content": f"Turn {n}"} for n in range(1, 1_500)]

    output = output_from_json({"messages": [*turns, {"role": "assistant", "content": "Done."}]})

    assert len(output.messages) == 1_000
    assert [turn.content for turn in output.messages[-2:]] == ["Turn 999", "Done."]
    assert output.text == "Done."
    assert output.warnings == ("1,500 turns were reported; the first 999 and the last are kept",)


@pytest.mark.parametrize(
    "stored",
    [
        {"messages": [{"role": "a", "tool_calls": [{"tool": "t"}] * 3_000}] * 2},
        {"output": "", "trace": [{"type": "tool", "name": "t"}] * 6_000},
    ],
)
def test_more_steps_than_a_trace_may_have_are_refused(stored):
    with pytest.raises(ValueError, match="there are 6,000 steps or tool_calls; 5,000 is the limit"):
        output_from_json(stored)


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ("hi", "messages is str, not a list"),
        ([3], "messages contains 3, not a role"),
        ([{"content": "x"}], "not a role with its content"),
        ([{"role": "a", "tool_calls": {}}], "tool_calls is dict, not a list"),
        ([{"role": "a", "tool_calls": [3]}], "tool_calls contains 3, not a call"),
        ([{"role": "a", "tool_calls": [{"input": 1}]}], "does not name its tool"),
        ([{"role": "a", "tool_calls": [{"tool": "t", "duration_ms": "4"}]}], "duration_ms is '4'"),
        (
            [{"role": "a", "content": [{"type": "image", "value": "a.png"}]}],
            "a block of type image",
        ),
        ([{"role": "a", "content": [{"type": "text"}]}], "a block of type text"),
    ],
)
def test_what_cannot_be_read_is_named(turns, said):
    with pytest.raises(ValueError, match="messages|tool_calls") as refused:
        read_conversation(turns)

    assert said in str(refused.value)
