"""The judge of the demo, whose replies are written in a file."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runs.management.commands.load_examples import JUDGES
from tests.examples.reading import Entry, read_lines
from tests.examples.scripted_server import QUESTION, SCRIPT, Answer, ScriptedServer, started

SCHEMA = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "note": {"type": "string", "minLength": 5},
        "level": {"enum": ["low", "high"]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1},
        "score": {"anyOf": [{"type": "number", "minimum": 1}, {"type": "null"}]},
    },
    "required": ["ok", "note", "level", "parts", "score"],
    "$defs": {
        "part": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    },
}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedServer]:
    with started(tmp_path_factory.mktemp("judge")) as server:
        yield server


def said(answer: Answer) -> str:
    status, body = answer
    assert status == 200
    text: str = body["choices"][0]["message"]["content"]
    return text


def test_every_written_reply_is_found_by_its_headers(judge: ScriptedServer) -> None:
    for entry in read_lines("judge.jsonl"):
        names = {place: entry[place] for place in ("target", "case", "evaluator")}
        text = said(judge.ask(**names))
        assert text == entry["text"] if "text" in entry else json.loads(text) == entry["reply"]


def test_the_reply_has_the_shape_of_a_chat_completion(judge: ScriptedServer) -> None:
    entry: Entry = read_lines("judge.jsonl")[0]
    names = {place: entry[place] for place in ("target", "case", "evaluator")}
    status, body = judge.ask(**names)
    assert status == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == "scripted-judge"
    assert body["choices"][0]["finish_reason"] == "stop"
    usage = body["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    assert usage["completion_tokens"] > 10


def test_an_unknown_key_is_a_404_that_names_what_was_looked_for(judge: ScriptedServer) -> None:
    status, body = judge.ask(target="my agent", case="CS-001", evaluator="safety/tone")
    assert status == 404
    assert body["error"]["code"] == "no_scripted_reply"
    for part in ("my agent", "CS-001", "safety/tone"):
        assert part in body["error"]["message"]


def test_a_test_question_gets_an_object_of_its_schema(judge: ScriptedServer) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA}}
    value = json.loads(said(judge.ask({**QUESTION, "response_format": form})))
    Draft202012Validator(SCHEMA).validate(value)


@pytest.mark.parametrize("form", [{}, {"response_format": {"type": "json_object"}}])
@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("Judge this.", {"ok": True}),
        ('Reply in the form {"capital": "name of the city"}.', {"capital": "name of the city"}),
    ],
)
def test_a_test_question_without_schema_gets_the_object_it_shows_or_a_small_one(
    judge: ScriptedServer, question: str, reply: Mapping[str, Any], form: Mapping[str, Any]
) -> None:
    body = {"messages": [{"role": "user", "content": question}], **form}
    assert json.loads(said(judge.ask(body))) == reply


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"[]", "invalid_body"),
        (b'{"messages": "hello"}', "invalid_body"),
        (b'{"messages": ["hello"]}', "invalid_body"),
        (b'{"messages": [], "stream": true}', "no_streaming"),
    ],
)
def test_a_request_it_cannot_serve_is_refused_with_the_reason(
    judge: ScriptedServer, body: bytes, code: str
) -> None:
    status, answer = judge.send("POST", "/chat/completions", body)
    assert status == 400
    assert answer["error"]["code"] == code


def test_it_lists_the_models_of_the_demo(judge: ScriptedServer) -> None:
    status, body = judge.send("GET", "/models")
    assert status == 200
    assert [model["id"] for model in body["data"]] == [one.slug for one in JUDGES]


QUOTED = """\
<<<a1 input
Is it open?
a1>>>

<<<a1 candidate_answer
Place 3W is free on the 20th, {rest}.
a1>>>

<<<a1 tool_calls
1. {{"tool": "find_seats", "output": ["3W"]}}
a1>>>"""
METRICS = {
    "type": "object",
    "properties": {
        "metrics": {
            "properties": {
                key: {"properties": {"score": {}}}
                for key in ("grounding_fidelity", "tool_routing", "information_gathering")
            }
        },
        "outcomes": {},
    },
}
VOTE = {"type": "object", "properties": {"reasons": {}, "score": {}, "bracket": {}}}


def marked(
    judge: ScriptedServer, schema: Mapping[str, Any], rest: str, model: str = "scripted-judge"
) -> dict[str, Any]:
    """Return what is said of an answer to the case of the wheelchair place."""
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    messages = [{"role": "user", "content": QUOTED.format(rest=rest)}]
    body = {"model": model, "messages": messages, "response_format": form}
    value: dict[str, Any] = json.loads(said(judge.ask(body, target="mine", case="TD-15")))
    return value


GOOD = "help is ordered 24 hours before"
BAD = "and I have put it aside for you"


def test_an_answer_nobody_wrote_a_reply_for_is_read_by_the_guide_of_its_case(
    judge: ScriptedServer,
) -> None:
    good, bad = (marked(judge, METRICS, rest) for rest in (GOOD, BAD))

    assert [one["passed"] for one in good["outcomes"]] == [True, True]
    assert [one["passed"] for one in bad["outcomes"]] == [True, False]
    assert bad["metrics"]["grounding_fidelity"]["score"] <= 1
    assert "Nothing was held" in bad["metrics"]["grounding_fidelity"]["justification"]
    assert good["metrics"]["grounding_fidelity"]["score"] >= 4
    assert marked(judge, METRICS, BAD) == bad


def test_models_of_a_panel_differ_in_temper(judge: ScriptedServer) -> None:
    models = ("scripted-judge-large", "scripted-judge-small")
    strict, kind = (marked(judge, VOTE, BAD, model)["score"] for model in models)

    assert strict < kind


def test_an_agent_makes_its_attempts_in_turn_and_the_reader_judges(judge: ScriptedServer) -> None:
    answers = [judge.act("chores-1.0", "RC-08") for _ in range(4)]
    texts = [body["answer"] for _, body in answers]
    assert texts[0] == texts[2] == texts[3] != texts[1]

    status, body = judge.act("reader", "TD-15/reader", QUOTED.format(rest=BAD))
    assert status == 200
    assert json.loads(body["answer"])["score"] < 0.6
    for agent, case in (("chores-2.0", "RC-08"), ("chores-1.0", "RC-99"), ("reader", "RC-99")):
        assert judge.act(agent, case)[0] == 404
    assert judge.send("POST", "//agents/reader", b"{}")[0] == 400


def test_it_says_which_line_of_the_replies_is_wrong(tmp_path: Path) -> None:
    replies = tmp_path / "replies.jsonl"
    line = json.dumps({"target": "t", "case": "c", "evaluator": "e", "reply": {}})
    for second, problem in (("{", "no readable reply"), (line, "a second reply for t / c / e")):
        replies.write_text(f"{line}\n{second}\n")
        ended = run_until_end("--port", "0", "--replies", str(replies))
        assert ended.returncode == 1
        assert f"replies.jsonl line 2: {problem}" in ended.stderr


def test_a_taken_port_ends_it_with_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run_until_end("--port", str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert "in use" in ended.stderr
    assert "Traceback" not in ended.stderr


def run_until_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_strict_judge_takes_off_and_a_moody_one_differs_from_itself(
    judge: ScriptedServer,
) -> None:
    def score(model: str) -> int:
        reply = marked(judge, METRICS, GOOD, model)
        return int(reply["metrics"]["grounding_fidelity"]["score"])

    usual = score("scripted-judge")
    strict = [score("scripted-judge-strict") for _ in range(2)]
    moody = {score("scripted-judge-moody") for _ in range(20)}
    assert strict == [round(usual * 0.85)] * 2
    assert len(moody) > 1
    assert max(moody) <= usual
