"""A client that waits: for a model that asks for a pause, for a place in the minute and among calls in flight."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from evaluators.model_calls.calls import CallOutcome, CallRecord, Ledger, ModelCallError
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.rate_limits import Limiter
from tests.evaluators.model_calls.calling import ask, call, make_spec, run
from tests.support.model_server import ModelServer, completion, good, rate_limited


def test_429_waits_as_asked_and_is_a_row_of_its_own(
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
    assert [record.status for record in records] == [CallOutcome.RATE_LIMITED, CallOutcome.OK]
    assert [record.try_number for record in records] == [1, 2]
    assert (records[0].http_status, records[0].cost_usd) == (429, None)
    assert "slow down" in records[0].error
    assert now == [107.0]


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
    assert (error.status, len(records)) == (CallOutcome.RATE_LIMITED, 1)


def test_a_used_up_quota_is_not_waited_for(model_server: ModelServer) -> None:
    async def behave(request: Any) -> Any:
        answer = completion("")
        answer.set_status(429)
        answer.text = json.dumps({"error": {"message": "no", "code": "insufficient_quota"}})
        return answer

    model_server.behave(then=behave)

    error, records = ask(model_server)

    assert isinstance(error, ModelCallError)
    assert (error.status, len(records)) == (CallOutcome.REFUSED, 1)
    assert "quota" in error.reason


def test_calls_in_flight_stay_within_the_limit(model_server: ModelServer) -> None:
    three = asyncio.Barrier(3)

    async def in_threes(request: Any) -> Any:
        await three.wait()
        return await good("ok")(request)

    model_server.behave(then=in_threes)
    spec = make_spec(model_server, concurrency=3)

    async def work(client: ModelClient) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(client.chat(spec, call(str(number)), Ledger()))

    run(work)

    assert len(model_server.chats) == 12
    assert model_server.most_in_flight == 3
