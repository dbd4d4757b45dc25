"""The gate of one model in one process: which calls are in, which wait, and what lets them in."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from evaluators.judging.adapting import AdaptiveLimit
from evaluators.judging.allowances import Allowance
from evaluators.judging.sharing import Ask, Standing
from evaluators.judging.specs import ModelSpec

NEVER = float("-inf")
# How long to wait before asking again for slots that others hold.
ASK_AGAIN_S = 1.0
# A pause that grows by less is not worth telling the others.
PAUSE_GRAIN_S = 0.5


@dataclass(slots=True, eq=False)
class Gate:
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
