"""How many calls run at once: what lowers it, what raises it, and what all workers share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from evaluators.judging.limits import AdaptiveLimit, Limiter
from evaluators.judging.specs import ModelSpec


def spec(**changes: Any) -> ModelSpec:
    return ModelSpec(**{"slug": "m", "base_url": "", "model_id": "m", "concurrency": 4, **changes})


@dataclass
class Clock:
    """A clock that only sleeping moves."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_429_halves_once_for_all_calls_that_were_in_flight_together() -> None:
    limit = AdaptiveLimit(most=16, now=16)

    assert limit.cut(started_at=1.0, at=2.0)
    assert not limit.cut(started_at=1.5, at=2.1)
    assert limit.now == 8
    assert limit.cut(started_at=2.5, at=3.0)
    assert limit.now == 4


def test_the_limit_never_falls_below_one() -> None:
    limit = AdaptiveLimit(most=2, now=2)

    for second in range(5):
        limit.cut(started_at=float(second), at=float(second))

    assert limit.now == 1


def test_a_window_of_successes_raises_by_one_up_to_the_most() -> None:
    limit = AdaptiveLimit(most=4, now=2)

    assert [limit.succeeded() for _ in range(6)] == [False, True, False, False, True, False]
    assert limit.now == 4


def test_no_more_calls_than_the_limit_are_in_flight_and_all_get_their_turn() -> None:
    most = 0
    done: list[int] = []

    async def session() -> None:
        nonlocal most
        limiter, in_flight = Limiter(), 0

        async def call(number: int) -> None:
            nonlocal most, in_flight
            async with limiter.slot(spec()):
                in_flight += 1
                most = max(most, in_flight)
                await asyncio.sleep(0)
                in_flight -= 1
                done.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(call(number))

    asyncio.run(session())

    assert most == 4
    assert done == list(range(40))


def test_a_call_cancelled_in_its_turn_passes_it_on() -> None:
    async def session() -> list[str]:
        limiter, done = Limiter(), []
        one = spec(concurrency=1)

        async def call(name: str) -> None:
            async with limiter.slot(one):
                done.append(name)

        async with limiter.slot(one):
            tasks = [asyncio.create_task(call(name)) for name in "abc"]
            await settle()
        tasks[0].cancel()
        await asyncio.wait(tasks, timeout=5)
        return done

    assert asyncio.run(session()) == ["b", "c"]


def test_a_pause_holds_calls_back_and_is_told_with_the_lower_limit() -> None:
    clock = Clock()
    told: list[tuple[str, int, str]] = []
    limiter = Limiter(clock=clock, sleep=clock.sleep, report=lambda *facts: told.append(facts))

    async def session() -> None:
        limiter.rate_limited(spec(), started_at=clock.now, pause_s=5.0)
        async with limiter.slot(spec()):
            pass

    asyncio.run(session())

    assert clock.slept == [5.0]
    assert told == [("m", 2, "429 from the server, paused for 5.0 s")]
    assert limiter.limit_now(spec()) == 2


def test_requests_a_minute_are_kept() -> None:
    clock = Clock()
    limiter = Limiter(clock=clock, sleep=clock.sleep)
    starts: list[float] = []

    async def session() -> None:
        for _ in range(5):
            async with limiter.slot(spec(requests_per_minute=2)) as started_at:
                starts.append(started_at - 1000)
            clock.now += 1

    asyncio.run(session())

    assert starts == [0, 1, 60, 61, 120]


def lease_from(
    pool: dict[str, int], asked: list[tuple[str, int]]
) -> Callable[[str, int], Awaitable[int]]:
    async def lease(slug: str, wanted: int) -> int:
        asked.append((slug, wanted))
        await asyncio.sleep(0)
        return min(wanted, pool[slug])

    return lease


def test_slots_are_leased_for_all_calls_that_start_together_and_given_back() -> None:
    asked: list[tuple[str, int]] = []

    async def session() -> None:
        limiter = Limiter(lease=lease_from({"m": 4}, asked))

        async def call() -> None:
            async with limiter.slot(spec()):
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(call())
        assert limiter.wanted() == {"m": 0}
        await limiter.renew()

    asyncio.run(session())

    assert asked == [("m", 4), ("m", 0)]


def test_a_process_waits_for_slots_that_others_hold_and_uses_them_once_free() -> None:
    asked: list[tuple[str, int]] = []
    pool = {"m": 0}

    async def session() -> int:
        limiter = Limiter(lease=lease_from(pool, asked))
        done = 0

        async def call() -> None:
            nonlocal done
            async with limiter.slot(spec()):
                done += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(call())
            await settle()
            before = done
            pool["m"] = 2
            await limiter.renew()
        return before

    assert asyncio.run(session()) == 0
    assert len(asked) == 2


def test_the_minute_is_shared_as_the_slots_are() -> None:
    clock = Clock()
    asked: list[tuple[str, int]] = []
    starts: list[float] = []

    async def session() -> None:
        limiter = Limiter(lease=lease_from({"m": 1}, asked), clock=clock, sleep=clock.sleep)
        for _ in range(3):
            async with limiter.slot(spec(requests_per_minute=8)) as started_at:
                starts.append(started_at - 1000)

    asyncio.run(session())

    assert starts == [0, 0, 60]


@pytest.mark.parametrize(("found", "expected"), [(2, 2), (0, 1), (99, 4)])
def test_a_limit_found_by_another_worker_is_taken_over(found: int, expected: int) -> None:
    limiter = Limiter()
    limiter.limit_now(spec())

    limiter.set_limit("m", found)
    limiter.set_limit("unknown", found)

    assert limiter.limit_now(spec()) == expected
