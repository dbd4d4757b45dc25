"""When a failed call is tried again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evaluators.judging.answers import Failure
from evaluators.judging.calls import CallStatus

TRIES: Mapping[CallStatus, int] = {
    CallStatus.RATE_LIMITED: 10,
    CallStatus.SERVER_ERROR: 4,
    CallStatus.CONNECTION: 4,
    CallStatus.TIMEOUT: 2,
    CallStatus.UNREADABLE: 2,
}


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a client is.

    `tries` is how often a call may end each way before it is given up; a 429 counts only while the
    model answers no other call either, up to `most_refusals` of one call. Waits grow from `first_s`
    by doubling, up to `most_s`, with jitter; a server's own Retry-After counts where it is longer,
    unless it is longer than `longest_wish_s`: then the call is given up.
    """

    tries: Mapping[CallStatus, int] = field(default_factory=lambda: TRIES)
    most_refusals: int = 100
    first_s: float = 0.5
    most_s: float = 20.0
    longest_wish_s: float = 120.0
    jitter: Callable[[], float] = random.random

    def wait_s(
        self, failure: Failure, times: int, *, rounds: int = 0, in_all: int = 0
    ) -> float | None:
        """Return the wait after the nth failure in a row of this kind, None to give up.

        `rounds` is how often the model as a whole has refused since its last answer.
        """
        wish = failure.retry_after_s or 0.0
        if failure.is_final or times >= self.tries.get(failure.status, 1):
            return None
        if in_all >= self.most_refusals:
            return None
        if wish > self.longest_wish_s:
            return None
        backoff: float = min(self.most_s, self.first_s * 2 ** (max(times, rounds) - 1))
        return max(wish, backoff * (0.5 + self.jitter() / 2))


ONE_TRY = Retries(tries={})
