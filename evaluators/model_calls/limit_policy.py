"""How many calls of a model may be in flight, and how many may start: pure rules.

They use no clock, database or network: `now` is an argument, in seconds. So a simulation can drive many
workers and a server without waiting.
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

    `tries` limits how often a call may fail in each way. A 429 counts only while the model answers no other
    call either, up to `max_refusals` of one call. Waits double from `first_s` up to `max_s`, with jitter. A
    longer Retry-After of the server applies instead, but beyond `max_retry_after_s` the call is given up.
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
        """Return how long to wait after the nth failure of this kind in a row, None to give up.

        `rounds` counts the refusals of the whole model since its last answer.
        """
        retry_after_s = failure.retry_after_s or 0.0
        is_tried_out = times >= self.tries.get(failure.status, 1) or in_all >= self.max_refusals
        if failure.is_final or is_tried_out or retry_after_s > self.max_retry_after_s:
            return None
        backoff: float = min(self.max_s, self.first_s * 2 ** (max(times, rounds) - 1))
        return max(retry_after_s, backoff * (0.5 + self.jitter() / 2))


ONE_TRY = Retries(tries={})


# What all workers share: how many calls of a model may be in flight, and how many may start.

MINUTE_S = 60.0
# A granted call must start within LET_IN_S and be sent within SEND_S more, so it counts a bit longer.
LET_IN_S = 1.5
SEND_S = 0.5
VALID_S = LET_IN_S + SEND_S
COUNTS_S = MINUTE_S + VALID_S
# Once the minute is used up, starts are granted in blocks of this length, one transaction each.
BLOCK_S = 1.0
# When to ask again for starts that are reserved for others, who will take them soon.
BEHIND_OTHERS_S = 0.5
# Added to a wait, so that the starts are certainly free afterwards.
MARGIN_S = 0.01
# A lowered limit is forgotten if nobody has used it for this long.
LIMIT_MEMORY_S = 120.0


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """A worker's report on its calls of a model, and how many slots it could use.

    The worker knows the `limit`, which was lowered `cuts` times so far. `is_refused` asks to lower it once
    more after a 429, `has_earned` to raise it after a window of answers. For `pause_s` the server wants no
    calls. `used` says how many calls were started of grants that were not used up.
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
    """The limits for a worker: `slots` are its own for `valid_s`, the rest is shared by all."""

    slots: int
    limit: int
    max_limit: int
    cuts: int
    per_minute: int | None
    pause_s: float = 0.0
    valid_s: float = FOREVER


@dataclass(frozen=True, slots=True)
class QuotaGrant:
    """Calls that may be sent within VALID_S; without any, the seconds until the next request."""

    calls: int
    wait_s: float = 0.0
    grant: int = 0


@dataclass(slots=True)
class Lease:
    """The slots that one worker holds and wants, and how many starts it waits for since when."""

    slots: int = 0
    wanted: int = 0
    expires_at: float = FOREVER
    starts_wanted: int = 0
    waits_since: float | None = None


@dataclass(slots=True)
class GrantedStarts:
    """Calls that a holder was allowed to start at one time."""

    holder: str
    at: float
    calls: int


@dataclass(slots=True)
class SharedLimit:
    """The limits of one model and the share of every worker; stored as rows, or kept in one process.

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
        """Drop expired leases; after the last one, forget a limit that was lowered long ago.

        No worker is left to raise that limit, and the server may have recovered since.
        """
        self.leases = {name: lease for name, lease in self.leases.items() if lease.expires_at > now}
        if not self.leases and self.lowered_at < now - LIMIT_MEMORY_S:
            self.limit = self.max_limit

    def agree(
        self, holder: str, request: LimitRequest, *, now: float, lease_s: float
    ) -> LimitState:
        """Process a worker's report, lease it slots, and return its limits."""
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
        """Halve the limit after a 429, raise it by one after a window of answers.

        Reports from before the last time it was lowered do not change it.
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
        """Return how many slots a holder may use: as many as it wants and no other holds.

        While another holder is short of slots, nobody gets more than an even share. The slots that do not
        divide evenly rotate.
        """
        others = {name: lease for name, lease in self.leases.items() if name != holder}
        free = self.limit - sum(lease.slots for lease in others.values())
        share = self.limit
        if any(lease.slots < lease.wanted for lease in others.values()):
            sharers = sorted({holder, *(name for name, lease in others.items() if lease.wanted)})
            share, rest = divmod(self.limit, len(sharers))
            share += (sharers.index(holder) + turn) % len(sharers) < rest
        return max(0, min(wanted, free, share))

    def grant_starts(self, holder: str, wanted: int, *, now: float) -> QuotaGrant:
        """Grant as many of the wanted starts as the minute and the others allow; the caller stores the grant.

        Each holder is entitled to an even share of the minute. The unused shares of holders that wait longer
        are reserved for them, and nobody takes more than its share while another is owed part of its own.
        The holder that waits longest is never held back, so nobody starves.
        """
        if self.per_minute is None:
            return QuotaGrant(wanted)
        self.grants = {
            key: entry for key, entry in self.grants.items() if now - entry.at < COUNTS_S
        }
        waiting = {
            name: (entry.waits_since, name)
            for name, entry in self.leases.items()
            if entry.expires_at > now and entry.starts_wanted > 0 and entry.waits_since is not None
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
        reserved = sum(
            owed[name] for name, other in waiting.items() if other < (turn or (now, holder))
        )
        maximum = max(share - taken[holder], free - sum(owed.values()))
        calls = max(0, min(wanted, free - reserved, maximum))
        minimum = max(1, min(wanted, maximum, int(self.per_minute * BLOCK_S / MINUTE_S)))
        calls = calls if calls >= minimum else 0
        if lease := self.leases.get(holder):
            lease.starts_wanted = max(0, wanted - calls)
            # After a grant, a holder goes to the end of the queue.
            if calls or turn is None:
                lease.waits_since = now
        if calls:
            return QuotaGrant(calls)
        return QuotaGrant(
            0, BEHIND_OTHERS_S if free >= minimum else self._until_free(minimum - free, now)
        )

    def _until_free(self, missing: int, now: float) -> float:
        """Return the seconds until this many more calls have left the minute."""
        for grant in sorted(self.grants.values(), key=lambda entry: entry.at):
            missing -= grant.calls
            if missing <= 0:
                return max(0.0, grant.at + COUNTS_S - now) + MARGIN_S
        return COUNTS_S


# What one worker knows about the shared limits between two agreements.

# Windows of answers that it takes to raise the limit to a value that was refused last time.
PROBE_WINDOWS = 10
# Others may return starts before the promised time, so no wait is longer.
MAX_WAIT_S = 10.0


@dataclass(slots=True)
class AdaptiveLimit:
    """The limit on calls in flight of all workers, as this one knows it.

    A 429 halves it, once for all calls that were in flight together. A whole window of answers raises it by
    one; it takes PROBE_WINDOWS windows to reach a limit that was refused last time.
    """

    max_limit: int
    now: int
    _cut_at: float = NEVER
    _answers: int = 0
    _refused: int = 0

    def cut(self, *, started_at: float, at: float) -> bool:
        """Halve the limit for a refused call; False for a call that started before the last cut."""
        if started_at <= self._cut_at or self.now == 1:
            return False
        self.note_cut(at=at)
        self.now = max(1, self.now // 2)
        return True

    def note_cut(self, *, at: float) -> None:
        """Forget the answers so far, because the limit was lowered here or by others."""
        self._cut_at, self._answers, self._refused = at, 0, self.now

    def count_answer(self, *, started_at: float) -> bool:
        """Count an answer; True if a window of calls started under this limit has earned a raise."""
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
    """The starts that this worker was granted in a model's minute.

    `unused` holds the number of started calls for grants that were not used up.
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
        """Use one start."""
        self.left -= 1
        self._started += 1

    def undo(self, *, started_at: float) -> None:
        """Take back a start that had no call; a start of an earlier grant is lost."""
        if started_at >= self._asked_at and self._started:
            self.left += 1
            self._started -= 1

    def pop_unused(self, now: float) -> dict[int, int]:
        """Return the unused grants, once."""
        if self.left > 0 and now >= self._until:
            self.unused[self._grant] = self._started
            self.left = 0
        unused, self.unused = self.unused, {}
        return unused

    def wanted(self, could_start: int, now: float) -> int:
        """Return how many starts to ask for: as many as could start, or twice a block that was used up at once."""
        is_soon = now < self._asked_at + LET_IN_S / 2 and not self.left
        return max(could_start, 2 * self._started if is_soon else 0)

    def take(self, granted: QuotaGrant, *, asked_at: float, now: float) -> None:
        """Take a grant, valid from the time of the request."""
        self.left, self._started, self._grant = granted.calls, 0, granted.grant
        self._asked_at, self._until = asked_at, asked_at + LET_IN_S
        self.ask_again_at = NEVER if granted.calls else now + min(granted.wait_s, MAX_WAIT_S)
        if self.left and now >= self._until:
            self.unused[self._grant], self.left = 0, 0
