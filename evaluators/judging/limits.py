"""How many calls of a model may be in flight and start: agreed with all who call it, kept here."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from evaluators.judging.adapting import AdaptiveLimit
from evaluators.judging.gates import Gate
from evaluators.judging.minutes import SEND_S, VALID_S
from evaluators.judging.sharing import Alone, Clock, Sharing

if TYPE_CHECKING:
    from evaluators.judging.specs import ModelSpec

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
        self._gates: dict[str, Gate] = {}
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

    def _gate(self, spec: ModelSpec) -> Gate:
        gate = self._gates.get(spec.slug)
        if gate is None:
            most = max(1, spec.concurrency)
            gate = self._gates[spec.slug] = Gate(spec, AdaptiveLimit(most, most))
        return gate

    async def _wait(self, gate: Gate) -> float:
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

    def _leave(self, gate: Gate) -> None:
        gate.in_flight -= 1
        gate.admit(self._clock())
        self._attend(gate)

    def _attend(self, gate: Gate) -> None:
        """See to it that whoever waits at the gate is let in in time."""
        if gate.is_waited_for and gate.attendant is None:
            gate.attendant = asyncio.ensure_future(self._serve(gate))

    async def _serve(self, gate: Gate) -> None:
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

    async def _ask(self, gate: Gate) -> None:
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

    def _tell(self, gate: Gate) -> None:
        if gate.teller is None:
            gate.teller = asyncio.ensure_future(self._tell_all(gate))

    async def _tell_all(self, gate: Gate) -> None:
        try:
            while gate.has_news:
                async with gate.talking:
                    await self._agree(gate)
        except Exception:
            logger.exception("A limit of %s could not be shared", gate.spec.slug)
        finally:
            gate.teller = None

    async def _agree(self, gate: Gate) -> None:
        """Tell the others what is new and take over what holds; the gate's lock is held."""
        asked_at = self._clock()
        ask = gate.ask(asked_at)
        standing = await self._sharing.agree(gate.spec, ask)
        gate.take(standing, ask, asked_at=asked_at, now=self._clock())
        gate.admit(self._clock())
        self._attend(gate)
