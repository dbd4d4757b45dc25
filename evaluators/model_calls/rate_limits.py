"""The limits of each model in one process: which calls are in, which wait, and what lets them in."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from evaluators.model_calls.limit_policy import (
    SEND_S,
    VALID_S,
    AdaptiveLimit,
    Allowance,
    Alone,
    Ask,
    Clock,
    Sharing,
    Standing,
)
from evaluators.model_calls.models import ModelSpec

NEVER = float("-inf")
# How long to wait before asking again for slots that others hold.
ASK_AGAIN_S = 1.0
# A pause that grows by less is not worth telling the others.
PAUSE_GRAIN_S = 0.5


@dataclass(slots=True, eq=False)
class ConcurrencyLimiter:
    """The calls of one model in this process, and what was last agreed with the others."""

    spec: ModelSpec
    limit: AdaptiveLimit
    minute: Allowance | None = None
    in_flight: int = 0
    slots: int = 0
    queue: deque[asyncio.Future[float]] = field(default_factory=deque)
    paused_until: float = NEVER
    is_refused: bool = False
    has_earned: bool = False
    answered_at: float = NEVER
    refused_at: float = NEVER
    rounds: int = 0
    talking: asyncio.Lock = field(default_factory=asyncio.Lock)
    attendant: asyncio.Task[None] | None = None
    teller: asyncio.Task[None] | None = None
    _held: int = 0
    _cuts: int | None = None
    _agreed_until: float = NEVER
    _ask_again_at: float = NEVER
    _pause_told: float = NEVER

    @property
    def open_slots(self) -> int:
        """Return how many more calls may be in flight."""
        return min(self.limit.now, self.slots) - self.in_flight

    @property
    def wanted(self) -> int:
        """Return how many slots the calls in flight and waiting could use."""
        return min(self.limit.now, self.in_flight + len(self.queue))

    @property
    def is_waited_for(self) -> bool:
        """Tell whether calls wait here, or others for slots that are held and not used any more."""
        return bool(self.queue) or self._is_over

    @property
    def has_news(self) -> bool:
        """Tell whether the others should hear something now."""
        is_longer = self.paused_until > self._pause_told + PAUSE_GRAIN_S
        return self.is_refused or self.has_earned or is_longer

    @property
    def _is_short(self) -> bool:
        return bool(self.queue) and self.slots < self.wanted

    @property
    def _is_over(self) -> bool:
        return self._held > max(self.slots, self.in_flight)

    def is_open(self, now: float) -> bool:
        """Tell whether a call may start."""
        return (
            self.open_slots > 0
            and now < self._agreed_until
            and now >= self.paused_until
            and (self.minute is None or self.minute.has_left(now))
        )

    def enter(self, now: float) -> bool:
        """Let a call in unless others wait before it; True when it is in."""
        if self.queue or not self.is_open(now):
            return False
        self._begin()
        return True

    def admit(self, now: float) -> None:
        """Let in as many of the waiting as may start, first come first served."""
        while self.queue and self.is_open(now):
            ticket = self.queue.popleft()
            if not ticket.done():
                self._begin()
                ticket.set_result(now)

    def _begin(self) -> None:
        self.in_flight += 1
        if self.minute is not None:
            self.minute.start()

    def undo(self, *, started_at: float) -> None:
        """Take back a start of which no call came."""
        if self.minute is not None:
            self.minute.undo(started_at=started_at)

    def fail(self, error: Exception) -> None:
        """Let everybody who waits know that waiting is of no use."""
        while self.queue:
            ticket = self.queue.popleft()
            if not ticket.done():
                ticket.set_exception(error)

    def must_agree(self, now: float) -> bool:
        """Tell whether the others have to be asked before calls can start."""
        if now >= self._agreed_until:
            return True
        return (self._is_short or self._is_over) and now >= self._ask_again_at

    def lacks_starts(self, now: float) -> bool:
        """Tell whether calls wait for nothing but the minute, and it may be asked for."""
        return (
            self.minute is not None
            and bool(self.queue)
            and self.open_slots > 0
            and now >= max(self.paused_until, self.minute.again_at)
            and not self.minute.has_left(now)
        )

    def wait_s(self, now: float) -> float | None:
        """Return after how long something may change by itself; None when only a call's end can tell."""
        times = []
        is_paused = now < self.paused_until
        if self.queue and now >= self._agreed_until:
            times.append(now)
        if self._is_over or (self._is_short and not is_paused):
            times.append(self._ask_again_at)
        if self.queue and is_paused:
            times.append(self.paused_until)
        elif self.queue and self.open_slots > 0 and self.minute is not None:
            times.append(self.minute.again_at)
        return max(0.0, min(times) - now) if times else None

    def ask(self, now: float) -> Ask:
        """Return what the others are told and asked; news are told once."""
        pause_s = max(0.0, self.paused_until - now) if self.paused_until > self._pause_told else 0.0
        ask = Ask(
            wanted=self.wanted,
            in_flight=self.in_flight,
            limit=self.limit.now,
            cuts=self._cuts or 0,
            is_refused=self.is_refused,
            has_earned=self.has_earned,
            pause_s=pause_s,
            used=self.minute.taken_used(now) if self.minute is not None else {},
        )
        self._pause_told = self.paused_until
        self.is_refused = self.has_earned = False
        return ask

    def take(self, standing: Standing, ask: Ask, *, asked_at: float, now: float) -> None:
        """Take over what holds; slots are valid from when they were asked for."""
        if self._cuts not in (None, standing.cuts) and not ask.is_refused:
            self.limit.was_cut(at=now)
        self._cuts, self.limit.most = standing.cuts, standing.most
        # A 429 that came while the others were asked has lowered the limit below what they know.
        least = self.limit.now if self.is_refused else standing.limit
        self.limit.now = min(least, standing.limit)
        self.slots, self._held = standing.slots, max(standing.slots, ask.in_flight)
        self._agreed_until = asked_at + standing.valid_s
        is_unsettled = self._is_short or self._held > self.slots
        self._ask_again_at = asked_at + ASK_AGAIN_S if is_unsettled else NEVER
        self.paused_until = max(self.paused_until, now + standing.pause_s)
        self._pause_told = max(self._pause_told, now + standing.pause_s)
        if standing.per_minute is None:
            self.minute = None
        elif self.minute is None:
            self.minute = Allowance()


logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]


class Limiter:
    """Hands out slots for calls, one gate per model; one limiter serves one event loop.

    `sharing` agrees with the other processes that call the same models; without it this one has
    them to itself. It is asked when demand outgrows what was agreed, told of every change of a
    limit, and asked by `renew`, which is to be called with the heartbeat.
    """

    def __init__(
        self,
        sharing: Sharing | None = None,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Know no model yet."""
        self._sharing = sharing or Alone(clock)
        self._clock = clock
        self._sleep = sleep
        self._gates: dict[str, ConcurrencyLimiter] = {}
        self._refusal: Exception | None = None

    @asynccontextmanager
    async def slot(self, spec: ModelSpec) -> AsyncIterator[float]:
        """Wait for a slot, hold it, and give it back; yields when the call started on the limiter's clock.

        Raises what calls were turned away with.
        """
        if self._refusal is not None:
            raise self._refusal
        gate = self._gate(spec)
        started_at = self._clock()
        if not gate.enter(started_at):
            started_at = await self._wait(gate)
        try:
            yield started_at
        except Exception:
            # A call that was made ends in an answer or a failure: this one was refused before.
            gate.undo(started_at=started_at)
            raise
        finally:
            self._leave(gate)

    def is_late(self, spec: ModelSpec, *, started_at: float) -> bool:
        """Tell whether a call that was held up since it was let in has missed its place in the minute."""
        gate = self._gate(spec)
        return gate.minute is not None and self._clock() > started_at + SEND_S

    async def start_again(self, spec: ModelSpec) -> float:
        """Wait for another place in the minute for a call that missed its own; return when it starts.

        Raises what calls were turned away with.
        """
        while True:
            if self._refusal is not None:
                raise self._refusal
            asked_at = self._clock()
            starts = await self._sharing.starts(spec, 1, {})
            if starts.calls and self._clock() <= asked_at + VALID_S:
                return asked_at
            await self._sleep(starts.wait_s)

    def succeeded(self, spec: ModelSpec, *, started_at: float) -> None:
        """Note an answer."""
        gate = self._gate(spec)
        gate.answered_at, gate.rounds = self._clock(), 0
        if gate.limit.answered(started_at=started_at):
            gate.has_earned = True
            self._tell(gate)

    def refused(self, spec: ModelSpec, *, started_at: float) -> tuple[int, float]:
        """Count a 429; return how many rounds of them came since the model last answered, and when it did.

        Those of calls that were in flight together are one round.
        """
        gate = self._gate(spec)
        if started_at > gate.refused_at:
            gate.rounds += 1
            gate.refused_at = self._clock()
        return max(1, gate.rounds), gate.answered_at

    def rate_limited(self, spec: ModelSpec, *, started_at: float, pause_s: float) -> None:
        """Note a 429: nothing starts for so long, and fewer calls are in flight afterwards."""
        gate, now = self._gate(spec), self._clock()
        gate.paused_until = max(gate.paused_until, now + pause_s)
        if gate.limit.cut(started_at=started_at, at=now):
            gate.is_refused, gate.has_earned = True, False
        if gate.has_news:
            self._tell(gate)

    def turn_away(self, refusal: Exception) -> None:
        """Let no call in any more, not even those that wait; calls in flight go on."""
        self._refusal = refusal
        for gate in self._gates.values():
            gate.fail(refusal)

    def limit_now(self, spec: ModelSpec) -> int:
        """Return the limit in force, as far as it is known here."""
        return self._gate(spec).limit.now

    async def renew(self) -> None:
        """Agree again on every model in use; call it with the heartbeat."""
        for gate in list(self._gates.values()):
            async with gate.talking:
                await self._agree(gate)

    async def aclose(self) -> None:
        """Finish what is being told and give everything back."""
        used: dict[int, int] = {}
        for gate in self._gates.values():
            if gate.attendant is not None:
                gate.attendant.cancel()
            if gate.teller is not None:
                await asyncio.wait([gate.teller])
            if gate.minute is not None:
                used |= gate.minute.taken_used(float("inf"))
        await self._sharing.leave(used)

    def _gate(self, spec: ModelSpec) -> ConcurrencyLimiter:
        gate = self._gates.get(spec.slug)
        if gate is None:
            most = max(1, spec.concurrency)
            gate = self._gates[spec.slug] = ConcurrencyLimiter(spec, AdaptiveLimit(most, most))
        return gate

    async def _wait(self, gate: ConcurrencyLimiter) -> float:
        ticket: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        gate.queue.append(ticket)
        self._attend(gate)
        try:
            return await ticket
        except asyncio.CancelledError:
            if ticket in gate.queue:
                gate.queue.remove(ticket)
            elif not ticket.cancelled() and ticket.exception() is None:
                # Cancelled in its turn: the turn goes to the next.
                gate.undo(started_at=ticket.result())
                self._leave(gate)
            raise

    def _leave(self, gate: ConcurrencyLimiter) -> None:
        gate.in_flight -= 1
        gate.admit(self._clock())
        self._attend(gate)

    def _attend(self, gate: ConcurrencyLimiter) -> None:
        """See to it that whoever waits at the gate is let in in time."""
        if gate.is_waited_for and gate.attendant is None:
            gate.attendant = asyncio.ensure_future(self._serve(gate))

    async def _serve(self, gate: ConcurrencyLimiter) -> None:
        """Ask and wait for those who wait, until only the end of a call can let the next one in."""
        try:
            wait_s: float | None = 0.0
            while gate.is_waited_for and wait_s is not None:
                # Calls that start together are counted before the first of them asks.
                await (self._sleep(wait_s) if wait_s else asyncio.sleep(0))
                await self._ask(gate)
                gate.admit(self._clock())
                wait_s = gate.wait_s(self._clock())
        except Exception as error:  # noqa: BLE001 - raised where the calls wait
            gate.fail(error)
        finally:
            gate.attendant = None

    async def _ask(self, gate: ConcurrencyLimiter) -> None:
        """Ask the others for what the waiting lack, if it is time to."""
        async with gate.talking:
            if gate.must_agree(self._clock()):
                await self._agree(gate)
        now = self._clock()
        if gate.minute is not None and gate.lacks_starts(now):
            could_start = min(len(gate.queue), gate.open_slots)
            wanted, used = gate.minute.wanted(could_start, now), gate.minute.taken_used(now)
            starts = await self._sharing.starts(gate.spec, wanted, used)
            gate.minute.take(starts, asked_at=now, now=self._clock())

    def _tell(self, gate: ConcurrencyLimiter) -> None:
        if gate.teller is None:
            gate.teller = asyncio.ensure_future(self._tell_all(gate))

    async def _tell_all(self, gate: ConcurrencyLimiter) -> None:
        try:
            while gate.has_news:
                async with gate.talking:
                    await self._agree(gate)
        except Exception:
            logger.exception("A limit of %s could not be shared", gate.spec.slug)
        finally:
            gate.teller = None

    async def _agree(self, gate: ConcurrencyLimiter) -> None:
        """Tell the others what is new and take over what holds; the gate's lock is held."""
        asked_at = self._clock()
        ask = gate.ask(asked_at)
        standing = await self._sharing.agree(gate.spec, ask)
        gate.take(standing, ask, asked_at=asked_at, now=self._clock())
        gate.admit(self._clock())
        self._attend(gate)
