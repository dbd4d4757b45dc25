"""The rules of limits, by the real client and limiter on a jumping clock: nine providers, one and four workers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluators.model_calls.providers import (
    HANGS_S,
    OUTAGE_ENDS_S,
    Bucket,
    Evaluation,
    FixedMinute,
    Outage,
    Provider,
    Unreliable,
)

RANDOM = {"refused": 0.05, "broken": 0.05, "hanging": 0.01}
PROVIDERS = {
    "some of all": lambda: Unreliable(**RANDOM),
    "lone 429": lambda: Unreliable(refused=0.05),
    "hanging": lambda: Unreliable(hanging=0.01),
    "bucket with Retry-After": lambda: Bucket(retry_after_s=1),
    "bucket": Bucket,
    "fixed minute": FixedMinute,
    "503 for 20 s": Outage,
    "429 for 20 s": lambda: Outage(status=429),
    "half of it 503 for 20 s": lambda: Outage(share=0.5),
}
AT_ONCE = 48
OUTAGES = [name for name in PROVIDERS if "20 s" in name]
workers = pytest.mark.parametrize("workers", [1, 4])


@workers
@pytest.mark.parametrize("behaviour", PROVIDERS)
def test_every_result_gets_its_answers_and_no_limit_is_exceeded(
    behaviour: str, workers: int
) -> None:
    ended = Evaluation(PROVIDERS[behaviour](), at_once=AT_ONCE, workers=workers).run()

    assert (ended.done, ended.given_up) == (500, [])
    assert ended.most_in_flight <= AT_ONCE


@workers
def test_lone_429s_delay_only_their_own_calls(workers: int) -> None:
    calm = Evaluation(Provider(), results=1000, at_once=AT_ONCE, workers=workers).run()
    refused = Evaluation(
        Unreliable(refused=0.05), results=1000, at_once=AT_ONCE, workers=workers
    ).run()

    assert refused.ended_s <= 1.3 * calm.ended_s
    assert all(limit.throttle.rate is None for limit in refused.hub.limits.values())


@workers
def test_calls_that_hang_hold_up_no_others(workers: int) -> None:
    ended = Evaluation(Unreliable(**RANDOM), at_once=AT_ONCE, workers=workers, seed=2).run()

    # Nothing is faster than one call that hangs.
    assert ended.ended_s <= HANGS_S + 10


@workers
@pytest.mark.parametrize("behaviour", OUTAGES)
@pytest.mark.parametrize("seed", [1, 2])
def test_after_an_outage_the_rest_is_done_at_once(behaviour: str, workers: int, seed: int) -> None:
    ended = Evaluation(
        PROVIDERS[behaviour](), results=500, at_once=AT_ONCE, workers=workers, seed=seed
    ).run()

    assert ended.given_up == []
    assert ended.ended_s <= OUTAGE_ENDS_S + 6
    # Single calls try the model meanwhile: at most one a second for target and judge, each. What
    # half of the calls still reach, they reach with their second try on average.
    most_failed = 2 * 500 if "half" in behaviour else 2 * AT_ONCE + 40
    assert ended.requests <= 2 * 500 + most_failed


@workers
def test_the_first_answer_after_an_outage_lets_the_waiting_calls_of_all_workers_start(
    workers: int,
) -> None:
    ended = Evaluation(Outage(), at_once=AT_ONCE, workers=workers).run()

    times = sorted(at for model in ended.starts.values() for at in model)
    first, *others = [at for at in times if at >= OUTAGE_ENDS_S]
    assert others[AT_ONCE] - first <= 1.0


@workers
@pytest.mark.parametrize("retry_after_s", [0, 1])
def test_what_a_provider_allows_a_minute_is_used(workers: int, retry_after_s: int) -> None:
    bucket = Bucket(retry_after_s=retry_after_s)
    ended = Evaluation(bucket, results=1000, at_once=AT_ONCE, workers=workers).run()

    at_best_s = (1000 - bucket.burst) / bucket.per_minute * 60
    assert ended.ended_s <= at_best_s / 0.95
    assert ended.statuses[429] <= 0.3 * ended.requests


@workers
@pytest.mark.parametrize("loading_s", [0.0, 3.0])
def test_a_minute_is_spread_and_used(workers: int, loading_s: float) -> None:
    ended = Evaluation(
        Provider(),
        results=450,
        at_once=AT_ONCE,
        workers=workers,
        per_minute=300,
        loading_s=loading_s,
    ).run()

    starts = [at - ended.starts["target"][0] for at in ended.starts["target"]]
    assert ended.most_in_a_minute() <= 300
    assert sum(at <= 5 for at in starts) <= 0.2 * 300
    assert sum(at <= 60 for at in starts) >= 0.95 * 300
    # The rest of the second minute: none of the limit is lost.
    assert max(starts) <= 60 * 450 / 300


def test_a_provider_that_never_answers_is_given_up_after_a_minute() -> None:
    ended = Evaluation(Unreliable(broken=1.0), at_once=AT_ONCE).run()

    assert (ended.done, len(ended.given_up)) == (0, 500)
    assert 60 <= ended.ended_s <= 80
    assert ended.requests <= AT_ONCE + 60
    assert str(ended.given_up[-1].reason).startswith("Server error (500)")


@settings(deadline=None, max_examples=25)
@given(
    refused=st.floats(0, 0.6),
    broken=st.floats(0, 0.3),
    at_once=st.integers(1, 30),
    workers=st.integers(1, 3),
    per_minute=st.none() | st.integers(30, 2000),
    seed=st.integers(0, 10),
)
def test_whatever_a_provider_does_limits_hold_and_everything_ends(
    refused: float, broken: float, at_once: int, workers: int, per_minute: int | None, seed: int
) -> None:
    provider = Unreliable(refused=refused, broken=broken)
    ended = Evaluation(
        provider,
        results=40,
        at_once=max(at_once, workers),
        workers=workers,
        per_minute=per_minute,
        seed=seed,
    ).run()

    assert ended.done + len(ended.given_up) == 40
    assert ended.most_in_flight <= max(at_once, workers)
    for model in ended.starts:
        assert per_minute is None or ended.most_in_a_minute(model) <= per_minute
