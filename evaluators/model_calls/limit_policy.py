"""How many calls of a model may be in flight, and how fast they may start: pure rules.

They use no clock, database or network: `now` is an argument, in seconds. So a simulation can drive many
workers and a server without waiting.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evaluators.model_calls.calls import CallOutcome, Failure

NEVER, FOREVER = float("-inf"), float("inf")

# What a client does after a failure.

TRIES: Mapping[CallOutcome, int] = {
    CallOutcome.RATE_LIMITED: 100,
    CallOutcome.SERVER_ERROR: 14,
    CallOutcome.CONNECTION: 14,
    CallOutcome.TIMEOUT: 2,
    CallOutcome.UNREADABLE: 2,
}
# The longest Retry-After of a server that is waited for.
MAX_RETRY_AFTER_S = 120.0
# A model that fails so may answer the same call later: the fault is its own, not the call's.
PASSING = frozenset({CallOutcome.RATE_LIMITED, CallOutcome.SERVER_ERROR, CallOutcome.CONNECTION})


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a client is.

    `tries` limits how often a call may fail in each way. Waits double from `first_s` up to `max_s`, with
    jitter. A longer Retry-After of the server applies instead, but beyond `max_retry_after_s` the call is
    given up. The waits of all tries of a 5xx together are longer than 20 s.
    """

    tries: Mapping[CallOutcome, int] = field(default_factory=lambda: TRIES)
    first_s: float = 0.25
    max_s: float = 5.0
    max_retry_after_s: float = MAX_RETRY_AFTER_S
    jitter: Callable[[], float] = random.random

    def wait_s(self, failure: Failure, times: int) -> float | None:
        """Return how long the call waits after its nth failure of this kind, None to give it up."""
        retry_after_s = failure.retry_after_s or 0.0
        is_tried_out = times >= self.tries.get(failure.status, 1)
        if failure.is_final or is_tried_out or retry_after_s > self.max_retry_after_s:
            return None
        backoff: float = min(self.max_s, self.first_s * 2 ** max(0, times - 1))
        return max(retry_after_s, backoff * (0.5 + self.jitter() / 2))


ONE_TRY = Retries(tries={})


# What all workers share: how many calls of a model may be in flight, and how fast they may start.

MINUTE_S = 60.0
# A granted call must start within LET_IN_S and be sent within SEND_S more, so it counts a bit longer.
LET_IN_S = 1.5
SEND_S = 0.5
VALID_S = LET_IN_S + SEND_S
COUNTS_S = MINUTE_S + VALID_S
# Starts are granted in blocks of this length, one transaction each.
BLOCK_S = 0.5
# So much of a minute may start at once; the rest is spread over it.
BURST_OF_MINUTE = 0.1
# When to ask again for starts that others take soon, because they have waited longer.
BEHIND_OTHERS_S = 0.25
# Added to a wait, so that the starts are certainly free afterwards.
MARGIN_S = 0.01
# What was learned is forgotten if nobody has called the model for this long.
MEMORY_S = 120.0

# The ends of calls are judged together, in windows at least this long that hold at least so many ends.
WINDOW_S = 1.0
WINDOW_ENDS = 20
# A window with fewer ends is closed after this time. They say too little to slow down: refused calls wait anyway.
MAX_WINDOW_S = 5.0
# Starts are slowed down when more than this share of a window was refused, faster again below the half of it.
MAX_REFUSED = 0.2
# How fast calls start after that, as a part of what the model answered, and what clean windows add a second.
CUT = 0.9
SLOW_START, PROBING = 2.0, 1.03
MIN_RATE = 0.1
# Failures in a row that make a model count as silent: a part of its concurrency, but not fewer than this.
SILENT_SHARE, MIN_SILENT = 0.25, 10
# Of a model whose rate was cut to what it answers, fewer say the same.
MIN_SILENT_SLOWED = 5
# A silent model is called by one call at a time, again after a time that grows.
FIRST_PROBE_S, MAX_PROBE_S, PROBE_GROWTH = 0.5, 2.0, 1.5
# How often the other calls ask whether it has answered.
SILENT_ASK_S = 0.5
# After its first answer, so much of the rate that keeps all its concurrency busy. A longer silence is an outage.
AFTER_SILENCE, OUTAGE_S = 0.25, 5.0
# How long to wait for a silent model, and for one that has never replied: its address may be wrong.
MAX_SILENCE_S, MAX_FIRST_SILENCE_S = 600.0, 60.0
# The latency of a model that has not answered yet.
UNKNOWN_LATENCY_S = 0.5
MIN_LATENCY_S = 0.05


def failures_until_silent(concurrency: int) -> int:
    """Return how many failures in a row make a model count as silent."""
    return max(MIN_SILENT, int(concurrency * SILENT_SHARE))


@dataclass(frozen=True, slots=True)
class CallEnds:
    """How the calls of one worker ended in the `seconds` since its last report.

    `failures` are those since the last answer: 429s, 5xx and lost connections, those of one call in a row counted
    once. `pause_s` is how long the server wants no calls, `reason` the last failure in a few words.
    """

    answered: int = 0
    refused: int = 0
    failures: int = 0
    seconds: float = 0.0
    latency_s: float = 0.0
    pause_s: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Throttle:
    """How fast calls of a model may start, as learned from how they end.

    Calls start freely until too many of a window are refused; then at `rate` a second, cut from `refused_rate`, what
    the model had answered. While it is `silent_since` a time, single calls try it, the next at `probe_at`. `tokens`
    are the starts saved up until `tokens_at`. A model that `is_known` has replied at least once, if only by a 429. All
    times are seconds of one clock.
    """

    rate: float | None = None
    refused_rate: float | None = None
    slow_since: float | None = None
    silent_since: float | None = None
    paused_until: float | None = None
    is_known: bool = False
    reason: str = ""
    latency_s: float | None = None
    failures: int = 0
    probe_at: float = 0.0
    probe_gap_s: float = FIRST_PROBE_S
    tokens: float = 0.0
    tokens_at: float | None = None
    answered: int = 0
    refused: int = 0
    seconds: float = 0.0
    used_at: float = 0.0

    @property
    def is_silent(self) -> bool:
        """Tell whether the model answers nobody."""
        return self.silent_since is not None

    def is_outdated(self, now: float) -> bool:
        """Tell whether nobody has called the model for so long that this is forgotten with the next call."""
        return self.used_at < now - MEMORY_S

    def forget(self) -> None:
        """Forget all but that the model is known: it was not called for long."""
        fresh = Throttle(is_known=self.is_known)
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))

    def observe(self, ends: CallEnds, *, concurrency: int, workers: int, now: float) -> None:
        """Learn from the report of one of so many `workers`."""
        self.used_at = now
        if ends.pause_s > 0:
            self.paused_until = max(self.paused_until or 0.0, now + ends.pause_s)
        self.reason = ends.reason or self.reason
        self.is_known = self.is_known or bool(ends.answered or ends.refused)
        if ends.answered:
            self._note_answers(ends, concurrency=concurrency, now=now)
        self.answered += ends.answered
        self.refused += ends.refused
        self.seconds += ends.seconds / max(1, workers)
        self._judge(concurrency=concurrency, now=now)
        self.failures += ends.failures
        many = failures_until_silent(concurrency) if self.rate is None else MIN_SILENT_SLOWED
        if self.failures >= many and not self.is_silent:
            self.silent_since, self.probe_gap_s = now, FIRST_PROBE_S
            self.probe_at = now + FIRST_PROBE_S

    def _note_answers(self, ends: CallEnds, *, concurrency: int, now: float) -> None:
        known_s = self.latency_s if self.latency_s is not None else ends.latency_s
        self.latency_s = 0.7 * known_s + 0.3 * ends.latency_s
        self.failures = 0
        if self.silent_since is None:
            return
        if now - self.silent_since >= OUTAGE_S:
            # What was learned when it began is that of the outage.
            self.rate = self.refused_rate = None
            self._begin_window()
        slow = self._full_rate(concurrency) * AFTER_SILENCE
        self._slow_down(slow if self.rate is None else min(self.rate, slow), now)
        self.silent_since = None

    def _judge(self, *, concurrency: int, now: float) -> None:
        """Close a window that is long enough, and change the rate by its share of 429s."""
        ends, seconds = self.answered + self.refused, self.seconds
        is_full = ends >= WINDOW_ENDS and seconds >= WINDOW_S
        if not is_full and seconds < MAX_WINDOW_S:
            return
        share = self.refused / ends if ends else 1.0
        if is_full and share > MAX_REFUSED and self.answered:
            answered_rate = self.answered / seconds
            # A window may hold a pause, so one alone does not say how much the model takes.
            known_rate = self.refused_rate or answered_rate
            self.refused_rate = max(answered_rate, (3 * answered_rate + known_rate) / 4)
            self._slow_down(max(MIN_RATE, CUT * self.refused_rate), now)
        elif self.rate is not None and share <= MAX_REFUSED / 2:
            self._speed_up(self.rate, seconds, concurrency)
        self._begin_window()

    def _slow_down(self, rate: float, now: float) -> None:
        self.rate, self.tokens, self.tokens_at = rate, min(self.tokens, 1.0), now
        self.slow_since = self.slow_since or now

    def _speed_up(self, rate: float, seconds: float, concurrency: int) -> None:
        """Double the rate each second up to what was last refused, then go on slowly until it is no bound."""
        top = FOREVER if self.refused_rate is None else CUT * self.refused_rate
        faster = min(rate * SLOW_START**seconds, top) if rate < top else rate * PROBING**seconds
        if faster > 2 * self._full_rate(concurrency):
            self.rate = self.refused_rate = self.slow_since = None
        else:
            self.rate = faster

    def _full_rate(self, concurrency: int) -> float:
        """Return how many calls a second keep the whole concurrency busy."""
        latency_s = UNKNOWN_LATENCY_S if self.latency_s is None else self.latency_s
        return concurrency / max(MIN_LATENCY_S, latency_s)

    def _begin_window(self) -> None:
        self.answered, self.refused, self.seconds = 0, 0, 0.0

    def start_rate(self, per_minute: int | None) -> float | None:
        """Return how many calls may start a second; None for no bound."""
        spread = None if per_minute is None else per_minute / COUNTS_S
        if self.rate is None or spread is None:
            return self.rate if spread is None else spread
        return min(self.rate, spread)

    def left(self, now: float, per_minute: int | None) -> int:
        """Return how many calls may start now: the time since the last question has added some, up to a burst."""
        rate = self.start_rate(per_minute)
        if rate is None:
            return sys.maxsize
        burst = max(2.0, rate * 2 * BLOCK_S)
        if self.rate is None and per_minute is not None:
            burst = max(burst, per_minute * BURST_OF_MINUTE)
        waited_s = FOREVER if self.tokens_at is None else max(0.0, now - self.tokens_at)
        self.tokens = min(burst, self.tokens + waited_s * rate)
        self.tokens_at = now
        # Sums of small steps miss whole numbers by a little.
        return int(self.tokens + 1e-6)

    def take(self, calls: int) -> None:
        """Use so many starts."""
        self.tokens = max(0.0, self.tokens - calls)

    def give_back(self, calls: int) -> None:
        """Return starts that were taken but not used."""
        self.tokens += calls

    def probe(self, now: float) -> None:
        """Let one call try a silent model; the next one comes later."""
        self.probe_gap_s = min(MAX_PROBE_S, self.probe_gap_s * PROBE_GROWTH)
        self.probe_at = now + self.probe_gap_s


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """A worker's report on its calls of a model, and how many slots it could use.

    `used` says how many calls were started of grants that were not used up.
    """

    wanted: int
    in_flight: int
    ends: CallEnds = CallEnds()
    used: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitState:
    """The limits for a worker: `slots` are its own for `valid_s`, the rest is shared by all.

    With `is_metered` each start must be granted. A model that `is_silent` answers nobody now; `is_known` tells
    whether it has ever replied.
    """

    slots: int
    concurrency: int
    is_metered: bool = False
    is_silent: bool = False
    is_known: bool = False
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

    No more than `concurrency` calls are in flight, and no more than `per_minute` start in 60 seconds.
    """

    concurrency: int
    per_minute: int | None = None
    throttle: Throttle = field(default_factory=Throttle)
    leases: dict[str, Lease] = field(default_factory=dict)
    grants: dict[int, GrantedStarts] = field(default_factory=dict)

    @property
    def is_metered(self) -> bool:
        """Tell whether starts must be granted."""
        return self.throttle.is_silent or self.throttle.start_rate(self.per_minute) is not None

    def expire(self, now: float) -> None:
        """Drop expired leases; after the last one, forget what was learned long ago.

        No worker is left to learn more, and the server may have recovered since. If the clock was set back, all
        is forgotten: it is dated later, and would hold calls up until then.
        """
        if self.throttle.used_at > now + COUNTS_S:
            self.leases = {}
            self.throttle.forget()
        self.leases = {name: lease for name, lease in self.leases.items() if lease.expires_at > now}
        if not self.leases and self.throttle.is_outdated(now):
            self.throttle.forget()

    def agree(
        self, holder: str, request: LimitRequest, *, now: float, lease_s: float
    ) -> LimitState:
        """Process a worker's report, lease it slots, and return its limits."""
        self.expire(now)
        lease = self.leases.setdefault(holder, Lease())
        others = (other for name, other in self.leases.items() if name != holder and other.wanted)
        self.throttle.observe(
            request.ends,
            concurrency=self.concurrency,
            workers=1 + sum(1 for _ in others),
            now=now,
        )
        slots = self._share(holder, request.wanted, turn=int(now / lease_s * 3))
        # Calls in flight hold their slots until they end.
        lease.slots, lease.wanted = max(slots, request.in_flight), request.wanted
        lease.expires_at = now + lease_s
        if request.wanted <= request.in_flight:
            lease.starts_wanted = 0
        throttle = self.throttle
        return LimitState(
            slots,
            self.concurrency,
            is_metered=self.is_metered,
            is_silent=throttle.is_silent,
            is_known=throttle.is_known,
            pause_s=max(0.0, (throttle.paused_until or now) - now),
            valid_s=lease_s,
        )

    def _share(self, holder: str, wanted: int, *, turn: int) -> int:
        """Return how many slots a holder may use: as many as it wants and no other holds.

        While another holder is short of slots, nobody gets more than an even share. The slots that do not
        divide evenly rotate.
        """
        others = {name: lease for name, lease in self.leases.items() if name != holder}
        free = self.concurrency - sum(lease.slots for lease in others.values())
        share = self.concurrency
        if any(lease.slots < lease.wanted for lease in others.values()):
            sharers = sorted({holder, *(name for name, lease in others.items() if lease.wanted)})
            share, rest = divmod(self.concurrency, len(sharers))
            share += (sharers.index(holder) + turn) % len(sharers) < rest
        return max(0, min(wanted, free, share))

    def grant_starts(self, holder: str, wanted: int, *, now: float) -> QuotaGrant:
        """Grant as many of the wanted starts as the model and the others allow; the caller stores the grant.

        A silent model gets one call at a time. Otherwise the starts come in blocks, as the rate and the minute
        allow, in even shares to all that wait: those that wait longer than the holder get theirs first.
        """
        throttle = self.throttle
        until = max(throttle.paused_until or 0.0, throttle.probe_at if throttle.is_silent else 0.0)
        if until > now:
            wait_s = until - now + MARGIN_S
            return QuotaGrant(0, min(wait_s, SILENT_ASK_S) if throttle.is_silent else wait_s)
        self.grants = {
            key: entry for key, entry in self.grants.items() if abs(now - entry.at) < COUNTS_S
        }
        minute = self._left_of_minute()
        if throttle.is_silent:
            if minute < 1:
                return QuotaGrant(0, self._until_free(1, now))
            throttle.probe(now)
            return QuotaGrant(1)
        rate = throttle.start_rate(self.per_minute)
        return QuotaGrant(wanted) if rate is None else self._grant_at(rate, holder, wanted, now)

    def _grant_at(self, rate: float, holder: str, wanted: int, now: float) -> QuotaGrant:
        minute, tokens = self._left_of_minute(), self.throttle.left(now, self.per_minute)
        waiting = {
            name: (entry.waits_since, name)
            for name, entry in self.leases.items()
            if entry.expires_at > now and entry.starts_wanted > 0 and entry.waits_since is not None
        }
        turn = waiting.pop(holder, None)
        free = min(minute, tokens)
        share = max(1, free // (len(waiting) + 1))
        earlier = [name for name, other in waiting.items() if other < (turn or (now, holder))]
        reserved = sum(min(share, self.leases[name].starts_wanted) for name in earlier)
        block = max(1, min(wanted, int(rate * BLOCK_S) // (len(waiting) + 1)))
        calls = max(0, min(wanted, free - reserved, share if waiting else free))
        calls = calls if calls >= block else 0
        if lease := self.leases.get(holder):
            lease.starts_wanted = max(0, wanted - calls)
            # After a grant, a holder goes to the end of the queue.
            if calls or turn is None:
                lease.waits_since = now
        if calls:
            self.throttle.take(calls)
            return QuotaGrant(calls)
        if free >= block:
            return QuotaGrant(0, BEHIND_OTHERS_S)
        until_rate_s = (block - self.throttle.tokens) / rate + MARGIN_S
        until_minute_s = self._until_free(block - minute, now) if minute < block else 0.0
        return QuotaGrant(0, max(until_rate_s, until_minute_s))

    def _left_of_minute(self) -> int:
        """Return how many calls may still start in this minute; a large number without a limit."""
        if self.per_minute is None:
            return sys.maxsize
        return self.per_minute - sum(grant.calls for grant in self.grants.values())

    def _until_free(self, missing: int, now: float) -> float:
        """Return the seconds until this many more calls have left the minute."""
        for grant in sorted(self.grants.values(), key=lambda entry: entry.at):
            missing -= grant.calls
            if missing <= 0:
                return max(0.0, grant.at + COUNTS_S - now) + MARGIN_S
        return COUNTS_S


# What one worker knows about the shared limits between two agreements.

# Others may return starts before the promised time, so no wait is longer.
MAX_WAIT_S = 10.0


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
