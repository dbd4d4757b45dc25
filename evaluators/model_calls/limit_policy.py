"""How many calls of a model may be in flight and start: pure rules, driven by a clock and an agreement from outside."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from evaluators.model_calls.calls import CallStatus, Failure

if TYPE_CHECKING:
    from evaluators.model_calls.models import ModelSpec


NEVER = float("-inf")
PROBE = 10


@dataclass(slots=True)
class AdaptiveLimit:
    """How many calls of a model all processes together may have in flight, as this one knows it.

    A 429 halves it, at most once for the calls that were in flight together. A whole window of
    answers earns one more, and PROBE windows what was refused the last time.
    """

    most: int
    now: int
    _cut_at: float = NEVER
    _answers: int = 0
    _refused: int = 0

    def cut(self, *, started_at: float, at: float) -> bool:
        """Halve for a refused call; False when a call started before the last cut says nothing new."""
        if started_at <= self._cut_at or self.now == 1:
            return False
        self.was_cut(at=at)
        self.now = max(1, self.now // 2)
        return True

    def was_cut(self, *, at: float) -> None:
        """Forget what was earned: the limit was lowered, here or by others."""
        self._cut_at, self._answers, self._refused = at, 0, self.now

    def answered(self, *, started_at: float) -> bool:
        """Count an answer; True when a window of them, all begun under this limit, has earned a raise."""
        if self.now >= self.most or started_at <= self._cut_at:
            return False
        self._answers += 1
        windows = PROBE if self.now + 1 == self._refused else 1
        if self._answers < self.now * windows:
            return False
        self._answers = 0
        return True


MINUTE_S = 60.0
LET_IN_S = 1.5
SEND_S = 0.5
VALID_S = LET_IN_S + SEND_S
COUNTS_S = MINUTE_S + VALID_S
# When the minute is used up, starts are handed on by so many seconds' worth: one transaction each.
BLOCK_S = 1.0
# What came free is another's: it has been told so and takes it in a moment.
BEHIND_OTHERS_S = 0.5
# So that what is waited for has surely come free.
LATER_S = 0.01


@dataclass(frozen=True, slots=True)
class Granted:
    """Calls that a holder was allowed to start so many seconds ago."""

    holder: str
    age_s: float
    calls: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another holder that waits for starts, in the order of `since`."""

    holder: str
    calls: int
    since: float


def share_of(
    holder: str,
    wanted: int,
    *,
    per_minute: int,
    granted: Sequence[Granted],
    others: Sequence[Waiting] = (),
    since: float = float("inf"),
) -> tuple[int, float]:
    """Return how many calls a holder may start now, and in how many seconds to ask again when none.

    `granted` are the grants younger than COUNTS_S, `others` who else waits; `since` is when this
    holder began to. Each has a claim to an even share of the minute: what is left of the claims of
    those who wait longer is kept for them, and nobody takes more than its share while another is
    owed some of its own. The longest waiting is kept from nothing, so nobody starves.
    """
    taken = Counter[str]()
    for grant in granted:
        taken[grant.holder] += grant.calls
    free = per_minute - taken.total()
    share = max(1, per_minute // len({holder, *taken, *(one.holder for one in others)}))
    owed = {one: min(one.calls, max(0, share - taken[one.holder])) for one in others}
    before = sum(calls for one, calls in owed.items() if (one.since, one.holder) < (since, holder))
    most = max(share - taken[holder], free - sum(owed.values()))
    calls = max(0, min(wanted, free - before, most))
    least = max(1, min(wanted, most, int(per_minute * BLOCK_S / MINUTE_S)))
    if calls >= least:
        return calls, 0.0
    if free >= least:
        return 0, BEHIND_OTHERS_S
    return 0, _until_free(granted, least - free)


def _until_free(granted: Sequence[Granted], missing: int) -> float:
    """Return in how many seconds so many calls more will have left the minute."""
    for grant in sorted(granted, key=lambda one: -one.age_s):
        missing -= grant.calls
        if missing <= 0:
            return max(0.0, COUNTS_S - grant.age_s) + LATER_S
    return COUNTS_S


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


Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a process tells of its calls of a model, and how many slots it could use.

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
class Standing:
    """What holds for a model now: `slots` are this process's for `valid_s`, the rest is everybody's."""

    slots: int
    limit: int
    most: int
    cuts: int
    per_minute: int | None
    pause_s: float = 0.0
    valid_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Starts:
    """So many calls that may be sent within VALID_S; with none of them, in how many seconds to ask again."""

    calls: int
    wait_s: float = 0.0
    grant: int = 0


class Sharing(Protocol):
    """How a process agrees with the others that call the same models."""

    async def agree(self, spec: ModelSpec, ask: Ask) -> Standing:
        """Tell and ask; return what holds now."""
        ...

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> Starts:
        """Return how many of the wanted calls may start, of those a minute may hold."""
        ...

    async def leave(self, used: Mapping[int, int]) -> None:
        """Give everything back."""
        ...


def changed_limit(limit: int, cuts: int, ask: Ask, *, most: int) -> tuple[int, int]:
    """Return the limit after what a process asks for, and how often it was lowered then.

    Nobody lowers or raises by what it learned before another lowered the limit.
    """
    if ask.cuts == cuts and ask.is_refused and limit > 1:
        return limit // 2, cuts + 1
    if ask.cuts == cuts and ask.has_earned and not ask.is_refused and ask.limit == limit:
        return min(most, limit + 1), cuts
    return limit, cuts


@dataclass(slots=True)
class _Own:
    limit: int
    cuts: int = 0
    grants: dict[int, tuple[float, int]] = field(default_factory=dict)


class Alone:
    """The sharing of a process that nobody shares with."""

    def __init__(self, clock: Clock) -> None:
        """Know no model yet."""
        self._clock = clock
        self._models: dict[str, _Own] = {}
        self._grants = 0

    async def agree(self, spec: ModelSpec, ask: Ask) -> Standing:
        """Return what holds after the ask."""
        own, most = self._own(spec), max(1, spec.concurrency)
        own.limit, own.cuts = changed_limit(own.limit, own.cuts, ask, most=most)
        self._settle(own, ask.used)
        return Standing(most, own.limit, most, own.cuts, spec.requests_per_minute)

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> Starts:
        """Return how many calls may start."""
        own, now = self._own(spec), self._clock()
        self._settle(own, used)
        own.grants = {n: one for n, one in own.grants.items() if now - one[0] < COUNTS_S}
        granted = [Granted("", now - at, calls) for at, calls in own.grants.values()]
        per_minute = spec.requests_per_minute or wanted
        calls, wait_s = share_of("", wanted, per_minute=per_minute, granted=granted)
        if calls:
            self._grants += 1
            own.grants[self._grants] = (now, calls)
        return Starts(calls, wait_s, self._grants)

    async def leave(self, used: Mapping[int, int]) -> None:
        """Give nothing back: nobody else waits."""

    def _own(self, spec: ModelSpec) -> _Own:
        return self._models.setdefault(spec.slug, _Own(max(1, spec.concurrency)))

    def _settle(self, own: _Own, used: Mapping[int, int]) -> None:
        for grant, calls in used.items():
            if grant in own.grants:
                own.grants[grant] = (own.grants[grant][0], calls)


# Starts that others give back come free before the time they were promised for.
LOOK_AGAIN_S = 10.0


@dataclass(slots=True)
class Allowance:
    """The starts this process was granted in a model's minute.

    `used` are grants of which something is left over, with the calls that were started.
    """

    left: int = 0
    again_at: float = NEVER
    used: dict[int, int] = field(default_factory=dict)
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
        """Take back a start of which no call came; one of an earlier grant is let go."""
        if started_at >= self._asked_at and self._started:
            self.left += 1
            self._started -= 1

    def settle(self, now: float) -> None:
        """Note what is left over of a grant that is void."""
        if self.left > 0 and now >= self._until:
            self.used[self._grant] = self._started
            self.left = 0

    def taken_used(self, now: float) -> dict[int, int]:
        """Return what is to be given back, once."""
        self.settle(now)
        used, self.used = self.used, {}
        return used

    def wanted(self, could_start: int, now: float) -> int:
        """Return how many starts to ask for: those of now, or twice the block that was used up soon."""
        is_soon = now < self._asked_at + LET_IN_S / 2 and not self.left
        return max(could_start, 2 * self._started if is_soon else 0)

    def take(self, starts: Starts, *, asked_at: float, now: float) -> None:
        """Take what was granted, valid from when it was asked for."""
        self.left, self._started, self._grant = starts.calls, 0, starts.grant
        self._asked_at, self._until = asked_at, asked_at + LET_IN_S
        self.again_at = now + min(starts.wait_s, LOOK_AGAIN_S) if not starts.calls else NEVER
        if starts.calls:
            self.settle(now)
