"""How many calls of a model may be in flight: falls when the server says so, rises with success."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluators.judging.specs import ModelSpec

MINUTE_S = 60.0
LEASE_RETRY_S = 1.0

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
Lease = Callable[[str, int], Awaitable[int]]
Report = Callable[[str, int, str], None]


@dataclass(slots=True)
class AdaptiveLimit:
    """How many calls may be in flight at once, between 1 and `most`.

    A 429 halves it, at most once for the calls that were in flight together. A whole window of
    successes raises it by one.
    """

    most: int
    now: int
    _cut_at: float = float("-inf")
    _successes: int = 0

    def cut(self, *, started_at: float, at: float) -> bool:
        """Halve for a refused call; False when a call started before the last cut says nothing new."""
        if started_at < self._cut_at or self.now == 1:
            return False
        self.now = max(1, self.now // 2)
        self._cut_at, self._successes = at, 0
        return True

    def succeeded(self) -> bool:
        """Count an answer; True when the limit rose."""
        if self.now >= self.most:
            return False
        self._successes += 1
        if self._successes < self.now:
            return False
        self.now += 1
        self._successes = 0
        return True


@dataclass(slots=True)
class _Gate:
    """The calls of one model in this process."""

    slug: str
    limit: AdaptiveLimit
    per_minute: int | None
    leased: int | None = None
    short_since: float | None = None
    in_flight: int = 0
    waiting: int = 0
    called: int = 0
    paused_until: float = float("-inf")
    starts: deque[float] = field(default_factory=deque)
    queue: deque[asyncio.Future[None]] = field(default_factory=deque)
    leasing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def open_slots(self) -> int:
        leased = self.limit.most if self.leased is None else self.leased
        return min(self.limit.now, leased) - self.in_flight - self.called

    @property
    def wanted(self) -> int:
        return min(self.limit.now, self.in_flight + self.waiting)

    def wait_s(self, now: float) -> float:
        """Return how long no call may start, for a pause or for the calls of the last minute."""
        pause = max(0.0, self.paused_until - now)
        if self.per_minute is None:
            return pause
        while self.starts and self.starts[0] <= now - MINUTE_S:
            self.starts.popleft()
        allowed = self.per_minute
        if self.leased is not None:
            allowed = max(1, allowed * self.leased // self.limit.most)
        if len(self.starts) < allowed:
            return pause
        return max(pause, self.starts[len(self.starts) - allowed] + MINUTE_S - now)

    def start(self, now: float) -> None:
        self.in_flight += 1
        if self.per_minute is not None:
            self.starts.append(now)

    def wake(self) -> None:
        """Call as many of the waiting as there are open slots, first come first served."""
        while self.queue and self.open_slots > 0:
            ticket = self.queue.popleft()
            if not ticket.done():
                ticket.set_result(None)
                self.called += 1

    async def wait(self, seconds: float | None) -> None:
        """Wait for a turn, at most so long."""
        ticket = asyncio.get_running_loop().create_future()
        self.queue.append(ticket)
        try:
            async with asyncio.timeout(seconds):
                await ticket
        except TimeoutError:
            return
        finally:
            if ticket.done() and not ticket.cancelled():
                self.called -= 1
            elif ticket in self.queue:
                self.queue.remove(ticket)


class Limiter:
    """Hands out slots for calls, one limit per model; one limiter serves one event loop.

    `lease(slug, wanted)` answers how many slots of the model this process may use, of those that
    all workers share; it is asked when demand outgrows the last answer and by `renew`. `report(slug, limit,
    reason)` is told when the limit changes. Without them the process has the model to itself.
    """

    def __init__(
        self,
        *,
        lease: Lease | None = None,
        report: Report | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Start with every model at its full concurrency."""
        self._lease = lease
        self._report = report
        self._clock = clock
        self._sleep = sleep
        self._gates: dict[str, _Gate] = {}

    @asynccontextmanager
    async def slot(self, spec: ModelSpec) -> AsyncIterator[float]:
        """Wait for a slot, hold it, and give it back; yields when the call started on the limiter's clock."""
        gate = self._gate(spec)
        gate.waiting += 1
        try:
            started_at = await self._enter(gate)
        finally:
            gate.waiting -= 1
            # A call cancelled in its turn passes the turn on.
            gate.wake()
        try:
            yield started_at
        finally:
            gate.in_flight -= 1
            gate.wake()

    def succeeded(self, spec: ModelSpec) -> None:
        """Note an answer."""
        gate = self._gate(spec)
        if gate.limit.succeeded():
            gate.wake()
            self._tell(gate, "")

    def rate_limited(self, spec: ModelSpec, *, started_at: float, pause_s: float) -> None:
        """Note a 429: nothing starts for so long, and fewer calls are in flight afterwards."""
        gate = self._gate(spec)
        now = self._clock()
        gate.paused_until = max(gate.paused_until, now + pause_s)
        if gate.limit.cut(started_at=started_at, at=now):
            self._tell(gate, f"429 from the server, paused for {pause_s:.1f} s")

    def set_limit(self, slug: str, limit: int) -> None:
        """Take over a limit that another worker found; unknown models are passed over."""
        gate = self._gates.get(slug)
        if gate is not None:
            gate.limit.now = max(1, min(limit, gate.limit.most))
            gate.wake()

    def limit_now(self, spec: ModelSpec) -> int:
        """Return the limit in force."""
        return self._gate(spec).limit.now

    def wanted(self) -> dict[str, int]:
        """Return by model how many slots calls in flight and waiting could use."""
        return {gate.slug: gate.wanted for gate in self._gates.values()}

    async def renew(self) -> None:
        """Lease again what every model in use needs now; call it with the heartbeat."""
        for gate in list(self._gates.values()):
            async with gate.leasing:
                await self._ask(gate)

    async def _enter(self, gate: _Gate) -> float:
        while True:
            await self._lease_for(gate)
            if gate.open_slots <= 0:
                await gate.wait(None if gate.short_since is None else LEASE_RETRY_S)
                continue
            now = self._clock()
            wait_s = gate.wait_s(now)
            if wait_s <= 0:
                gate.start(now)
                return now
            await self._sleep(wait_s)

    async def _lease_for(self, gate: _Gate) -> None:
        if self._lease is None or (gate.leased is not None and gate.leased >= gate.wanted):
            return
        # Calls that start together are counted before the first of them asks.
        await asyncio.sleep(0)
        async with gate.leasing:
            is_recent = (
                gate.short_since is not None and self._clock() < gate.short_since + LEASE_RETRY_S
            )
            if not is_recent and (gate.leased is None or gate.leased < gate.wanted):
                await self._ask(gate)

    async def _ask(self, gate: _Gate) -> None:
        if self._lease is None:
            return
        wanted = gate.wanted
        gate.leased = await self._lease(gate.slug, wanted)
        gate.short_since = self._clock() if gate.leased < wanted else None
        gate.wake()

    def _gate(self, spec: ModelSpec) -> _Gate:
        gate = self._gates.get(spec.slug)
        if gate is None:
            most = max(1, spec.concurrency)
            limit = AdaptiveLimit(most=most, now=most)
            gate = _Gate(spec.slug, limit, spec.requests_per_minute)
            self._gates[spec.slug] = gate
        return gate

    def _tell(self, gate: _Gate, reason: str) -> None:
        if self._report is not None:
            self._report(gate.slug, gate.limit.now, reason)
