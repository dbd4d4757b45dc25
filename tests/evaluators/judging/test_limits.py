"""How many calls run at once: what lowers it, what raises it, and what all workers share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from evaluators.judging.adapting import AdaptiveLimit
from evaluators.judging.limits import Limiter
from evaluators.judging.sharing import Alone, Ask, Standing, Starts
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


@dataclass
class Others:
    """The other processes: what they leave, and what they are told and asked."""

    slots: int = 4
    limit: int = 4
    cuts: int = 0
    per_minute: int | None = None
    pause_s: float = 0.0
    valid_s: float = float("inf")
    starts_left: int = 1000
    wait_s: float = 30.0
    problem: Exception | None = None
    asks: list[Ask] = field(default_factory=list)
    asked_starts: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)
    left: list[Mapping[int, int]] = field(default_factory=list)

    async def agree(self, spec: ModelSpec, ask: Ask) -> Standing:
        self.asks.append(ask)
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        slots = min(ask.wanted, self.slots)
        rest = (self.per_minute, self.pause_s, self.valid_s)
        return Standing(slots, self.limit, spec.concurrency, self.cuts, *rest)

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> Starts:
        self.asked_starts.append((wanted, used))
        await asyncio.sleep(0)
        calls = min(wanted, self.starts_left)
        self.starts_left -= calls
        return Starts(calls, 0.0 if calls else self.wait_s, len(self.asked_starts))

    async def leave(self, used: Mapping[int, int]) -> None:
        self.left.append(used)

    @property
    def wanted(self) -> list[int]:
        return [ask.wanted for ask in self.asks]


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


class Calls:
    """Calls through a limiter that end when they are told to."""

    def __init__(self, limiter: Limiter, model: ModelSpec) -> None:
        self.limiter, self.model = limiter, model
        self.most = 0
        self.begun: list[int] = []
        self._ends: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())

    @property
    def in_flight(self) -> int:
        return sum(not end.is_set() for end in self._ends.values())

    async def begin(self, count: int) -> None:
        for number in range(len(self._tasks), len(self._tasks) + count):
            self._tasks[number] = asyncio.create_task(self._call(number))
        await settle()

    async def end(self, count: int = 1) -> None:
        running = [number for number, end in self._ends.items() if not end.is_set()]
        for number in running[:count]:
            self._ends[number].set()
        await settle()

    async def cancel(self, number: int) -> None:
        self._tasks[number].cancel()
        await settle()

    async def _call(self, number: int) -> None:
        async with self.limiter.slot(self.model):
            self.begun.append(number)
            self._ends[number] = asyncio.Event()
            self.most = max(self.most, self.in_flight)
            await self._ends[number].wait()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.wait(self._tasks.values())
        await self.limiter.aclose()


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


def test_a_window_of_answers_to_calls_begun_under_the_limit_earns_one_more() -> None:
    limit = AdaptiveLimit(most=4, now=4)
    limit.cut(started_at=1.0, at=2.0)

    assert [limit.answered(started_at=2.0) for _ in range(3)] == [False] * 3
    assert [limit.answered(started_at=2.1) for _ in range(4)] == [False, True, False, True]


def test_what_was_refused_the_last_time_is_earned_ten_times_as_slowly() -> None:
    limit = AdaptiveLimit(most=8, now=4)
    limit.cut(started_at=1.0, at=2.0)
    limit.now = 3

    assert [limit.answered(started_at=3.0) for _ in range(30)] == [False] * 29 + [True]
    limit.now = 4
    assert [limit.answered(started_at=3.0) for _ in range(4)] == [False] * 3 + [True]


def test_what_was_earned_is_forgotten_when_another_lowers_the_limit() -> None:
    limit = AdaptiveLimit(most=8, now=2)
    limit.answered(started_at=1.0)
    limit.was_cut(at=2.0)

    assert [limit.answered(started_at=2.1) for _ in range(2)] == [False, True]


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
            await settle()
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


def test_a_429_and_what_is_earned_are_told_once_and_what_others_found_is_taken_over() -> None:
    others, clock = Others(slots=8, limit=8), Clock()
    model = spec(concurrency=8)

    async def session() -> None:
        limiter = Limiter(others, clock=clock, sleep=clock.sleep)
        calls = Calls(limiter, model)
        await calls.begin(8)
        # Another process was refused just before and has lowered the limit already.
        others.limit, others.cuts = 4, 1
        for _ in range(8):
            limiter.rate_limited(model, started_at=1000.0, pause_s=2.0)
        await settle()
        assert limiter.limit_now(model) == 4
        told = [ask for ask in others.asks if ask.is_refused]
        assert [(ask.limit, ask.cuts, ask.pause_s) for ask in told] == [(4, 0, 2.0)]

        clock.now += 3
        limiter.rate_limited(model, started_at=1002.0, pause_s=2.0)
        others.limit, others.cuts = 2, 2
        await settle()
        assert others.asks[-1].cuts == 1
        clock.now += 3
        limiter.succeeded(model, started_at=1003.0)
        limiter.succeeded(model, started_at=1005.0)
        limiter.succeeded(model, started_at=1005.0)
        others.limit = 3
        await settle()
        assert others.asks[-1].has_earned
        assert others.asks[-1].limit == 2
        assert limiter.limit_now(model) == 3
        await calls.stop()

    asyncio.run(session())


def test_a_pause_that_another_heard_of_holds_calls_back_here() -> None:
    others, clock = Others(pause_s=7.0), Clock()
    limiter = Limiter(others, clock=clock, sleep=clock.sleep)

    async def session() -> float:
        async with limiter.slot(spec()) as started_at:
            return started_at

    assert asyncio.run(session()) == 1007.0
    assert [ask.pause_s for ask in others.asks] == [0.0]


def test_a_changed_model_counts_with_the_next_renewal() -> None:
    others = Others(limit=2)

    async def session() -> int:
        calls = Calls(Limiter(others), spec())
        await calls.begin(8)
        others.limit, others.per_minute, others.starts_left = 4, 60, 1
        await calls.limiter.renew()
        await calls.end(1)
        await calls.end(1)
        await calls.stop()
        return len(calls.begun)

    assert asyncio.run(session()) == 3
    assert others.asked_starts[0][0] >= 1


def test_starts_are_asked_for_in_blocks_that_grow_with_the_speed() -> None:
    others, clock = Others(per_minute=6000), Clock()

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
    others, clock = Others(per_minute=60), Clock()

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
    others = Others(per_minute=60, starts_left=1)

    async def session() -> int:
        limiter = Limiter(others)
        for _ in range(3):
            with pytest.raises(ValueError, match="the budget is spent"):
                async with limiter.slot(spec()):
                    raise ValueError("the budget is spent")
        async with limiter.slot(spec()):
            return len(others.asked_starts)

    assert asyncio.run(session()) == 1


def test_who_waits_for_the_minute_asks_again_when_it_allows_and_in_between_seldom() -> None:
    others, clock = Others(per_minute=60, starts_left=0, wait_s=25.0), Clock()

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


def test_calls_that_are_turned_away_wait_no_longer_and_those_in_flight_go_on() -> None:
    async def session() -> None:
        calls = Calls(Limiter(), spec(concurrency=2))
        await calls.begin(5)
        calls.limiter.turn_away(ValueError("the budget is spent"))
        await calls.begin(1)
        ended = [task for task in calls.tasks if task.done()]
        assert [str(task.exception()) for task in ended] == ["the budget is spent"] * 4
        assert calls.in_flight == 2
        await calls.end(2)
        await calls.stop()

    asyncio.run(session())


def test_alone_only_what_is_known_of_the_limit_lowers_or_raises_it() -> None:
    alone, asked = Alone(lambda: 0.0), Ask(wanted=1, in_flight=1, limit=4, cuts=0)

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
