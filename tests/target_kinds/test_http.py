"""An agent's reply is read by paths; what cannot be read says which path and what stood there."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from evaluators.kinds._base import CaseFacts, Message
from runs.target_kinds import get_target_kind
from runs.target_kinds._base import AgentReply
from runs.target_kinds._replies import read
from runs.target_kinds.http import HTTPConfig

CASE = CaseFacts(key="C-1", input=(Message("user", "Where is it?"),))
URL = "https://agent.example/ask"
FULL = {
    "answer": "On its way.",
    "turns": [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": [{"type": "text", "text": "On its way."}]},
    ],
    "steps": [
        {"name": "look_up", "input": {"id": 7}, "output": "found", "duration_ms": 12, "id": 0},
        {
            "type": "function",
            "function": {"name": "mail", "arguments": '{"to": "a@b.c"}'},
            **{"id": 1, "parent_id": 0, "cost_usd": 0.5},
        },
        "log",
    ],
    "files": [
        {"path": "notes/a.md", "content": "# A"},
        {"name": "b.bin", "base64": base64.b64encode(b"\x00\x01").decode()},
    ],
    "usage": {"in": 12, "out": 3.0},
    "cost": 0.0125,
}
PATHS = {
    "output_path": "answer",
    "messages_path": "turns",
    "tool_calls_path": "steps",
    "files_path": "files",
    "input_tokens_path": "usage.in",
    "output_tokens_path": "usage.out",
    "cost_path": "cost",
}


def reading(body: Any, **settings: Any) -> Any:
    config = HTTPConfig(url=URL, **(settings or PATHS))
    is_json = not isinstance(body, str)
    text = json.dumps(body) if is_json else body
    return read(config, CASE, AgentReply(text, body if is_json else None, is_json, "text/html"))


def test_every_part_of_a_reply_becomes_part_of_the_output() -> None:
    output = reading(FULL).output
    assert output.text == "On its way."
    assert [turn.role for turn in output.messages] == ["user", "assistant"]
    assert [(step.name, step.input) for step in output.trace] == [
        ("look_up", {"id": 7}),
        ("mail", {"to": "a@b.c"}),
        ("log", None),
    ]
    assert output.trace[0].duration_ms == 12
    assert [(step.id, step.parent_id, step.cost_usd) for step in output.trace] == [
        *(("0", "", None), ("1", "0", Decimal("0.5")), ("", "", None))
    ]
    assert dict(output.files) == {"notes/a.md": b"# A", "b.bin": b"\x00\x01"}
    assert (output.usage.input_tokens, output.usage.output_tokens) == (12, 3)
    assert output.usage.cost_usd == Decimal("0.0125")


def test_what_an_agent_leaves_out_is_not_reported_and_no_error() -> None:
    output = reading({"answer": "Hi", "steps": None}).output
    assert output.trace is None
    assert output.files == {}
    assert output.usage.cost_usd is None
    assert output.messages[-1].content == "Hi"


def test_no_tool_calls_are_something_else_than_none_reported() -> None:
    assert reading({"answer": "Hi", "steps": []}).output.trace == ()


def test_tool_calls_inside_the_turns_are_steps_too() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "found"},
        {"role": "assistant", "content": "Hi"},
    ]
    output = reading({"answer": "Hi", "turns": turns}).output
    assert [(step.name, step.output) for step in output.trace] == [("find", "found")]


def test_without_paths_the_whole_reply_is_the_output() -> None:
    config = HTTPConfig(url=URL)
    assert read(config, CASE, AgentReply("Just text")).output.text == "Just text"
    assert read(config, CASE, AgentReply("  ")).problem == "the agent answered with no text"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"text": "Hi"}, "output, path answer: the reply is an object with text, without 'answer'"),
        ({"answer": None}, "output, path answer: there is null"),
        ({"answer": " "}, "there is no text"),
        ([], "the reply is an empty list"),
        ("", "the agent sent an empty body, not JSON"),
        ("<h1>Oops</h1>", "the agent sent text/html, not JSON: the text “<h1>Oops</h1>”"),
        (FULL | {"steps": {}}, "tool calls or steps, path steps: there is an empty object"),
        (FULL | {"steps": [{"input": 1}]}, "step 0 is an object with input, without a name"),
        (FULL | {"turns": [{"content": "x"}]}, "conversation, path turns"),
        (FULL | {"files": 3}, "files, path files: there is the number 3"),
        (FULL | {"files": [{"content": "x"}]}, "file 0 is an object with content, without a path"),
        (FULL | {"usage": {"in": "many"}}, "input tokens, path usage.in: there is the text “many”"),
        (FULL | {"usage": {"in": -1}}, "the number -1"),
        (FULL | {"cost": "NaN"}, "cost in us dollars, path cost"),
        (FULL | {"cost": True}, "there is true"),
        (FULL | {"cost": 10**9}, "100000 dollars"),
    ],
)
def test_a_reply_that_cannot_be_read_says_which_path_and_what_stood_there(
    body: Any, words: str
) -> None:
    found = reading(body)
    assert found.output is None
    assert words in found.problem


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"path": "../../etc/passwd", "content": "x"}, "'../../etc/passwd' is not a path inside"),
        ({"path": "a\\b", "content": "x"}, "is not a path inside"),
        ({"path": "a", "base64": "!"}, "file 'a' is not base64"),
        ({"path": "a"}, "file 'a' is an object with path, without content or base64"),
        ({"path": "good.md/under", "content": "x"}, "'good.md' is a file"),
    ],
)
def test_one_odd_file_is_left_out_with_a_warning_and_the_answer_is_kept(
    odd: Any, words: str
) -> None:
    good = {"path": "good.md", "content": "# Good"}
    output = reading(FULL | {"files": [good, odd]}).output
    assert (output.text, output.files) == ("On its way.", {"good.md": b"# Good"})
    (warning,) = output.warnings
    assert warning.startswith("A file was left out of the answer: ")
    assert words in warning


def test_many_odd_files_are_counted() -> None:
    files = {f"../{number}": "x" for number in range(30)}
    output = reading(FULL | {"files": files}).output
    assert len(output.warnings) == 21
    assert output.warnings[-1] == "10 more files were left out of the answer"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "agent.example"}, "http://"),
        ({"url": "http://169.254.169.254/latest"}, "metadata"),
        ({"url": "http://user:pw@agent.example"}, "password"),
        ({"url": "https://{{input}}/ask"}, "not in the host"),
        ({"url": "https://a.example/{{secret}}"}, "is not a variable"),
        ({"body": {"a": "{{expected_output}}"}}, "never given"),
        ({"output_path": "a..b"}, "character 3"),
        ({"cost_path": "cost"}, "Give the path of the output"),
        ({"headers": [{"name": "Host", "value": "x"}]}, "set by Evalsite"),
        ({"headers": [{"name": "X Y", "value": "x"}]}, "is not a header name"),
        ({"headers": [{"name": "X", "value": "a\r\nEvil: 1"}]}, "a header cannot contain"),
        ({"headers": [{"name": "X", "value": "{{SECRET_KEY}}"}]}, "EVALSITE_TARGET_SECRET_"),
        ({"headers": [{"name": "X"}, {"name": "x"}]}, "repeated"),
        ({"timeout_s": 0}, "greater"),
        ({"method": "DELETE"}, "POST"),
        ({"unknown": 1}, "not permitted"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_saved(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as refusal:
        HTTPConfig(**({"url": URL} | settings))
    assert words in str(refusal.value)


def test_private_networks_are_allowed() -> None:
    for host in ("10.0.0.7", "192.168.1.4:9000", "localhost:8000", "[::1]:9000", "agent"):
        assert HTTPConfig(url=f"http://{host}/ask?x={{{{case_id}}}}").url


def test_the_kind_is_found_and_explains_itself() -> None:
    kind = get_target_kind("http")
    assert kind.uses_agent
    assert "{{input}}" in kind.manual
    assert "Redirects are not followed" in " ".join(kind.manual.split())
