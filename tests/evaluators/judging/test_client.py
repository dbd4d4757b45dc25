"""The transport against a real server that behaves, and one that does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from evaluators.judging.calls import (
    CallKey,
    CallRecord,
    CallStatus,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
    TraceHeaders,
)
from evaluators.judging.client import ModelClient
from evaluators.judging.limits import Limiter
from evaluators.judging.pricing import Prices, Rate
from evaluators.judging.retries import TRIES, Retries
from evaluators.judging.specs import ModelSpec
from tests.model_server import (
    ModelServer,
    body,
    completion,
    drop,
    good,
    hang,
    malformed,
    only_modes,
    rate_limited,
    status,
)

T = TypeVar("T")
KEY = CallKey("target")
SECRET = 'sk-very/secret"0123456789'
PRICES = Prices(Rate(Decimal("2")), Rate(Decimal("10")), Rate(Decimal("1")), "own")
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number", "maximum": 1}},
    "required": ["score"],
}
FAST = Retries(first_s=0.0, jitter=lambda: 0.0)


def make_spec(server: ModelServer, **changes: Any) -> ModelSpec:
    facts = {"slug": "mock", "base_url": server.base_url, "model_id": "mock", "prices": PRICES}
    return ModelSpec(**{**facts, "api_key": SECRET, "timeout_s": 20.0, **changes})


def call(text: str = "Hello", **changes: Any) -> ChatCall:
    return replace(ChatCall([{"role": "user", "content": text}], KEY), **changes)


def run(
    work: Callable[[ModelClient], Awaitable[T]],
    *,
    limiter: Limiter | None = None,
    retries: Retries = FAST,
) -> T:
    async def session() -> T:
        client = ModelClient(limiter, retries)
        try:
            return await work(client)
        finally:
            await client.aclose()

    return asyncio.run(session())


def ask(
    server: ModelServer, asked: ChatCall | None = None, **changes: Any
) -> tuple[ChatReply | ModelCallError, list[CallRecord]]:
    records: list[CallRecord] = []

    async def work(client: ModelClient) -> ChatReply | ModelCallError:
        try:
            spec = make_spec(server, **changes)
            return await client.chat(spec, asked or call(), Ledger(record=records.append))
        except ModelCallError as error:
            return error

    return run(work), records


def test_an_answer_comes_with_tokens_price_and_one_record(model_server: ModelServer) -> None:
    model_server.behave(good("Take it back within 30 days."))

    reply, records = ask(model_server)

    assert isinstance(reply, ChatReply)
    assert reply.text == "Take it back within 30 days."
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.calls) == (100, 20, 1)
    # 60 tokens at $2, 40 cached at $1 and 20 at $10 for a million each.
    assert reply.usage.cost_usd == Decimal("0.000360000")
    (record,) = records
    assert (record.status, record.cached_tokens, record.price_version) == (CallStatus.OK, 40, "own")
    assert record.request["messages"] == [{"role": "user", "content": "Hello"}]
    assert record.reply["choices"][0]["message"]["content"] == "Take it back within 30 days."
    assert model_server.chats[0].headers["Authorization"] == f"Bearer {SECRET}"


def test_an_unknown_price_is_none_and_never_zero(model_server: ModelServer) -> None:
    reply, records = ask(model_server, prices=None)

    assert reply.usage.cost_usd is None
    assert (records[0].cost_usd, records[0].input_tokens) == (None, 100)


def test_429_waits_as_asked_lowers_the_limit_and_is_a_row_of_its_own(
    model_server: ModelServer,
) -> None:
    model_server.behave(rate_limited("7"), good("done"))
    now = [100.0]
    records: list[CallRecord] = []

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    limiter = Limiter(clock=lambda: now[0], sleep=sleep)
    reply = run(
        lambda client: client.chat(
            make_spec(model_server, concurrency=8), call(), Ledger(record=records.append)
        ),
        limiter=limiter,
    )

    assert reply.text == "done"
    assert [record.status for record in records] == [CallStatus.RATE_LIMITED, CallStatus.OK]
    assert [record.try_number for record in records] == [1, 2]
    assert (records[0].http_status, records[0].cost_usd) == (429, None)
    assert "slow down" in records[0].error
    assert now == [107.0]
    assert limiter.limit_now(make_spec(model_server, concurrency=8)) == 4


def test_retry_after_holds_every_call_of_the_model(model_server: ModelServer) -> None:
    now = [100.0]
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    model_server.behave(rate_limited("7"), good("done"))
    limiter = Limiter(clock=lambda: now[0], sleep=sleep)

    run(lambda client: client.chat(make_spec(model_server), call(), Ledger()), limiter=limiter)

    assert waited == [7.0]


def test_a_call_held_up_after_its_start_waits_for_another_place_in_the_minute(
    model_server: ModelServer,
) -> None:
    now, sent_at = [100.0], []

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    async def admit() -> None:
        now[0] += held_up_s.pop(0)

    def record(made: CallRecord) -> None:
        sent_at.append(now[0])

    held_up_s = [0.4, 30.0, 0.0, 0.0]
    limiter = Limiter(clock=lambda: now[0], sleep=sleep)
    spec = make_spec(model_server, requests_per_minute=1)

    async def work(client: ModelClient) -> None:
        for text in ("one", "held up", "three"):
            await client.chat(spec, call(text), Ledger(record=record, admit=admit))

    run(work, limiter=limiter)

    waits = [later - before for before, later in pairwise(sent_at)]
    assert sent_at[0] == 100.4
    assert all(wait >= 60 for wait in waits)


def test_a_call_that_became_useless_while_it_waited_for_another_place_is_not_sent(
    model_server: ModelServer,
) -> None:
    now, asked_at = [100.0], []

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    async def admit() -> None:
        asked_at.append(now[0])
        now[0] += 30.0
        if now[0] > 150.0:
            raise RuntimeError("the run was stopped")

    limiter = Limiter(clock=lambda: now[0], sleep=sleep)
    spec = make_spec(model_server, requests_per_minute=1)

    async def work(client: ModelClient) -> None:
        with pytest.raises(RuntimeError, match="stopped"):
            await client.chat(spec, call("late"), Ledger(admit=admit))

    run(work, limiter=limiter)
    assert len(asked_at) == 2
    assert model_server.chats == []


def test_a_wish_to_wait_too_long_gives_the_call_up(model_server: ModelServer) -> None:
    model_server.behave(then=rate_limited("3600"))

    error, records = ask(model_server)

    assert isinstance(error, ModelCallError)
    assert (error.status, len(records)) == (CallStatus.RATE_LIMITED, 1)


def test_a_used_up_quota_is_not_waited_for(model_server: ModelServer) -> None:
    async def behave(request: Any) -> Any:
        answer = completion("")
        answer.set_status(429)
        answer.text = json.dumps({"error": {"message": "no", "code": "insufficient_quota"}})
        return answer

    model_server.behave(then=behave)

    error, records = ask(model_server)

    assert isinstance(error, ModelCallError)
    assert (error.status, len(records)) == (CallStatus.REFUSED, 1)
    assert "quota" in error.reason


def test_a_server_error_is_tried_again(model_server: ModelServer) -> None:
    model_server.behave(status(500, "boom"), status(503), good("done"))

    reply, records = ask(model_server)

    assert reply.text == "done"
    assert [record.http_status for record in records] == [500, 503, 200]
    assert [record.status for record in records[:2]] == [CallStatus.SERVER_ERROR] * 2
    assert "boom" in records[0].error
    assert reply.usage.calls == 3


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (status(500), CallStatus.SERVER_ERROR),
        (malformed(), CallStatus.UNREADABLE),
        (body('{"error": {"message": "overloaded"}}'), CallStatus.UNREADABLE),
        (body("[]"), CallStatus.UNREADABLE),
        (body("<html>"), CallStatus.UNREADABLE),
        (drop(), CallStatus.CONNECTION),
        (rate_limited("0"), CallStatus.RATE_LIMITED),
    ],
    ids=["500", "broken-json", "error-as-200", "a-list", "html", "dropped", "429"],
)
def test_what_does_not_pass_is_given_up_and_every_try_recorded(
    model_server: ModelServer, behaviour: Any, expected: CallStatus
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
    assert (error.status, error.http_status, len(records)) == (CallStatus.REFUSED, code, 1)
    assert "not for you" in error.reason


def test_a_redirect_is_not_followed(model_server: ModelServer) -> None:
    model_server.behave(then=status(307, headers={"Location": "http://169.254.169.254/"}))

    error, _ = ask(model_server)

    assert isinstance(error, ModelCallError)
    assert "redirect" in error.reason


def test_a_hanging_server_times_out(model_server: ModelServer) -> None:
    model_server.behave(then=hang())

    error, records = ask(model_server, timeout_s=0.2)

    assert isinstance(error, ModelCallError)
    assert error.status is CallStatus.TIMEOUT
    assert [record.status for record in records] == [CallStatus.TIMEOUT] * 2
    assert "0.2 s" in error.reason


def test_no_server_at_all_is_a_connection_error(model_server: ModelServer) -> None:
    error, records = ask(model_server, base_url="http://127.0.0.1:1/v1")

    assert isinstance(error, ModelCallError)
    assert error.status is CallStatus.CONNECTION
    assert len(records) == TRIES[CallStatus.CONNECTION]


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

    assert [record.status for record in records] == [CallStatus.CONNECTION]
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
    assert (error.status, len(records)) == (CallStatus.REFUSED, 1)


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


def leaks(records: list[CallRecord]) -> list[CallRecord]:
    return [r for r in records if SECRET[3:10] in str((r.request, r.reply, r.error))]


@pytest.mark.parametrize("slash", ["/", r"\/", r"\u002F"])
def test_a_key_that_json_spells_otherwise_is_blotted_out_too(
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


def test_calls_in_flight_stay_within_the_limit(model_server: ModelServer) -> None:
    model_server.behave(then=good("ok", seconds=0.02))
    spec = make_spec(model_server, concurrency=3)

    async def work(client: ModelClient) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(client.chat(spec, call(str(number)), Ledger()))

    run(work)

    assert len(model_server.chats) == 12
    assert model_server.most_in_flight == 3


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
