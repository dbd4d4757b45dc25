"""Keys of models: sent where they belong, kept in no record."""

from __future__ import annotations

import json

import pytest

from evaluators.model_calls.calls import CallRecord, ChatReply, ModelCallError
from tests.evaluators.model_calls.calling import SECRET, ask, make_spec
from tests.support.model_server import ModelServer, body, good, status


def leaks(records: list[CallRecord]) -> list[CallRecord]:
    return [r for r in records if SECRET[3:10] in str((r.request, r.reply, r.error))]


@pytest.mark.parametrize("slash", ["/", r"\/", r"\u002F"])
def test_a_key_that_json_spells_otherwise_is_redacted_too(
    model_server: ModelServer, slash: str
) -> None:
    echo = json.dumps({"error": {"message": f"bad key {SECRET}"}}).replace("/", slash)
    model_server.behave(then=body(echo))

    _, records = ask(model_server)

    assert "bad key [key]" in str(records[0].reply)
    assert leaks(records) == []


def test_the_key_is_in_no_record_even_when_the_server_echoes_it(model_server: ModelServer) -> None:
    model_server.behave(status(500, f"bad key {SECRET}"), good(f"Your key is {SECRET}"))

    reply, records = ask(model_server)

    assert leaks(records) == []
    assert SECRET not in reply.text
    assert SECRET not in repr(make_spec(model_server))
    assert SECRET not in json.dumps(make_spec(model_server).as_json())


def test_a_model_without_a_key_sends_none(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-somebody-else")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Other: somebody")

    reply, _ = ask(model_server, api_key="")

    assert isinstance(reply, ChatReply)
    headers = model_server.chats[0].headers
    assert not {"Authorization", "OpenAI-Organization", "X-Other"} & set(headers)


def test_a_key_that_cannot_be_had_sends_nothing(model_server: ModelServer) -> None:
    error, records = ask(model_server, key_problem="The variable OPENAI_API_KEY is not set.")

    assert isinstance(error, ModelCallError)
    assert error.reason == "The variable OPENAI_API_KEY is not set."
    assert (records, model_server.requests) == ([], [])
