"""What the processes that call one model tell one another; and one that has its models to itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from evaluators.judging.minutes import COUNTS_S, Granted, share_of

if TYPE_CHECKING:
    from evaluators.judging.specs import ModelSpec

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
