"""Two workers that call one model at a server that counts: together they keep its limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum

from evaluators.model_calls.calls import CallKey, CallOutcome, ChatCall, ChatReply, Ledger
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.limit_policy import LimitRequest
from evaluators.model_calls.models import model_spec
from evaluators.models import LanguageModel, SlotLease
from runs.execution import shared_limits
from runs.execution.active_runs import RunSlot
from runs.execution.database import DatabaseThread
from runs.execution.run_worker import _work
from runs.models.results import ModelCall
from runs.models.runs import Run, RunWorker
from runs.running.services import start_run
from tests.support.factories import make_case, make_model, make_run, make_suite, make_target
from tests.support.model_server import good, hang, rate_limited
from tests.support.trees import JUDGED, tree
from tests.support.virtual_time import TimedLimiter, TimedSlotKeeper, VirtualTime

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]

HEARTBEAT_S = 5.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Let the database go by a clock of its own."""
    virtual = VirtualTime()
    monkeypatch.setattr(shared_limits, "database_now", virtual.database_now)
    return virtual


@dataclass
class Worker:
    """One worker as far as calls go."""

    name: str
    model: Any
    run: Any
    clock: VirtualTime
    starts: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        now = self.clock.database_now()
        facts = {"worker": self.name, "started_at": now, "heartbeat_at": now}
        RunWorker.objects.create(run=self.run, token=self.name, **facts)

    async def call(self, count: int, *, most: int = 50, is_killed: bool = False) -> list[ChatReply]:
        """Make so many calls, so many at once, and return their answers; a killed worker leaves all as it is."""
        work = SimpleNamespace(run_id=self.run.pk, model_ids={self.model.slug: self.model.pk})
        database = DatabaseThread()
        keeper = TimedSlotKeeper(work, self.name, database)
        limiter = TimedLimiter(keeper, clock=self.clock, sleep=self.clock.sleep)
        keeper.time = limiter.time = self.clock
        limiter.starts = self.starts
        client, spec = ModelClient(limiter), model_spec(self.model)
        replies: list[ChatReply] = []
        waiting = iter(range(count))

        async def work_off() -> None:
            for number in waiting:
                call = ChatCall(
                    [{"role": "user", "content": f"{self.name} {number}"}], CallKey("target")
                )
                replies.append(await client.chat(spec, call, Ledger()))

        heart = asyncio.ensure_future(self._beat(limiter))
        consumers = [asyncio.ensure_future(work_off()) for _ in range(min(count, most))]
        try:
            await asyncio.wait(consumers)
            for consumer in consumers:
                consumer.result()
        finally:
            heart.cancel()
            await client.aclose()
            if not is_killed:
                with self.clock.busy():
                    await limiter.aclose()
            database.close()
        return replies

    async def _beat(self, limiter: TimedLimiter) -> None:
        while True:
            await self.clock.sleep(HEARTBEAT_S)
            with self.clock.busy():
                await limiter.renew()


def together(clock: VirtualTime, *work: Coroutine[Any, Any, Any]) -> list[Any]:
    async def session() -> list[Any]:
        async def all_of_them() -> list[Any]:
            tasks = [asyncio.ensure_future(step) for step in work]
            await asyncio.wait(tasks)
            return [task.result() for task in tasks]

        return await clock.run(all_of_them())

    return asyncio.run(session())


def most_in_a_minute(times: list[float]) -> int:
    times = sorted(times)
    return max(sum(begin <= time <= begin + 60 for time in times) for begin in times)


def test_a_storm_of_429_slows_both_workers_down_and_ends_with_every_call_answered(
    clock, model_server
):
    model = make_model(slug="m", name="Big model", base_url=model_server.base_url, concurrency=8)
    first, second = make_run(status="running"), make_run(status="running")
    arrivals = []

    async def busy_at_first(request):
        arrivals.append(clock.now)
        await clock.sleep_at_work(0.1)
        is_refused = len(arrivals) < 150 and len(arrivals) % 5 < 3
        return await (rate_limited(None) if is_refused else good("fine"))(request)

    model_server.behave(then=busy_at_first)
    a, b = Worker("a", model, first, clock), Worker("b", model, second, clock)
    replies = together(clock, a.call(150), b.call(150))

    assert [len(some) for some in replies] == [150, 150]
    assert {reply.text for some in replies for reply in some} == {"fine"}
    assert model_server.most_in_flight <= 8
    for run in (first, second):
        slowed = run.events.get(kind="model_slowed").text
        assert re.fullmatch(
            r"Big model: slowed to [\d.]+ calls a second \(429 from the server\)", slowed
        )


def test_a_call_out_of_luck_is_tried_on_while_the_model_answers_others(clock, model_server):
    model = make_model(slug="m", base_url=model_server.base_url, concurrency=8)
    worker = Worker("a", model, make_run(status="running"), clock)

    async def never_the_first(request):
        await clock.sleep_at_work(0.1)
        is_unlucky = request.text == "a 0" and len(model_server.chats) < 60
        return await (rate_limited("1") if is_unlucky else good("fine"))(request)

    model_server.behave(then=never_the_first)
    (replies,) = together(clock, worker.call(100, most=4))

    assert len(replies) == 100
    assert sum(request.text == "a 0" for request in model_server.chats) > 5


def test_a_model_that_refuses_everybody_for_a_while_costs_no_results(clock, model_server):
    model = make_model(slug="m", base_url=model_server.base_url, concurrency=8)
    worker = Worker("a", model, make_run(status="running"), clock)
    recovers_at = clock.now + 400

    async def away_at_first(request):
        await clock.sleep_at_work(0.1)
        return await (rate_limited("5") if clock.now < recovers_at else good("fine"))(request)

    model_server.behave(then=away_at_first)
    (replies,) = together(clock, worker.call(60))

    assert len(replies) == 60
    # Single calls tried it, each after the pause that the last one was asked for.
    assert len(model_server.chats) < 60 + 100


def test_no_minute_holds_more_than_its_calls_over_workers_runs_and_restarts(clock, model_server):
    per_minute = 30
    model = make_model(
        slug="m", name="Slow model", base_url=model_server.base_url, requests_per_minute=per_minute
    )
    first, second = make_run(status="running"), make_run(status="running")
    arrivals = []

    async def behave(request):
        arrivals.append(clock.now)
        await clock.sleep_at_work(1.0)
        return await good("fine")(request)

    model_server.behave(then=behave)
    killed, restarted = Worker("a", model, first, clock), Worker("a2", model, first, clock)
    late = Worker("b", model, second, clock)
    began_at = clock.now

    async def killed_and_restarted():
        await killed.call(25, is_killed=True)
        return await restarted.call(50)

    async def later():
        await clock.sleep(20)
        return await late.call(50)

    replies = together(clock, killed_and_restarted(), later())

    assert [len(some) for some in replies] == [50, 50]
    assert len(arrivals) == 125
    assert most_in_a_minute(arrivals) <= per_minute
    assert most_in_a_minute(killed.starts + restarted.starts + late.starts) <= per_minute
    # Both go on at the same time, and little of what the limit allows is lost.
    assert abs(max(restarted.starts) - max(late.starts)) < 65
    assert clock.now - began_at < 125 / per_minute * 62 + 70
    told = "Slow model: the run waits for its limit of 30 calls a minute, spread over the minute"
    for run in (first, second):
        assert run.events.get().text == told


def test_workers_that_share_a_run_end_it_right_although_the_server_refuses_many(
    start_chat, model_server
):
    model_server.behave(*(rate_limited("0.1") for _ in range(12)))
    run = start_chat(40, concurrency=8)

    def work(_):
        try:
            _work(RunSlot(run.pk))
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as run_workers:
        list(run_workers.map(work, range(2)))

    run.refresh_from_db()
    assert (run.status, run.pass_count, run.error_count) == ("completed", 40, 0)
    assert ModelCall.objects.filter(run=run, status=CallOutcome.OK).count() == 80
    assert ModelCall.objects.filter(run=run, status=CallOutcome.RATE_LIMITED).count() == 12
    assert run.events.count() <= 2 * 3, "at most three events of each model"
    assert not SlotLease.objects.exists()


def test_a_spent_budget_ends_a_run_whose_calls_wait_for_the_minute(start_chat, model_server):
    run = start_chat(30, concurrency=16, budget_usd=Decimal("2.5"))
    LanguageModel.objects.filter(slug="judge").update(requests_per_minute=1)

    def work():
        try:
            _work(RunSlot(run.pk))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        worker = threads.submit(work)
        # The second result waits for the next minute of the judge, and meanwhile others spend the rest.
        model_server.wait_for_chats(3)
        Run.objects.filter(pk=run.pk).update(evaluation_cost_usd=Decimal("2.4"))
        worker.result(60)

    run.refresh_from_db()
    assert (run.status, run.error_count, run.fail_count) == ("budget_reached", 0, 0)
    assert run.results.filter(status="cancelled").count() >= 28


def test_target_and_judge_each_keep_their_own_time_out(model_server):
    facts = {"base_url": model_server.base_url, "timeout_s": 60}
    agent = make_model(slug="agent", **facts)
    judge = make_model(slug="judge", send_trace_headers=True, **facts)
    judged = {**JUDGED, "config": {"prompt": "Is it right?", "timeout_s": 1}}
    suite = make_suite(tree=tree(judged), judge=judge)
    for key in ("slow answer", "slow judge"):
        make_case(suite=suite, key=key, input=[{"role": "user", "content": key}])
    target = make_target(kind="chat", model=agent, config={"timeout_s": 1})
    run = start_run(suite=suite, target=target, started_by=None)
    target.config = {"timeout_s": 50}
    target.save()

    async def slow_at_one(request):
        is_slow = "slow answer" in request.text
        return await (hang() if is_slow else good("An answer."))(request)

    model_server.on_model("agent", slow_at_one)
    model_server.on_evaluator("right", hang())
    _work(RunSlot(run.pk))

    slow_answer, slow_judge = run.results.order_by("position")
    assert run.snapshot["target"]["config"] == {"timeout_s": 1}
    assert slow_answer.error == "Timed out: No answer within 1 s, after 2 tries"
    assert (slow_answer.error_stage, slow_answer.score) == ("target", None)
    assert (
        slow_judge.error == "right could not be scored: judge: No answer within 1 s, after 2 tries"
    )
    assert (slow_judge.error_stage, slow_judge.score) == ("judge", None)


def test_workers_that_ask_at_the_same_moment_get_no_more_than_there_is():
    model, run = make_model(concurrency=6, requests_per_minute=20), make_run(status="running")
    names = [f"worker {number}" for number in range(5)]
    ask = LimitRequest(wanted=6, in_flight=0)

    def take(name):
        try:
            shared_limits.agree(model.pk, run.pk, name, ask)
            granted = [shared_limits.grant_starts(model.pk, name, 3, {}).calls for _ in range(5)]
            shared_limits.agree(model.pk, run.pk, name, ask)
            return sum(granted)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(names)) as pool:
        grants = list(pool.map(take, names))

    assert 2 <= sum(grants) <= 20
    held = SlotLease.objects.filter(model=model).aggregate(slots=Sum("slots"))["slots"]
    assert held <= 6
    assert run.events.count() <= 2
