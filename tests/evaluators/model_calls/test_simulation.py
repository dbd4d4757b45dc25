"""The rules of shared limits, driven by a simulation: workers and a server in numbers, no clock, no database."""

from __future__ import annotations

import pytest

from evaluators.model_calls.limit_policy import LimitRequest, SharedLimit

LEASE_S = 15.0


class Worker:
    """A worker that always has more to call, and reports every tenth of a second."""

    def __init__(self, name: str, shared: SharedLimit) -> None:
        self.name, self.shared = name, shared
        self.slots, self.limit, self.cuts = 0, shared.limit, 0
        self.refused, self.answers = False, 0

    def report(self, now: float, *, wanted: int = 50, pause_s: float = 0.0) -> None:
        request = LimitRequest(
            wanted,
            min(self.slots, wanted),
            self.limit,
            self.cuts,
            is_refused=self.refused,
            has_earned=self.answers >= self.limit,
            pause_s=pause_s,
        )
        state = self.shared.agree(self.name, request, now=now, lease_s=LEASE_S)
        self.slots, self.limit, self.cuts = state.slots, state.limit, state.cuts
        self.answers = 0 if self.refused or request.has_earned else self.answers
        self.refused = False


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_workers_that_are_refused_come_down_to_what_the_server_takes_and_share_it_evenly(
    count: int,
) -> None:
    shared, takes = SharedLimit(64, 64), 12
    workers = [Worker(str(number), shared) for number in range(count)]
    most_in_flight, used = [], dict.fromkeys((worker.name for worker in workers), 0)

    for step in range(600):
        for worker in workers:
            worker.report(step / 10)
        in_flight = sum(worker.slots for worker in workers)
        most_in_flight.append(in_flight)
        assert in_flight <= max(shared.limit, most_in_flight[max(0, step - 1)])
        for worker in workers:
            worker.refused = in_flight > takes and worker.slots > 0
            worker.answers += worker.slots
            used[worker.name] += worker.slots

    assert max(most_in_flight[100:]) <= takes + 1
    assert sum(most_in_flight[100:]) >= 500 * takes / 2
    assert max(used.values()) <= 1.5 * min(used.values())


def test_the_share_of_a_worker_that_died_goes_to_the_others() -> None:
    shared = SharedLimit(8, 8)
    dead, alive = Worker("dead", shared), Worker("alive", shared)
    for now in (0.0, 1.0, 2.0):
        dead.report(now)
        alive.report(now)
    assert (dead.slots, alive.slots) == (4, 4)

    alive.report(10.0)
    assert alive.slots == 4
    alive.report(2.0 + LEASE_S)
    assert alive.slots == 8


def test_a_pause_holds_for_every_worker_and_is_never_shortened() -> None:
    shared = SharedLimit(8, 8)
    Worker("a", shared).report(0.0, pause_s=5.0)
    Worker("b", shared).report(1.0, pause_s=2.0)
    assert shared.paused_until == 5.0
