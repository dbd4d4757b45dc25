"""How many calls of a model may be in flight, and how many may start: pure rules, values in and values out.

Nothing here knows a clock, a database or a network: `now` is an argument, in seconds. So a simulation
can drive many workers and a server without waiting for either.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evaluators.model_calls.calls import CallOutcome, Failure

NEVER, FOREVER = float("-inf"), float("inf")

# What a client does after a failure.

TRIES: Mapping[CallOutcome, int] = {
    CallOutcome.RATE_LIMITED: 10,
    CallOutcome.SERVER_ERROR: 4,
    CallOutcome.CONNECTION: 4,
    CallOutcome.TIMEOUT: 2,
    CallOutcome.UNREADABLE: 2,
}


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a client is.

    `tries` is how often a call may end each way before it is given up; a 429 counts only while the
    model answers no other call either, up to `max_refusals` of one call. Waits double from `first_s`
    up to `max_s`, with jitter. A server's Retry-After counts where it is longer; one longer than
    `max_retry_after_s` gives the call up.
    """

    tries: Mapping[CallOutcome, int] = field(default_factory=lambda: TRIES)
    max_refusals: int = 100
    first_s: float = 0.5
    max_s: float = 20.0
    max_retry_after_s: float = 120.0
    jitter: Callable[[], float] = random.random

    def wait_s(
        self, failure: Failure, times: int, *, rounds: int = 0, in_all: int = 0
    ) -> float | None:
        """Return the wait after the nth failure in a row of this kind, None to give up.

        `rounds` is how often the model as a whole has refused since its last answer.
        """
        retry_after_s = failure.retry_after_s or 0.0
        is_tried_out = times >= self.tries.get(failure.status, 1) or in_all >= self.max_refusals
        if failure.is_final or is_tried_out or retry_after_s > self.max_retry_after_s:
            return None
        backoff: float = min(self.max_s, self.first_s * 2 ** (max(times, rounds) - 1))
        return max(retry_after_s, backoff * (0.5 + self.jitter() / 2))


ONE_TRY = Retries(tries={})


# What all workers share of one model: how many calls may be in flight, and how many may start.

MINUTE_S = 60.0
# A granted start must begin within LET_IN_S and be on its way SEND_S later, so it counts a bit longer.
LET_IN_S = 1.5
SEND_S = 0.5
VALID_S = LET_IN_S + SEND_S
COUNTS_S = MINUTE_S + VALID_S
# Once the minute is used up, starts are granted in blocks of this length: one transaction each.
BLOCK_S = 1.0
# When to ask again for starts that are kept for others, who take them in a moment.
BEHIND_OTHERS_S = 0.5
# Added to a wait so that the starts waited for have surely become free.
MARGIN_S = 0.01
# A lowered limit is forgotten when nobody has worked under it for so long.
LIMIT_MEMORY_S = 120.0


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """What a worker reports of its calls of a model, and how many slots it could use.

    It knows `limit`, lowered `cuts` times so far. `is_refused` asks to lower it once more after a
    429, `has_earned` to raise it after a window of answers. For `pause_s` the server wants no
    calls. `used` says how many calls of a grant were started, where that is not all of them.
    """

    wanted: int
    in_flight: int
    limit: int
    cuts: int
    is_refused: bool = False
    has_earned: bool = False
    pause_s: float = 0.0
    used: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitState:
    """What holds for a worker now: `slots` are its own for `valid_s`, the rest is the same for all."""

    slots: int
    limit: int
    max_limit: int
    cuts: int
    per_minute: int | None
    pause_s: float = 0.0
    valid_s: float = FOREVER


@dataclass(frozen=True, slots=True)
class QuotaGrant:
    """Calls that may be sent within VALID_S; with none of them, in how many seconds to ask again."""

    calls: int
    wait_s: float = 0.0
    grant: int = 0


@dataclass(slots=True)
class Lease:
    """The slots one worker holds, what it wants, and how many starts it waits for since when."""

    slots: int = 0
    wanted: int = 0
    expires_at: float = FOREVER
    starts_wanted: int = 0
    waits_since: float | None = None


@dataclass(slots=True)
class GrantedStarts:
    """Calls that a holder was allowed to start at a time."""

    holder: str
    at: float
    calls: int


@dataclass(slots=True)
class SharedLimit:
    """The limits of one model and everybody's part in them; stored as rows, or kept by one process alone.

    `limit` of `max_limit` calls may be in flight; it was lowered `cuts` times, last at `lowered_at`.
    """

    max_limit: int
    limit: int
    per_minute: int | None = None
    cuts: int = 0
    lowered_at: float = NEVER
    paused_until: float = NEVER
    leases: dict[str, Lease] = field(default_factory=dict)
    grants: dict[int, GrantedStarts] = field(default_factory=dict)

    def expire(self, now: float) -> None:
        """Drop leases that have run out; with the last of them an old lowered limit is forgotten.

        The workers that would raise that limit are gone, and the server may have recovered long ago.
        """
        self.leases = {name: one for name, one in self.leases.items() if one.expires_at > now}
        if not self.leases and self.lowered_at < now - LIMIT_MEMORY_S:
            self.limit = self.max_limit

    def agree(
        self, holder: str, request: LimitRequest, *, now: float, lease_s: float
    ) -> LimitState:
        """Take in what a worker reports and lease it slots; returns what holds for it."""
        self.expire(now)
        self._adapt(request, now)
        lease = self.leases.setdefault(holder, Lease())
        slots = self._share(holder, request.wanted, turn=int(now / lease_s * 3))
        # Calls in flight hold their slots until they end.
        lease.slots, lease.wanted = max(slots, request.in_flight), request.wanted
        lease.expires_at = now + lease_s
        if request.wanted <= request.in_flight:
            lease.starts_wanted = 0
        pause_s = max(0.0, self.paused_until - now)
        return LimitState(
            slots, self.limit, self.max_limit, self.cuts, self.per_minute, pause_s, lease_s
        )

    def _adapt(self, request: LimitRequest, now: float) -> None:
        """Halve the limit after a 429, raise it by one when a window of answers has earned it.

        Nobody changes it by what it learned before another lowered it.
        """
        if request.pause_s > 0:
            self.paused_until = max(self.paused_until, now + request.pause_s)
        if request.cuts != self.cuts:
            return
        if request.is_refused and self.limit > 1:
            self.limit, self.cuts, self.lowered_at = self.limit // 2, self.cuts + 1, now
        elif request.has_earned and not request.is_refused and request.limit == self.limit:
            self.limit = min(self.max_limit, self.limit + 1)

    def _share(self, holder: str, wanted: int, *, turn: int) -> int:
        """Return how many slots a holder may use: up to what it wants and no other holds.

        While another is short of slots nobody has more than an even share; slots that do not divide
        evenly go round by turns.
        """
        others = {name: one for name, one in self.leases.items() if name != holder}
        free = self.limit - sum(one.slots for one in others.values())
        share = self.limit
        if any(one.slots < one.wanted for one in others.values()):
            sharers = sorted({holder, *(name for name, one in others.items() if one.wanted)})
            share, rest = divmod(self.limit, len(sharers))
            share += (sharers.index(holder) + turn) % len(sharers) < rest
        return max(0, min(wanted, free, share))

    def grant_starts(self, holder: str, wanted: int, *, now: float) -> QuotaGrant:
        """Grant as many of the wanted starts as the minute and the others leave; the caller keeps the grant.

        Each holder has a claim to an even share of the minute: what is left of the claims of those who
        wait longer is kept for them, and nobody takes more than its share while another is owed some of
        its own. Nothing is kept from the one that waits longest, so nobody starves.
        """
        if self.per_minute is None:
            return QuotaGrant(wanted)
        self.grants = {key: one for key, one in self.grants.items() if now - one.at < COUNTS_S}
        waiting = {
            name: (one.waits_since, name)
            for name, one in self.leases.items()
            if one.expires_at > now and one.starts_wanted > 0 and one.waits_since is not None
        }
        turn = waiting.pop(holder, None)
        taken = Counter[str]()
        for grant in self.grants.values():
            taken[grant.holder] += grant.calls
        free = self.per_minute - taken.total()
        share = max(1, self.per_minute // len({holder, *taken, *waiting}))
        owed = {
            name: min(self.leases[name].starts_wanted, max(0, share - taken[name]))
            for name in waiting
        }
        before = sum(
            owed[name] for name, other in waiting.items() if other < (turn or (now, holder))
        )
        most = max(share - taken[holder], free - sum(owed.values()))
        calls = max(0, min(wanted, free - before, most))
        least = max(1, min(wanted, most, int(self.per_minute * BLOCK_S / MINUTE_S)))
        calls = calls if calls >= least else 0
        if lease := self.leases.get(holder):
            lease.starts_wanted = max(0, wanted - calls)
            # A holder that was granted some queues again behind the others.
            if calls or turn is None:
                lease.waits_since = now
        if calls:
            return QuotaGrant(calls)
        return QuotaGrant(
            0, BEHIND_OTHERS_S if free >= least else self._until_free(least - free, now)
        )

    def _until_free(self, missing: int, now: float) -> float:
        """Return in how many seconds so many calls more will have left the minute."""
        for grant in sorted(self.grants.values(), key=lambda one: one.at):
            missing -= grant.calls
            if missing <= 0:
                return max(0.0, grant.at + COUNTS_S - now) + MARGIN_S
        return COUNTS_S


# What one worker knows of the shared limits between two agreements.

# A raise to the limit that was refused the last time takes so many windows of answers.
PROBE_WINDOWS = 10
# Starts that others give back become free before the promised time, so a wait is not trusted longer.
MAX_WAIT_S = 10.0


@dataclass(slots=True)
class AdaptiveLimit:
    """How many calls all workers together may have in flight, as this one knows it.

    A 429 halves it, at most once for the calls that were in flight together. A whole window of
    answers earns one more, and PROBE_WINDOWS windows what was refused the last time.
    """

    max_limit: int
    now: int
    _cut_at: float = NEVER
    _answers: int = 0
    _refused: int = 0

    def cut(self, *, started_at: float, at: float) -> bool:
        """Halve for a refused call; False for a call from before the last cut, which says nothing new."""
        if started_at <= self._cut_at or self.now == 1:
            return False
        self.note_cut(at=at)
        self.now = max(1, self.now // 2)
        return True

    def note_cut(self, *, at: float) -> None:
        """Forget what was earned: the limit was lowered, here or by others."""
        self._cut_at, self._answers, self._refused = at, 0, self.now

    def count_answer(self, *, started_at: float) -> bool:
        """Count an answer; True when a window of them, all begun under this limit, has earned a raise."""
        if self.now >= self.max_limit or started_at <= self._cut_at:
            return False
        self._answers += 1
        windows = PROBE_WINDOWS if self.now + 1 == self._refused else 1
        if self._answers < self.now * windows:
            return False
        self._answers = 0
        return True


@dataclass(slots=True)
class StartQuota:
    """The starts this worker was granted in a model's minute.

    `unused` are grants with something left over, with the calls that were started.
    """

    left: int = 0
    ask_again_at: float = NEVER
    unused: dict[int, int] = field(default_factory=dict)
    _grant: int = 0
    _started: int = 0
    _asked_at: float = NEVER
    _until: float = NEVER

    def has_left(self, now: float) -> bool:
        """Tell whether a call may start."""
        return self.left > 0 and now < self._until

    def start(self) -> None:
        """Use one."""
        self.left -= 1
        self._started += 1

    def undo(self, *, started_at: float) -> None:
        """Take back a start without a call; one of an earlier grant is lost."""
        if started_at >= self._asked_at and self._started:
            self.left += 1
            self._started -= 1

    def pop_unused(self, now: float) -> dict[int, int]:
        """Return what is to be given back, once."""
        if self.left > 0 and now >= self._until:
            self.unused[self._grant] = self._started
            self.left = 0
        unused, self.unused = self.unused, {}
        return unused

    def wanted(self, could_start: int, now: float) -> int:
        """Return how many starts to ask for: those of now, or twice a block that was used up at once."""
        is_soon = now < self._asked_at + LET_IN_S / 2 and not self.left
        return max(could_start, 2 * self._started if is_soon else 0)

    def take(self, granted: QuotaGrant, *, asked_at: float, now: float) -> None:
        """Take what was granted, valid from when it was asked for."""
        self.left, self._started, self._grant = granted.calls, 0, granted.grant
        self._asked_at, self._until = asked_at, asked_at + LET_IN_S
        self.ask_again_at = NEVER if granted.calls else now + min(granted.wait_s, MAX_WAIT_S)
        if self.left and now >= self._until:
            self.unused[self._grant], self.left = 0, 0
