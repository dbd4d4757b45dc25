"""The transport against a real server: answers, failures, reply modes and what is written down of each."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest

from evaluators.model_calls.calls import (
    CallKey,
    CallOutcome,
    CallRecord,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
    TraceHeaders,
)
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.limit_policy import TRIES
from tests.evaluators.model_calls.calling import KEY, SECRET, ask, call, make_spec, run
from tests.support.model_server import (
    ModelServer,
    body,
    drop,
    good,
    hang,
    malformed,
    only_modes,
    rate_limited,
    status,
)

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number", "maximum": 1}},
    "required": ["score"],
}


def test_an_answer_comes_with_tokens_price_and_one_record(model_server: ModelServer) -> None:
    model_server.behave(good("Take it back within 30 days."))

    reply, records = ask(model_server)

    assert isinstance(reply, ChatReply)
    assert reply.text == "Take it back within 30 days."
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.calls) == (100, 20, 1)
    # 60 tokens at $2, 40 cached at $1 and 20 at $10 for a million each.
    assert reply.usage.cost_usd == Decimal("0.000360000")
    (record,) = records
    assert (record.status, record.cached_tokens, record.price_version) == (
        CallOutcome.OK,
        40,
        "own",
    )
    assert record.request["messages"] == [{"role": "user", "content": "Hello"}]
    assert record.reply["choices"][0]["message"]["content"] == "Take it back within 30 days."
    assert model_server.chats[0].headers["Authorization"] == f"Bearer {SECRET}"


def test_an_unknown_price_is_none_and_never_zero(model_server: ModelServer) -> None:
    reply, records = ask(model_server, prices=None)

    assert reply.usage.cost_usd is None
    assert (records[0].cost_usd, records[0].input_tokens) == (None, 100)


def test_a_server_error_is_tried_again(model_server: ModelServer) -> None:
    model_server.behave(status(500, "boom"), status(503), good("done"))

    reply, records = ask(model_server)

    assert reply.text == "done"
    assert [record.http_status for record in records] == [500, 503, 200]
    assert [record.status for record in records[:2]] == [CallOutcome.SERVER_ERROR] * 2
    assert "boom" in records[0].error
    assert reply.usage.calls == 3


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (status(500), CallOutcome.SERVER_ERROR),
        (malformed(), CallOutcome.UNREADABLE),
        (body('{"error": {"message": "overloaded"}}'), CallOutcome.UNREADABLE),
        (body("[]"), CallOutcome.UNREADABLE),
        (body("<html>"), CallOutcome.UNREADABLE),
        (drop(), CallOutcome.CONNECTION),
        (rate_limited("0"), CallOutcome.RATE_LIMITED),
    ],
    ids=["500", "broken-json", "error-as-200", "a-list", "html", "dropped", "429"],
)
def test_what_does_not_pass_is_given_up_and_every_try_recorded(
    model_server: ModelServer, behaviour: Any, expected: CallOutcome
) -> None:
    model_server.behave(then=behaviour)

    error, records = ask(model_server)

    assert isinstance(error, ModelCallError)
    assert error.status is expected
    assert [record.status for record in records] == [expected] * TRIES[expected]
    assert all(record.error for record in records)


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_a_refusal_is_final(model_server: ModelServer, code: int) -> None:
    model_server.behave(then=status(code, "not for you"))

    error, records = ask(model_server)

    assert isinstance(error, ModelCallError)
    assert (error.status, error.http_status, len(records)) == (CallOutcome.REFUSED, code, 1)
    assert "not for you" in error.reason


@pytest.mark.parametrize("code", [400, 500])
def test_of_a_long_refusal_only_its_beginning_is_recorded(
    model_server: ModelServer, code: int
) -> None:
    model_server.behave(then=status(code, "not for you " * 100_000))

    error, records = ask(model_server)

    assert isinstance(error, ModelCallError)
    assert "not for you" in error.reason
    assert all(len(json.dumps(record.reply)) < 25_000 for record in records)


def test_a_redirect_is_not_followed(model_server: ModelServer) -> None:
    model_server.behave(then=status(307, headers={"Location": "http://169.254.169.254/"}))

    error, _ = ask(model_server)

    assert isinstance(error, ModelCallError)
    assert "redirect" in error.reason


def test_a_hanging_server_times_out(model_server: ModelServer) -> None:
    model_server.behave(then=hang())

    error, records = ask(model_server, timeout_s=0.2)

    assert isinstance(error, ModelCallError)
    assert error.status is CallOutcome.TIMEOUT
    assert [record.status for record in records] == [CallOutcome.TIMEOUT] * 2
    assert "0.2 s" in error.reason


def test_no_server_at_all_is_a_connection_error(model_server: ModelServer) -> None:
    error, records = ask(model_server, base_url="http://127.0.0.1:1/v1")

    assert isinstance(error, ModelCallError)
    assert error.status is CallOutcome.CONNECTION
    assert len(records) == TRIES[CallOutcome.CONNECTION]


def test_a_call_stopped_on_the_way_is_recorded(model_server: ModelServer) -> None:
    model_server.behave(then=hang())
    records: list[CallRecord] = []

    async def work(client: ModelClient) -> None:
        task = asyncio.create_task(
            client.chat(make_spec(model_server), call(), Ledger(record=records.append))
        )
        await asyncio.to_thread(model_server.wait_for_chats, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work)

    assert [record.status for record in records] == [CallOutcome.CONNECTION]
    assert "Stopped" in records[0].error


def test_a_reply_of_the_ledger_makes_no_request(model_server: ModelServer) -> None:
    _, records = ask(model_server)
    asked: list[tuple[CallKey, str]] = []
    again: list[CallRecord] = []

    def recall(key: CallKey, digest: str) -> CallRecord | None:
        asked.append((key, digest))
        return records[0]

    ledger = Ledger(recall, again.append)
    reply = run(lambda client: client.chat(make_spec(model_server), call(), ledger))

    assert reply.is_recalled
    assert reply.text == "A good answer."
    assert reply.usage.cost_usd == records[0].cost_usd
    assert len(model_server.chats) == 1
    assert asked == [(KEY, records[0].request_hash)]
    assert again == []


def test_the_hash_follows_what_is_asked_and_not_the_key(model_server: ModelServer) -> None:
    def digest(asked: ChatCall, **changes: Any) -> str:
        return ask(model_server, asked, **changes)[1][0].request_hash

    first = digest(call())
    assert digest(call(), api_key="other") == first
    assert digest(call("Other")) != first
    assert digest(call(), model_id="other") != first
    assert digest(call(), parameters={"temperature": 0}) != first
    assert digest(call(schema=SCHEMA)) != first


def test_a_refused_reply_mode_falls_back_and_is_remembered(model_server: ModelServer) -> None:
    model_server.behave(then=only_modes("text"))
    records: list[CallRecord] = []

    async def work(client: ModelClient) -> ChatReply:
        ledger = Ledger(record=records.append)
        await client.chat(make_spec(model_server), call(schema=SCHEMA), ledger)
        return await client.chat(make_spec(model_server), call("Again", schema=SCHEMA), ledger)

    reply = run(work)

    assert reply.reply_mode == "text"
    assert [request.mode for request in model_server.chats] == [
        "json_schema",
        "json_object",
        "text",
        "text",
    ]
    assert [record.status for record in records] == ["refused", "refused", "ok", "ok"]


def test_a_400_about_something_else_is_no_reason_to_fall_back(model_server: ModelServer) -> None:
    model_server.behave(then=status(400, "maximum context length is 8192 tokens"))

    error, records = ask(model_server, call(schema=SCHEMA))

    assert isinstance(error, ModelCallError)
    assert (error.status, len(records)) == (CallOutcome.REFUSED, 1)


@pytest.mark.parametrize(
    ("code", "said", "falls_back"),
    [
        (400, "json_schema is not supported", True),
        (422, "no structured output here", True),
        (404, "the model qwen-structured-json_schema does not exist", False),
        (404, "", False),
        (404, "No endpoint supports response_format", True),
        (403, "response_format is not for you", False),
    ],
)
def test_only_some_refusals_are_about_the_reply_mode(
    model_server: ModelServer, code: int, said: str, falls_back: bool
) -> None:
    model_server.behave(status(code, said))

    ask(model_server, call(schema=SCHEMA))

    modes = ["json_schema", "json_object"] if falls_back else ["json_schema"]
    assert [request.mode for request in model_server.chats] == modes


def test_trace_headers_go_only_where_they_are_wanted(model_server: ModelServer) -> None:
    traced = call(trace=TraceHeaders("bot v2", "CS-001", "safety/no_pii"))
    ask(model_server, traced)
    ask(model_server, traced, send_trace_headers=True)

    quiet, told = model_server.chats
    assert quiet.trace("Case") == ""
    assert told.headers["X-Evalsite-Target"] == "bot%20v2"
    assert (told.trace("Case"), told.trace("Evaluator")) == ("CS-001", "safety/no_pii")


def test_parameters_are_sent_but_override_nothing_of_the_client(model_server: ModelServer) -> None:
    ask(model_server, parameters={"temperature": 0.0, "stream": True, "model": "dear"})

    sent = model_server.chats[0].body
    assert (sent["temperature"], sent["model"]) == (0.0, "mock")
    assert "stream" not in sent


def test_the_models_of_a_server_are_listed_where_it_tells(model_server: ModelServer) -> None:
    assert run(lambda client: client.model_ids(make_spec(model_server))) == ["mock", "mock-mini"]
    model_server.models = None
    assert run(lambda client: client.model_ids(make_spec(model_server))) == []


def test_characters_no_database_keeps_are_replaced_in_request_and_reply(
    model_server: ModelServer,
) -> None:
    model_server.behave(good("nul \x00, half \ud800, whole \U0001f600"))

    reply, records = ask(model_server, call("nul \x00, half \udfff"))

    assert isinstance(reply, ChatReply)
    assert reply.text == "nul \ufffd, half \ufffd, whole \U0001f600"
    stored = json.dumps([records[0].request, records[0].reply], ensure_ascii=False)
    assert "\x00" not in stored
    stored.encode()
    assert model_server.chats[0].text == "nul \ufffd, half \ufffd"
