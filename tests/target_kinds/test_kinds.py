"""What all kinds of targets have in common, and recorded outputs."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from pydantic import ValidationError

from evaluators.kinds._base import CaseFacts, Message, Output, Step
from evaluators.scoring.types import Usage
from runs.engine.ports import Cause, TargetFailure
from runs.target_kinds import UnknownTargetKindError, get_target_kind, target_kinds
from runs.target_kinds._base import ChatAnswer, ChatFailure, TargetContext
from runs.target_kinds._outputs import (
    messages_as_json,
    output_from_columns,
    output_from_json,
    trace_as_json,
    usage_as_json,
)

CASE = CaseFacts(key="C-1", input=(Message("user", "Where is my order?"),))
LINE = {
    "id": "C-1",
    "output": "On its way.",
    "messages": [{"role": "assistant", "content": "On its way."}],
    "trace": [
        {"type": "tool", "name": "find_order", "input": {"id": 7}, "output": "sent"},
        {"type": "tool", "name": "refund", "error": "not allowed", "duration_ms": 12},
    ],
    "usage": {"input_tokens": 812, "output_tokens": 120, "cached_tokens": 0},
    "latency_ms": 3400,
    "cost_usd": 0.0023,
    "model": "agent-1",
}


def answer(kind, *, config=None, **context):
    found = get_target_kind(kind)
    settings = found.config.model_validate(config or {})
    return asyncio.run(found.answer(settings, TargetContext("agent", CASE, **context)))


def test_every_kind_has_a_label_an_icon_and_a_manual():
    assert {"chat", "recorded"} <= set(target_kinds())
    for kind in target_kinds().values():
        assert kind.label
        assert kind.icon.startswith("i-")
        assert kind.manual


def test_an_unknown_kind_is_refused_with_those_there_are():
    with pytest.raises(UnknownTargetKindError, match="'ftp'; there are chat, "):
        get_target_kind("ftp")


def test_a_recorded_output_is_given_with_trace_usage_and_cost():
    output = answer("recorded", recorded=LINE)

    assert output.text == "On its way."
    assert output.trace[0] == Step(type="tool", name="find_order", input={"id": 7}, output="sent")
    assert output.usage == Usage(812, 120, Decimal("0.0023"), 3400)


def test_a_case_without_a_recorded_output_is_a_failure_that_names_both():
    assert answer("recorded") == TargetFailure(
        "no recorded output for case C-1 in target agent", Cause.MISSING
    )


def test_an_output_that_reports_no_trace_has_none_and_an_empty_one_stays_empty():
    assert output_from_json({"output": "x"}).trace is None
    assert output_from_json({"output": "x", "trace": []}).trace == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"output": 7}, "output is int, not text"),
        ({"output": "x", "trace": [{"name": "t"}]}, "not a step with type and name"),
        ({"output": "x", "messages": [{"content": "t"}]}, "not a role with its content"),
        ({"output": "x", "latency_ms": -1}, "latency_ms is -1"),
        ({"output": "x", "usage": {"input_tokens": True}}, "input_tokens is True"),
        ({"output": "x", "cost_usd": "much"}, "cost_usd is 'much'"),
        ({"output": "x", "cost_usd": "NaN"}, "cost_usd is 'NaN'"),
    ],
)
def test_a_recorded_line_that_cannot_be_read_is_a_failure_that_names_the_field(line, said):
    failure = answer("recorded", recorded=line)

    assert failure.cause is Cause.BAD_REPLY
    assert said in failure.reason


def test_an_output_reads_back_from_its_columns():
    output = output_from_json(LINE)
    again = output_from_columns(
        output.text, messages_as_json(output), trace_as_json(output), usage_as_json(output.usage)
    )
    assert again == output


class FakeChat:
    def __init__(self, reply):
        self.reply = reply
        self.seen = None

    async def __call__(self, messages, parameters, *, timeout_s=None):
        self.seen = (messages, parameters, timeout_s)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


USAGE = Usage(100, 20, Decimal("0.001"), 250, calls=1)


def test_a_chat_target_sends_prompt_case_and_parameters():
    chat = FakeChat(ChatAnswer("Tomorrow.", USAGE, "mock"))
    config = {"system_prompt": "Be kind.", "parameters": {"temperature": 0}}
    output = answer("chat", config=config, chat=chat)

    messages, parameters, timeout_s = chat.seen
    assert messages == (Message("system", "Be kind."), *CASE.input)
    assert (parameters, timeout_s) == ({"temperature": 0}, None)
    assert output == Output(
        text="Tomorrow.",
        messages=(*CASE.input, Message("assistant", "Tomorrow.")),
        trace=(Step("model", "mock", None, None, 0, 250, 100, 20),),
        usage=USAGE,
    )


def test_a_chat_target_may_have_a_time_out_of_its_own():
    chat = FakeChat(ChatAnswer("Tomorrow.", USAGE, "mock"))
    answer("chat", config={"timeout_s": 20}, chat=chat)

    assert chat.seen[2] == 20


def test_a_chat_that_fails_is_a_failure_of_its_class():
    chat = FakeChat(ChatFailure("429, after 4 tries", Cause.RATE_LIMITED))

    assert str(answer("chat", chat=chat)) == "Rate limited: 429, after 4 tries"


def test_an_empty_answer_is_a_bad_reply_and_no_output():
    failure = answer("chat", chat=FakeChat(ChatAnswer("  ", USAGE, "mock")))

    assert failure == TargetFailure("the model answered with no text", Cause.BAD_REPLY)


@pytest.mark.parametrize("config", [{"parameters": {"stream": True}}, {"prompt": "x"}])
def test_settings_that_are_ours_or_unknown_are_refused_by_name(config):
    with pytest.raises(ValidationError, match=r"stream|prompt"):
        get_target_kind("chat").config.model_validate(config)
