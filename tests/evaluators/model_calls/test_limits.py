"""How fast calls of one process start and how many run at once: what slows them down, whose turn it is."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from evaluators.model_calls.calls import CallOutcome, Failure, ModelCallError
from evaluators.model_calls.limit_policy import (
    MAX_FIRST_SILENCE_S,
    MAX_RETRY_AFTER_S,
    MAX_SILENCE_S,
    CallEnds,
    SharedLimit,
    Throttle,
)
from evaluators.model_calls.rate_limits import Limiter
from tests.evaluators.model_calls.crowds import Calls, Clock, let_tasks_run, spec

BUSY = CallEnds(answered=70, refused=30, seconds=2.0, latency_s=0.1, reason="429 from the server")
CALM = CallEnds(answered=40, seconds=1.0, latency_s=0.1)
AWAY = Failure(CallOutcome.SERVER_ERROR, "Server error (503)", 503)


def learn(throttle: Throttle, ends: CallEnds, *, now: float, workers: int = 1) -> float | None:
    throttle.observe(ends, concurrency=50, workers=workers, now=now)
    return throttle.rate


def test_more_than_a_fifth_of_429s_slows_starts_down_to_what_was_answered() -> None:
    throttle = Throttle()

    assert learn(throttle, BUSY, now=1.0) == pytest.approx(0.9 * 35)
    assert (throttle.slow_since, throttle.reason) == (1.0, "429 from the server")


@pytest.mark.parametrize(
    "ends",
    [
        CallEnds(answered=81, refused=19, seconds=1.0),
        CallEnds(answered=2, refused=17, seconds=9.0),
        CallEnds(answered=0, refused=40, seconds=1.0),
    ],
    ids=["a fifth", "too few to tell", "none answered"],
)
def test_anything_else_does_not(ends: CallEnds) -> None:
    assert learn(Throttle(), ends, now=1.0) is None


def test_reports_of_several_workers_are_judged_together() -> None:
    throttle = Throttle()

    assert learn(throttle, BUSY, now=1.0, workers=4) is None
    for now in (1.1, 1.2, 1.3):
        learn(throttle, CALM, now=now, workers=4)
    # 30 of 220 were refused.
    assert throttle.rate is None


def test_clean_windows_raise_the_rate_fast_to_what_was_refused_and_then_slowly() -> None:
    throttle = Throttle(rate=10.0, refused_rate=50.0, slow_since=0.0, is_known=True, latency_s=0.1)
    rates = [learn(throttle, CALM, now=float(second)) for second in range(1, 5)]
    assert rates == pytest.approx([20.0, 40.0, 45.0, 45.0 * 1.03])

    for second in range(5, 110):
        learn(throttle, CALM, now=float(second))
    assert (throttle.rate, throttle.slow_since) == (None, None)


def test_one_window_does_not_decide_alone_how_far_a_rate_falls() -> None:
    throttle = Throttle(rate=10.0, refused_rate=11.0, slow_since=0.0)

    # Most of this window was a pause.
    learn(throttle, CallEnds(answered=10, refused=10, seconds=10.0), now=1.0)

    assert throttle.rate == pytest.approx(0.9 * (3 * 1.0 + 11.0) / 4)


def test_failures_in_a_row_let_single_calls_try_the_model_at_growing_intervals() -> None:
    shared, granted = SharedLimit(50), []
    shared.throttle.observe(CallEnds(failures=11), concurrency=50, workers=1, now=100.0)
    assert not shared.is_metered
    shared.throttle.observe(CallEnds(failures=1), concurrency=50, workers=1, now=100.0)

    now = 100.0
    while now < 110:
        found = shared.grant_starts("a", 20, now=now)
        granted += [now] * found.calls
        now += 0.1
    gaps = [later - before for before, later in pairwise(granted)]
    assert len(granted) == 6
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(2.0, abs=0.2)


def test_an_answer_ends_the_silence_and_starts_begin_slowly() -> None:
    shared = SharedLimit(50, throttle=Throttle(latency_s=0.1))
    learn(shared.throttle, CallEnds(failures=12, refused=12), now=100.0)
    assert shared.throttle.is_silent

    learn(shared.throttle, CallEnds(answered=1, seconds=0.1, latency_s=0.1), now=120.0)
    assert not shared.throttle.is_silent
    assert shared.throttle.rate == pytest.approx(50 / 0.1 / 4)


def test_what_was_learned_is_forgotten_when_nobody_has_called_for_a_while() -> None:
    shared = SharedLimit(50)
    learn(shared.throttle, BUSY, now=100.0)

    shared.expire(219.0)
    assert shared.throttle.rate is not None
    shared.expire(221.0)
    assert shared.throttle == Throttle(is_known=True)


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


@pytest.mark.parametrize("is_known", [False, True])
def test_calls_wait_for_a_silent_model_no_longer_than_their_patience(is_known: bool) -> None:
    clock = Clock()
    limiter = Limiter(clock=clock, sleep=clock.sleep)
    model = spec()

    async def session() -> tuple[list[float], ModelCallError]:
        started: list[float] = []
        if is_known:
            limiter.answered(model, started_at=clock.now)
        for call in range(1, 11):
            limiter.failed(model, AWAY, call=call, started_at=clock.now)
        await let_tasks_run()
        assert limiter.is_silent(model)
        began_at = clock.now
        while True:
            try:
                async with limiter.slot(model) as started_at:
                    started.append(started_at - began_at)
                    limiter.failed(model, AWAY, call=len(started), started_at=started_at)
            except ModelCallError as error:
                return started, error

    started, error = asyncio.run(session())
    patience_s = MAX_SILENCE_S if is_known else MAX_FIRST_SILENCE_S
    assert patience_s - 2.5 <= started[-1] <= patience_s + 2.5
    assert len(started) <= patience_s / 2 + 5
    assert (error.status, error.http_status) == (CallOutcome.SERVER_ERROR, 503)
    assert error.reason == (
        f"Server error (503). The model has answered no call for {patience_s / 60:g} min"
    )


def test_failures_of_one_call_alone_do_not_silence_a_model() -> None:
    limiter, model = Limiter(), spec()

    async def session() -> bool:
        for _ in range(30):
            limiter.failed(model, AWAY, call=7, started_at=0.0)
        await let_tasks_run()
        return limiter.is_silent(model)

    assert not asyncio.run(session())


@pytest.mark.parametrize(
    ("wish_s", "pause_s"), [(5.0, 5.0), (86_400.0, MAX_RETRY_AFTER_S), (1e30, MAX_RETRY_AFTER_S)]
)
def test_a_wish_for_a_pause_holds_calls_back_and_slows_nothing_down(
    wish_s: float, pause_s: float
) -> None:
    clock = Clock()
    limiter = Limiter(clock=clock, sleep=clock.sleep)
    wish = Failure(CallOutcome.RATE_LIMITED, "429", 429, retry_after_s=wish_s)

    async def session() -> list[float]:
        limiter.failed(spec(), wish, call=1, started_at=clock.now)
        calls = []
        for _ in range(4):
            async with limiter.slot(spec()) as started_at:
                calls.append(started_at)
        return calls

    assert asyncio.run(session()) == [1000.0 + pause_s] * 4
    assert sum(clock.slept) == pause_s


def test_requests_a_minute_are_kept_and_spread() -> None:
    clock = Clock()
    limiter = Limiter(clock=clock, sleep=clock.sleep)
    starts: list[float] = []

    async def session() -> None:
        for _ in range(7):
            async with limiter.slot(spec(requests_per_minute=4)) as started_at:
                starts.append(started_at - 1000)

    asyncio.run(session())

    # A start counts for two seconds more than a minute: so long a grant may wait to be used.
    assert [round(start) for start in starts] == [0, 0, 16, 31, 62, 62, 78]


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
