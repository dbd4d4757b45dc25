"""Who may start how many calls when: never more than the minute's limit, and everybody in turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.model_calls.limit_policy import (
    BEHIND_OTHERS_S,
    COUNTS_S,
    MINUTE_S,
    VALID_S,
    GrantedStarts,
    Lease,
    LimitRequest,
    SharedLimit,
)


class Minute:
    """A model's minute as all holders together use it, on a clock of its own."""

    def __init__(self, per_minute: int) -> None:
        self.now = 0.0
        self.shared = SharedLimit(1, per_minute)
        self.granted = 0

    def ask(self, holder: str, wanted: int) -> tuple[int, float]:
        self.shared.leases.setdefault(holder, Lease())
        found = self.shared.grant_starts(holder, wanted, now=self.now)
        if found.calls:
            self.granted += found.calls
            self.shared.grants[self.granted] = GrantedStarts(holder, self.now, found.calls)
        return found.calls, found.wait_s


def most_in_a_minute(starts: list[float]) -> int:
    starts = sorted(starts)
    return max(sum(begin <= one <= begin + MINUTE_S for one in starts) for begin in starts)


def test_a_tenth_of_the_minute_starts_at_once_and_the_rest_is_spread_over_it() -> None:
    minute, starts = Minute(600), [0.0]
    while minute.now < 130:
        calls, wait_s = minute.ask("a", 50)
        starts += [minute.now] * calls
        minute.now += wait_s or 0.001

    starts = starts[1:]
    assert sum(at < 1 for at in starts) in range(60, 70)
    assert sum(at < 30 for at in starts) in range(310, 360)
    assert sum(at < 60 for at in starts) == 600
    assert len(starts) >= 0.95 * 600 * 130 / 60


def test_one_worker_after_the_other_gets_its_turn_when_the_limit_is_one() -> None:
    minute = Minute(1)
    got: list[str] = []

    for _ in range(9):
        got += [holder for holder in "abc" if minute.ask(holder, 1)[0]]
        minute.now += COUNTS_S

    assert got == list("abc") * 3


def test_who_waits_longer_comes_first_and_all_share_evenly() -> None:
    minute = Minute(600)
    while minute.ask("early", 600)[0]:
        pass
    assert minute.ask("late", 600)[0] == 0
    minute.now += 2.0

    # In two seconds, the minute allows 19.
    assert minute.ask("early", 600)[0] == 9
    assert minute.ask("late", 600)[0] == 5


def test_what_others_wait_for_is_kept_for_a_moment_and_asked_for_again_soon() -> None:
    minute = Minute(2)
    minute.ask("a", 2)
    minute.ask("b", 1)
    minute.ask("c", 1)
    minute.now += COUNTS_S

    assert minute.ask("a", 2) == (0, BEHIND_OTHERS_S)
    assert minute.ask("b", 1)[0] == 1


@given(
    per_minute=st.integers(1, 200),
    asks=st.lists(
        st.tuples(st.floats(0, 45), st.sampled_from("abcd"), st.integers(1, 80)), max_size=60
    ),
    delays=st.lists(st.floats(0, VALID_S), min_size=1, max_size=7),
)
def test_no_minute_ever_holds_more_than_its_limit(
    per_minute: int, asks: list[tuple[float, str, int]], delays: list[float]
) -> None:
    minute, starts = Minute(per_minute), [0.0]

    for number, (later, holder, wanted) in enumerate(asks):
        minute.now += later
        calls, wait_s = minute.ask(holder, wanted)
        assert calls <= wanted
        assert bool(calls) != bool(wait_s)
        starts += [minute.now + delays[number % len(delays)]] * calls

    assert most_in_a_minute(starts[1:] or [0.0]) <= per_minute


@given(
    per_minute=st.integers(1, 90),
    wants=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 40), min_size=1),
)
def test_nobody_starves_and_nobody_asks_without_end(per_minute: int, wants: dict[str, int]) -> None:
    minute, got, asked = Minute(per_minute), dict.fromkeys(wants, 0), 0
    due = dict.fromkeys(wants, 0.0)

    while minute.now < 10 * COUNTS_S:
        holder = min(due, key=lambda one: (due[one], one))
        minute.now = max(minute.now, due[holder])
        calls, wait_s = minute.ask(holder, wants[holder])
        got[holder] += calls
        due[holder] = minute.now + (wait_s or 0.001)
        asked += 1

    fair = per_minute / len(wants)
    assert all(got[name] >= 10 * min(fair, wants[name]) // 2 for name in wants)
    assert asked < 40 * COUNTS_S * len(wants)


@pytest.mark.parametrize("per_minute", [60, 6000])
def test_a_minute_is_granted_in_blocks_not_by_the_call(per_minute: int) -> None:
    minute, asked = Minute(per_minute), 0
    while minute.now < 5 * COUNTS_S:
        calls, wait_s = minute.ask("a", max(1, per_minute // 20))
        asked += 1
        minute.now += wait_s if not calls else calls * 60 / per_minute / 2

    assert asked < 5 * COUNTS_S * 4
    assert minute.granted >= 4 * per_minute


def test_a_clock_that_is_set_back_holds_no_call_up() -> None:
    minute = Minute(60)
    minute.now = 7200.0
    while minute.ask("a", 60)[0]:
        pass
    minute.shared.agree("gone", LimitRequest(1, 1), now=minute.now, lease_s=15)
    minute.shared.throttle.paused_until = minute.now + 5

    minute.now -= 3600
    state = minute.shared.agree("a", LimitRequest(1, 0), now=minute.now, lease_s=15)
    assert (state.pause_s, state.slots) == (0, 1)
    assert minute.ask("a", 1)[0] == 1
