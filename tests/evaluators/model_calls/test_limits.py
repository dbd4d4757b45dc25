"""How many calls of one process run at once: what lowers it, what raises it, whose turn it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from evaluators.model_calls.limit_policy import AdaptiveLimit, LimitRequest
from evaluators.model_calls.rate_limits import Limiter, UnsharedLimits
from tests.evaluators.model_calls.crowds import Calls, Clock, let_tasks_run, spec


def test_a_429_halves_once_for_all_calls_that_were_in_flight_together() -> None:
    limit = AdaptiveLimit(max_limit=16, now=16)

    assert limit.cut(started_at=1.0, at=2.0)
    assert not limit.cut(started_at=1.5, at=2.1)
    assert limit.now == 8
    assert limit.cut(started_at=2.5, at=3.0)
    assert limit.now == 4


def test_the_limit_never_falls_below_one() -> None:
    limit = AdaptiveLimit(max_limit=2, now=2)

    for second in range(5):
        limit.cut(started_at=float(second), at=float(second))

    assert limit.now == 1


def test_a_window_of_answers_to_calls_begun_under_the_limit_earns_one_more() -> None:
    limit = AdaptiveLimit(max_limit=4, now=4)
    limit.cut(started_at=1.0, at=2.0)

    assert [limit.count_answer(started_at=2.0) for _ in range(3)] == [False] * 3
    assert [limit.count_answer(started_at=2.1) for _ in range(4)] == [False, True, False, True]


def test_what_was_refused_the_last_time_is_earned_ten_times_as_slowly() -> None:
    limit = AdaptiveLimit(max_limit=8, now=4)
    limit.cut(started_at=1.0, at=2.0)
    limit.now = 3

    assert [limit.count_answer(started_at=3.0) for _ in range(30)] == [False] * 29 + [True]
    limit.now = 4
    assert [limit.count_answer(started_at=3.0) for _ in range(4)] == [False] * 3 + [True]


def test_what_was_earned_is_forgotten_when_another_lowers_the_limit() -> None:
    limit = AdaptiveLimit(max_limit=8, now=2)
    limit.count_answer(started_at=1.0)
    limit.note_cut(at=2.0)

    assert [limit.count_answer(started_at=2.1) for _ in range(2)] == [False, True]


def test_no_more_calls_than_the_limit_are_in_flight_and_all_get_their_turn() -> None:
    async def session() -> Calls:
        calls = Calls(Limiter(), spec())
        await calls.begin(40)
        for _ in range(40):
            await calls.end()
        await calls.stop()
        return calls

    calls = asyncio.run(session())

    assert calls.most == 4
    assert calls.begun == list(range(40))


@pytest.mark.parametrize("is_in_its_turn", [False, True])
def test_a_call_cancelled_while_it_waits_passes_its_turn_on(is_in_its_turn: bool) -> None:
    async def session() -> list[int]:
        calls = Calls(Limiter(), spec(concurrency=1))
        await calls.begin(4)
        if is_in_its_turn:
            calls._ends[0].set()
            await asyncio.sleep(0)
        await calls.cancel(1)
        await calls.end(4)
        await calls.end(4)
        await calls.stop()
        return calls.begun

    assert asyncio.run(session())[:3] == [0, 2, 3]


def test_a_pause_holds_calls_back_and_the_limit_stays_lower_until_it_is_earned() -> None:
    clock = Clock()
    limiter = Limiter(clock=clock, sleep=clock.sleep)
    limits: list[int] = []

    async def session() -> None:
        model = spec(concurrency=8)
        limiter.rate_limited(model, started_at=clock.now, pause_s=5.0)
        async with limiter.slot(model) as started_at:
            assert started_at == 1005.0
        limits.append(limiter.limit_now(model))
        for _ in range(9):
            limiter.succeeded(model, started_at=clock.now)
            await let_tasks_run()
            limits.append(limiter.limit_now(model))

    asyncio.run(session())

    assert clock.slept == [5.0]
    assert limits == [4, 4, 4, 4, 5, 5, 5, 5, 5, 6]


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

    # A start counts for two seconds more than a minute: so long a grant may wait to be used.
    assert [int(start) for start in starts] == [0, 1, 62, 63, 124]


def test_calls_that_are_turned_away_wait_no_longer_and_those_in_flight_go_on() -> None:
    async def session() -> None:
        calls = Calls(Limiter(), spec(concurrency=2))
        await calls.begin(5)
        calls.limiter.refuse_all(ValueError("the budget is spent"))
        await calls.begin(1)
        ended = [task for task in calls.tasks if task.done()]
        assert [str(task.exception()) for task in ended] == ["the budget is spent"] * 4
        assert calls.in_flight == 2
        await calls.end(2)
        await calls.stop()

    asyncio.run(session())


def test_alone_only_what_is_known_of_the_limit_lowers_or_raises_it() -> None:
    alone, asked = UnsharedLimits(lambda: 0.0), LimitRequest(wanted=1, in_flight=1, limit=4, cuts=0)

    async def session() -> list[tuple[int, int]]:
        changes = (
            {"is_refused": True},
            {"is_refused": True},
            {"has_earned": True},
            {"has_earned": True, "cuts": 1},
            {"has_earned": True, "cuts": 1, "limit": 2},
        )
        found = [await alone.agree(spec(), replace(asked, **change)) for change in changes]
        return [(one.limit, one.cuts) for one in found]

    assert asyncio.run(session()) == [(2, 1), (2, 1), (2, 1), (2, 1), (3, 1)]
