from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from jsonschema import Draft202012Validator

from tests.examples.reading import EXAMPLES, Entry, read_lines
from tests.services.processes import Process, running

SCRIPT = EXAMPLES / "scripted_judge.py"
QUESTION = {"model": "scripted-judge", "messages": [{"role": "user", "content": "Judge this."}]}
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

Answer = tuple[int, dict[str, Any]]


class Judge:
    """The running server."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        address = urlsplit(self.base_url)
        connection = http.client.HTTPConnection(address.netloc, timeout=30)
        try:
            connection.request(method, address.path + path, body, dict(headers or {}))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def ask(self, body: Mapping[str, Any] = QUESTION, **names: str) -> Answer:
        headers = {f"X-Evalsite-{name.title()}": quote(value) for name, value in names.items()}
        return self.send("POST", "/chat/completions", json.dumps(body).encode(), headers)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    folder = tmp_path_factory.mktemp("judge")
    ready = folder / "ready"
    options = ["--port", "0", "--delay", "0", "--ready-file", str(ready)]

    def is_ready() -> bool:
        return ready.exists() and ready.read_text().endswith("\n")

    command = [sys.executable, SCRIPT, *options]
    with running(Process(command, log=folder / "log", is_ready=is_ready)):
        yield Judge(ready.read_text().strip())


def said(answer: Answer) -> str:
    status, body = answer
    assert status == 200
    text: str = body["choices"][0]["message"]["content"]
    return text


def test_every_written_reply_is_found_by_its_headers(judge: Judge) -> None:
    for entry in read_lines("judge.jsonl"):
        names = {place: entry[place] for place in ("target", "case", "evaluator")}
        text = said(judge.ask(**names))
        assert text == entry["text"] if "text" in entry else json.loads(text) == entry["reply"]


def test_the_reply_has_the_shape_of_a_chat_completion(judge: Judge) -> None:
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


def test_an_unknown_key_is_a_404_that_names_what_was_looked_for(judge: Judge) -> None:
    status, body = judge.ask(target="my agent", case="CS-001", evaluator="safety/tone")
    assert status == 404
    assert body["error"]["code"] == "no_scripted_reply"
    for part in ("my agent", "CS-001", "safety/tone"):
        assert part in body["error"]["message"]


def test_a_test_question_gets_an_object_of_its_schema(judge: Judge) -> None:
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
    judge: Judge, question: str, reply: Mapping[str, Any], form: Mapping[str, Any]
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
    judge: Judge, body: bytes, code: str
) -> None:
    status, answer = judge.send("POST", "/chat/completions", body)
    assert status == 400
    assert answer["error"]["code"] == code


def test_it_lists_its_one_model(judge: Judge) -> None:
    status, body = judge.send("GET", "/models")
    assert status == 200
    assert [model["id"] for model in body["data"]] == ["scripted-judge"]


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
