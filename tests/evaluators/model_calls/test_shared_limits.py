"""Limits that several processes share: slots, starts and what one learns of a model, told to the others."""

from __future__ import annotations

import asyncio

import pytest

from evaluators.model_calls.calls import CallOutcome, Failure
from evaluators.model_calls.rate_limits import Limiter
from tests.evaluators.model_calls.crowds import Calls, Clock, Others, let_tasks_run, spec


def test_slots_are_asked_for_all_calls_that_start_together_and_given_back() -> None:
    others = Others()

    async def session() -> None:
        calls = Calls(Limiter(others), spec())
        await calls.begin(20)
        for _ in range(20):
            await calls.end()
        await calls.limiter.renew()
        await calls.stop()

    asyncio.run(session())

    assert others.wanted == [4, 0]
    assert others.left == [{}]


def test_slots_that_others_hold_are_asked_for_again_until_they_are_free() -> None:
    others, clock = Others(slots=0), Clock()

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        others.slots = 2 if clock.now >= 1003 else 0

    async def session() -> list[int]:
        calls = Calls(Limiter(others, clock=clock, sleep=sleep), spec())
        await calls.begin(3)
        await calls.stop()
        return calls.begun

    assert asyncio.run(session()) == [0, 1]
    assert clock.slept[:3] == [1.0, 1.0, 1.0]


def test_slots_that_others_are_owed_are_not_used_again_and_told_as_free() -> None:
    others, clock = Others(), Clock()

    async def session() -> Calls:
        calls = Calls(Limiter(others, clock=clock, sleep=clock.sleep), spec())
        await calls.begin(9)
        others.slots = 2
        await calls.limiter.renew()
        await calls.end(2)
        assert calls.in_flight == 2
        assert others.asks[-1].in_flight == 2
        await calls.end(1)
        assert calls.in_flight == 2
        await calls.stop()
        return calls

    assert asyncio.run(session()).begun == [0, 1, 2, 3, 4]


def test_slots_that_could_not_be_renewed_in_time_are_not_used() -> None:
    others, clock = Others(valid_s=15.0), Clock()

    async def session() -> None:
        calls = Calls(Limiter(others, clock=clock, sleep=clock.sleep), spec())
        await calls.begin(1)
        await calls.end(1)
        # As if the process had been stopped for longer than its slots are its own.
        clock.now += 20
        others.slots = 0
        await calls.begin(1)
        assert calls.in_flight == 0
        await calls.stop()

    asyncio.run(session())


def test_how_calls_end_is_told_once_a_second() -> None:
    others, clock = Others(), Clock()
    limiter = Limiter(others, clock=clock, sleep=clock.sleep)

    async def session() -> None:
        for second, ends in enumerate((3, 4, 5)):
            clock.now = 1000.0 + second
            for _ in range(ends):
                limiter.answered(spec(), started_at=clock.now - 0.5)
            await let_tasks_run()

    asyncio.run(session())

    told = [ask.ends for ask in others.asks]
    # The first end of a second is told at once, and what ends after it a second later.
    assert [(ends.answered, round(ends.seconds, 1)) for ends in told] == [
        (3, 0.5),
        (4, 1.0),
        (5, 1.0),
    ]
    assert {ends.latency_s for ends in told} == {0.5}


def test_time_in_which_no_call_ended_counts_although_slots_were_asked_for() -> None:
    others, clock = Others(), Clock()
    limiter = Limiter(others, clock=clock, sleep=clock.sleep)

    async def session() -> None:
        for second in (0.0, 2.0):
            clock.now = 1000.0 + second
            limiter.answered(spec(), started_at=clock.now)
            await let_tasks_run()
            clock.now += 1.0
            await limiter.renew()

    asyncio.run(session())

    told = [ask.ends for ask in others.asks if ask.ends.answered]
    assert [ends.seconds for ends in told] == [0.0, 2.0]


def test_failures_in_a_row_are_told_at_once_and_no_call_starts_before() -> None:
    others, clock = Others(slots=16), Clock()
    limiter = Limiter(others, clock=clock, sleep=clock.sleep)
    model = spec(concurrency=16)
    away = Failure(CallOutcome.CONNECTION, "No connection")

    async def session() -> None:
        calls = Calls(limiter, model)
        await calls.begin(1)
        limiter.answered(model, started_at=clock.now)
        await let_tasks_run()
        for call in (1, 2, 3):
            limiter.failed(model, away, call=call, started_at=clock.now)
        others.is_silent = others.is_metered = True
        others.starts_left = 0
        await calls.begin(4)
        assert [ask.ends.failures for ask in others.asks if ask.ends.failures] == [3]
        assert limiter.is_silent(model)
        assert calls.in_flight == 1
        limiter.answered(model, started_at=clock.now)
        others.is_silent = others.is_metered = False
        await let_tasks_run()
        assert calls.in_flight == 5
        await calls.stop()

    asyncio.run(session())


def test_a_pause_that_another_heard_of_holds_calls_back_here() -> None:
    others, clock = Others(pause_s=7.0), Clock()
    limiter = Limiter(others, clock=clock, sleep=clock.sleep)

    async def session() -> float:
        async with limiter.slot(spec()) as started_at:
            return started_at

    assert asyncio.run(session()) == 1007.0
    assert [ask.ends.pause_s for ask in others.asks] == [0.0]


def test_a_changed_model_counts_with_the_next_renewal() -> None:
    others = Others(concurrency=2)

    async def session() -> int:
        calls = Calls(Limiter(others), spec())
        await calls.begin(8)
        others.concurrency, others.is_metered, others.starts_left = 4, True, 1
        await calls.limiter.renew()
        await calls.end(1)
        await calls.end(1)
        await calls.stop()
        return len(calls.begun)

    assert asyncio.run(session()) == 3
    assert others.asked_starts[0][0] >= 1


def test_starts_are_asked_for_in_blocks_that_grow_with_the_speed() -> None:
    others, clock = Others(is_metered=True), Clock()

    async def session() -> None:
        calls = Calls(Limiter(others, clock=clock, sleep=clock.sleep), spec())
        await calls.begin(200)
        for _ in range(200):
            await calls.end(1)
        await calls.stop()

    asyncio.run(session())

    blocks = [wanted for wanted, _ in others.asked_starts]
    assert blocks[:4] == [4, 8, 16, 32]
    assert len(blocks) == 6


def test_starts_that_are_void_or_not_needed_are_given_back() -> None:
    others, clock = Others(is_metered=True), Clock()

    async def session() -> None:
        calls = Calls(Limiter(others, clock=clock, sleep=clock.sleep), spec())
        await calls.begin(5)
        await calls.end(1)  # asks for a block of 8, of which one is used at once
        clock.now += 3
        await calls.end(4)
        await calls.begin(1)
        assert others.asked_starts[-1] == (1, {2: 1})
        await calls.begin(1)
        await calls.stop()

    asyncio.run(session())

    assert others.asks[-1].used == {}
    assert [wanted for wanted, _ in others.asked_starts] == [4, 8, 1, 2]
    assert others.left == [{4: 1}]


def test_a_call_refused_before_it_was_made_leaves_its_start_to_the_next() -> None:
    others = Others(is_metered=True, starts_left=1)

    async def session() -> int:
        limiter = Limiter(others)
        for _ in range(3):
            with pytest.raises(ValueError, match="the budget is spent"):
                async with limiter.slot(spec()):
                    raise ValueError("the budget is spent")
        async with limiter.slot(spec()):
            return len(others.asked_starts)

    assert asyncio.run(session()) == 1


def test_a_call_that_missed_its_start_gives_it_back_and_waits_for_another() -> None:
    others, clock = Others(is_metered=True), Clock()
    limiter = Limiter(others, clock=clock, sleep=clock.sleep)
    delays_s = iter((3.0, 0.0))

    async def admit() -> None:
        clock.now += next(delays_s)

    async def session() -> None:
        async with limiter.slot(spec()) as started_at:
            clock.now += 3
            assert limiter.is_late(spec(), started_at=started_at)
            started_at = await limiter.start_again(spec(), started_at=started_at, admit=admit)
            assert started_at == clock.now
        await limiter.aclose()

    asyncio.run(session())

    # The second start was missed too, and went back with the request for the third.
    assert others.asked_starts == [(1, {}), (1, {}), (1, {2: 0})]
    assert others.left == [{1: 0}]


def test_a_call_refused_after_it_missed_its_start_gives_back_no_start_of_others() -> None:
    others, clock = Others(is_metered=True), Clock()
    limiter = Limiter(others, clock=clock, sleep=clock.sleep)
    is_late = asyncio.Event()

    async def in_time() -> None:
        async with limiter.slot(spec()):
            await is_late.wait()

    async def late() -> None:
        async with limiter.slot(spec()) as started_at:
            clock.now += 3
            is_late.set()
            await limiter.start_again(spec(), started_at=started_at, admit=refuse)

    async def refuse() -> None:
        raise ValueError("the budget is spent")

    async def session() -> None:
        tasks = [asyncio.create_task(call()) for call in (in_time, late)]
        await asyncio.wait(tasks)
        await limiter.aclose()

    asyncio.run(session())

    assert others.asked_starts[0][0] == 2
    assert others.left == [{1: 1}]


def test_who_waits_for_the_minute_asks_again_when_it_allows_and_in_between_seldom() -> None:
    others, clock = Others(is_metered=True, starts_left=0, wait_s=25.0), Clock()

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        others.wait_s -= seconds
        others.starts_left = 4 if others.wait_s <= 0 else 0

    async def session() -> list[int]:
        calls = Calls(Limiter(others, clock=clock, sleep=sleep), spec())
        await calls.begin(4)
        await calls.stop()
        return calls.begun

    assert asyncio.run(session()) == [0, 1, 2, 3]
    assert clock.slept == [10.0, 10.0, 5.0]


def test_who_waits_is_told_when_nobody_can_be_asked() -> None:
    others = Others(problem=OSError("no database"))
    limiter = Limiter(others)

    async def call() -> None:
        async with limiter.slot(spec()):
            raise AssertionError("there is no slot")

    async def session() -> list[BaseException | None]:
        tasks = [asyncio.create_task(call()) for _ in range(3)]
        await asyncio.wait(tasks, timeout=5)
        return [task.exception() for task in tasks]

    assert [str(error) for error in asyncio.run(session())] == ["no database"] * 3
