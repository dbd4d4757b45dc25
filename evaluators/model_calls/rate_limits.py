"""The limits of each model in one process: calls in flight, waiting calls, and when they start."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from evaluators.model_calls.calls import CallOutcome, Failure, ModelCallError
from evaluators.model_calls.limit_policy import (
    FOREVER,
    MAX_FIRST_SILENCE_S,
    MAX_RETRY_AFTER_S,
    MAX_SILENCE_S,
    MAX_WINDOW_S,
    NEVER,
    SEND_S,
    WINDOW_S,
    CallEnds,
    GrantedStarts,
    LimitRequest,
    LimitState,
    QuotaGrant,
    SharedLimit,
    StartQuota,
    failures_until_silent,
)
from evaluators.model_calls.models import ModelSpec

logger = logging.getLogger(__name__)

# How long to wait before asking again for slots that others hold.
ASK_AGAIN_S = 1.0
# A pause that grows by less is reported with the rest.
PAUSE_GRAIN_S = 0.5
# Other workers see failures too, so a part of those that make a model count as silent is news.
URGENT_SHARE = 0.25
NO_ANSWER = Failure(CallOutcome.CONNECTION, "The model does not answer")

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class LimitSharing(Protocol):
    """Shares the limits of models with other processes."""

    async def agree(self, spec: ModelSpec, request: LimitRequest) -> LimitState:
        """Send a report and return the current limits."""
        ...

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> QuotaGrant:
        """Return how many of the wanted calls may start in the model's minute."""
        ...

    async def leave(self, used: Mapping[int, int]) -> None:
        """Give everything back."""
        ...


class UnsharedLimits:
    """The limits of a process that is the only one to call its models."""

    def __init__(self, clock: Clock) -> None:
        """Start without models."""
        self._clock = clock
        self._limits: dict[str, SharedLimit] = {}
        self._grants = 0

    async def agree(self, spec: ModelSpec, request: LimitRequest) -> LimitState:
        """Return the limits after a request; all slots belong to this process."""
        shared = self._limit(spec, request.used)
        request = replace(request, wanted=shared.concurrency)
        return shared.agree("", request, now=self._clock(), lease_s=FOREVER)

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> QuotaGrant:
        """Return how many calls may start."""
        shared, now = self._limit(spec, used), self._clock()
        granted = shared.grant_starts("", wanted, now=now)
        if granted.calls and shared.per_minute is not None:
            self._grants += 1
            shared.grants[self._grants] = GrantedStarts("", now, granted.calls)
        return replace(granted, grant=self._grants)

    async def leave(self, used: Mapping[int, int]) -> None:
        """Do nothing, as nobody else waits."""

    def _limit(self, spec: ModelSpec, used: Mapping[int, int]) -> SharedLimit:
        usual = SharedLimit(max(1, spec.concurrency), spec.requests_per_minute)
        shared = self._limits.setdefault(spec.slug, usual)
        for grant, calls in used.items():
            if granted := shared.grants.get(grant):
                shared.throttle.give_back(granted.calls - calls)
                granted.calls = calls
        return shared


@dataclass(slots=True)
class EndCounter:
    """Counts how the calls of one model end in this process, until they are reported."""

    answered: int = 0
    refused: int = 0
    failures: int = 0
    latencies_s: float = 0.0
    paused_until: float = NEVER
    reason: str = ""
    since: float | None = None
    reported_at: float = NEVER
    _failed: int = 0

    def count_answer(self, *, started_at: float, now: float) -> None:
        """Count an answer, which ends a row of failures."""
        self._count(started_at)
        self.answered += 1
        self.latencies_s += now - started_at
        self.failures, self._failed = 0, 0

    def count_failure(self, failure: Failure, *, call: int, started_at: float) -> None:
        """Count a failure of the model; a row of failures holds those of one call in a row only once."""
        self._count(started_at)
        self.refused += failure.status is CallOutcome.RATE_LIMITED
        self.failures += call != self._failed
        self._failed = call
        # Pages show it to everybody, so neither an address nor the server's own words.
        status = failure.http_status
        self.reason = f"{status} from the server" if status else "no connection"

    def take(self, now: float) -> CallEnds:
        """Return the counts and begin anew."""
        ends = CallEnds(
            answered=self.answered,
            refused=self.refused,
            failures=self.failures,
            seconds=0.0 if self.since is None else now - self.since,
            latency_s=self.latencies_s / self.answered if self.answered else 0.0,
            pause_s=max(0.0, self.paused_until - now),
            reason=self.reason,
        )
        self.answered = self.refused = self.failures = 0
        self.latencies_s, self.paused_until = 0.0, NEVER
        if self.since is not None:
            # A report without ends says nothing about the time: the next one counts it.
            self.reason, self.since, self.reported_at = "", None, now
        return ends

    def _count(self, started_at: float) -> None:
        if self.since is None:
            # After a longer gap there was nothing to call; a shorter one was a wait.
            is_idle = started_at > self.reported_at + MAX_WINDOW_S
            self.since = started_at if is_idle else self.reported_at


@dataclass(slots=True, eq=False)
class ConcurrencyLimiter:
    """The calls of one model in this process, and the limits last agreed with the others."""

    spec: ModelSpec
    concurrency: int
    quota: StartQuota | None = None
    in_flight: int = 0
    slots: int = 0
    queue: deque[asyncio.Future[float]] = field(default_factory=deque)
    ends: EndCounter = field(default_factory=EndCounter)
    is_urgent: bool = False
    paused_until: float = NEVER
    silent_since: float | None = None
    is_known: bool = False
    last_failure: Failure = NO_ANSWER
    agreeing: asyncio.Lock = field(default_factory=asyncio.Lock)
    serving: asyncio.Task[None] | None = None
    reporting: asyncio.Task[None] | None = None
    pausing: asyncio.Task[None] | None = None
    _held: int = 0
    _agreed_until: float = NEVER
    _ask_again_at: float = NEVER

    @property
    def open_slots(self) -> int:
        """Return how many more calls may be in flight."""
        return min(self.concurrency, self.slots) - self.in_flight

    @property
    def wanted(self) -> int:
        """Return how many slots the calls in flight and in the queue could use."""
        return min(self.concurrency, self.in_flight + len(self.queue))

    @property
    def needs_service(self) -> bool:
        """Tell whether calls wait here, or slots are held that are no longer used."""
        return bool(self.queue) or self._holds_too_many

    @property
    def _is_short(self) -> bool:
        return bool(self.queue) and self.slots < self.wanted

    @property
    def _holds_too_many(self) -> bool:
        return self._held > max(self.slots, self.in_flight)

    def has_news(self, now: float) -> bool:
        """Tell whether there is something to report to the others now."""
        is_due = self.ends.since is not None and now >= self.ends.reported_at + WINDOW_S
        return self.is_urgent or is_due

    def is_open(self, now: float) -> bool:
        """Tell whether a call may start; before urgent news is reported, none may."""
        return (
            self.open_slots > 0
            and not self.is_urgent
            and self.paused_until <= now < self._agreed_until
            and (self.quota is None or self.quota.has_left(now))
        )

    def start(self) -> None:
        """Count a call that starts."""
        self.in_flight += 1
        if self.quota is not None:
            self.quota.start()

    def admit(self, now: float) -> None:
        """Start as many waiting calls as possible, first come, first served."""
        while self.queue and self.is_open(now):
            ticket = self.queue.popleft()
            if not ticket.done():
                self.start()
                ticket.set_result(now)

    def undo(self, *, started_at: float) -> None:
        """Take back a start that was not followed by a call."""
        if self.quota is not None:
            self.quota.undo(started_at=started_at)

    def fail(self, error: Exception) -> None:
        """Raise the error in every waiting call."""
        while self.queue:
            ticket = self.queue.popleft()
            if not ticket.done():
                ticket.set_exception(error)

    def note_answer(self, *, started_at: float, now: float) -> None:
        """Count an answer; the first one of a silent or unknown model is news for all."""
        self.ends.count_answer(started_at=started_at, now=now)
        is_news = self.silent_since is not None or not self.is_known
        self.is_known, self.is_urgent = True, self.is_urgent or is_news

    def note_failure(self, failure: Failure, *, call: int, started_at: float, now: float) -> None:
        """Count a failure of the model; a wish for a pause, and many failures in a row, are news for all."""
        self.ends.count_failure(failure, call=call, started_at=started_at)
        self.last_failure = failure
        # The call with a longer Retry-After is given up. The others try again after this long.
        pause_s = min(failure.retry_after_s or 0.0, MAX_RETRY_AFTER_S)
        is_refused = failure.status is CallOutcome.RATE_LIMITED
        if is_refused and not self.is_known:
            self.is_known = self.is_urgent = True
        if is_refused and now + pause_s > self.paused_until:
            is_news = now + pause_s > max(now, self.paused_until) + PAUSE_GRAIN_S
            self.paused_until = now + pause_s
            self.ends.paused_until = self.paused_until
            self.is_urgent = self.is_urgent or is_news
        many = failures_until_silent(self.concurrency) * URGENT_SHARE
        self.is_urgent = self.is_urgent or (
            self.silent_since is None and self.ends.failures >= many
        )

    @property
    def patience_s(self) -> float:
        """Return how long calls wait for the model when it is silent."""
        return MAX_SILENCE_S if self.is_known else MAX_FIRST_SILENCE_S

    def has_given_up(self, now: float) -> bool:
        """Tell whether the model has been silent for so long that nobody waits for it any more."""
        return self.silent_since is not None and now >= self.silent_since + self.patience_s

    def must_agree(self, now: float) -> bool:
        """Tell whether the limits must be agreed again before calls can start."""
        if self.is_urgent or now >= self._agreed_until:
            return True
        return (self._is_short or self._holds_too_many) and now >= self._ask_again_at

    def lacks_starts(self, now: float) -> bool:
        """Tell whether calls only wait for starts, and those may be requested."""
        return (
            self.quota is not None
            and bool(self.queue)
            and self.open_slots > 0
            and now >= max(self.paused_until, self.quota.ask_again_at)
            and not self.quota.has_left(now)
        )

    def wait_s(self, now: float) -> float | None:
        """Return the time until something may change by itself; None if only the end of a call changes it."""
        times = []
        is_paused = now < self.paused_until
        if self.queue and (self.is_urgent or now >= self._agreed_until):
            times.append(now)
        if self._holds_too_many or (self._is_short and not is_paused):
            times.append(self._ask_again_at)
        if self.queue and is_paused:
            times.append(self.paused_until)
        elif self.queue and self.open_slots > 0 and self.quota is not None:
            times.append(self.quota.ask_again_at)
        return max(0.0, min(times) - now) if times else None

    def request(self, now: float) -> LimitRequest:
        """Return the next report; news is reported once."""
        self.is_urgent = False
        return LimitRequest(
            wanted=self.wanted,
            in_flight=self.in_flight,
            ends=self.ends.take(now),
            used=self.quota.pop_unused(now) if self.quota is not None else {},
        )

    def apply(
        self, state: LimitState, request: LimitRequest, *, asked_at: float, now: float
    ) -> None:
        """Apply agreed limits; slots are valid from the time of the request."""
        self.concurrency = state.concurrency
        self.slots, self._held = state.slots, max(state.slots, request.in_flight)
        self._agreed_until = asked_at + state.valid_s
        is_open_question = state.slots < request.wanted or self._held > self.slots
        self._ask_again_at = asked_at + ASK_AGAIN_S if is_open_question else NEVER
        self.paused_until = max(self.paused_until, now + state.pause_s)
        self.is_known = self.is_known or state.is_known
        if not state.is_silent:
            if self.silent_since is not None:
                self._end_wait()
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = now
        if not state.is_metered:
            self.quota = None
        elif self.quota is None:
            self.quota = StartQuota()

    def _end_wait(self) -> None:
        """Let the waiting calls ask for starts at once, not only when the next call may try a silent model."""
        if self.quota is not None:
            self.quota.ask_again_at = NEVER
        if self.pausing is not None:
            self.pausing.cancel()


class Limiter:
    """Hands out slots for calls of any model; one limiter serves one event loop.

    `sharing` agrees the limits with the other processes that call the same models; without it, this is the
    only one. It is used when demand exceeds the agreed slots, once a second while calls end, at once
    for urgent news, and by `renew`, which the heartbeat calls. `sleep` waits by the limiter's clock.
    """

    def __init__(
        self,
        sharing: LimitSharing | None = None,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Start without models."""
        self._sharing = sharing or UnsharedLimits(clock)
        self._clock = clock
        self.sleep = sleep
        self._models: dict[str, ConcurrencyLimiter] = {}
        self._refusal: Exception | None = None

    @asynccontextmanager
    async def slot(self, spec: ModelSpec) -> AsyncIterator[float]:
        """Wait for a slot, hold it, and give it back; yields the start of the call on the limiter's clock.

        Raises the refusal of `refuse_all`, and ModelCallError when the model has been silent for too long.
        """
        if self._refusal is not None:
            raise self._refusal
        model = self._model(spec)
        started_at = self._clock()
        if model.queue or not model.is_open(started_at):
            started_at = await self._wait(model)
        else:
            model.start()
        try:
            yield started_at
        except Exception:
            # Calls end in an answer or a failure, so this one was refused before it was sent.
            # If it was late, `start_again` may have given its start back already.
            if not self.is_late(spec, started_at=started_at):
                model.undo(started_at=started_at)
            raise
        finally:
            self._free(model)

    def is_late(self, spec: ModelSpec, *, started_at: float) -> bool:
        """Tell whether a call was delayed for so long that it missed its place in the minute."""
        return self._model(spec).quota is not None and self._clock() > started_at + SEND_S

    async def start_again(
        self, spec: ModelSpec, *, started_at: float, admit: Callable[[], Awaitable[None]]
    ) -> float:
        """Give back the place in the minute that a call missed, wait for another, and return the new start.

        `admit` is awaited before the call may start: the wait may take a minute, and the call may be useless by
        then. Raises what `admit` raises, the refusal of `refuse_all`, and ModelCallError when the model has been
        silent for too long.
        """
        model, unused = self._model(spec), dict[int, int]()
        model.undo(started_at=started_at)
        while True:
            if self._refusal is not None:
                raise self._refusal
            if self.has_given_up(spec):
                raise _silence(model)
            asked_at = self._clock()
            granted = await self._sharing.starts(spec, 1, unused)
            unused = {}
            if not granted.calls:
                await self.sleep(granted.wait_s)
                continue
            await admit()
            if not self.is_late(spec, started_at=asked_at):
                return asked_at
            unused = {granted.grant: 0}

    def answered(self, spec: ModelSpec, *, started_at: float) -> None:
        """Note an answer, also one that is no use to the caller: the model works."""
        model, now = self._model(spec), self._clock()
        model.note_answer(started_at=started_at, now=now)
        self._report(model, now)

    def failed(self, spec: ModelSpec, failure: Failure, *, call: int, started_at: float) -> None:
        """Note a failure of the model. `call` is the same number for all tries of one call."""
        model, now = self._model(spec), self._clock()
        model.note_failure(failure, call=call, started_at=started_at, now=now)
        self._report(model, now)

    def is_silent(self, spec: ModelSpec) -> bool:
        """Tell whether the model answers nobody, as far as it is known here."""
        return self._model(spec).silent_since is not None

    def has_given_up(self, spec: ModelSpec) -> bool:
        """Tell whether calls wait for the model no longer."""
        return self._model(spec).has_given_up(self._clock())

    def refuse_all(self, refusal: Exception) -> None:
        """Refuse all further calls, even waiting ones; calls in flight continue."""
        self._refusal = refusal
        for model in self._models.values():
            model.fail(refusal)

    async def renew(self) -> None:
        """Renew the agreement on every model in use; the heartbeat calls this."""
        for model in list(self._models.values()):
            async with model.agreeing:
                await self._agree(model)

    async def aclose(self) -> None:
        """Finish the reports and give everything back."""
        unused: dict[int, int] = {}
        for model in self._models.values():
            if model.serving is not None:
                model.serving.cancel()
            if model.reporting is not None:
                await asyncio.wait([model.reporting])
            if model.quota is not None:
                unused |= model.quota.pop_unused(FOREVER)
        await self._sharing.leave(unused)

    def _model(self, spec: ModelSpec) -> ConcurrencyLimiter:
        model = self._models.get(spec.slug)
        if model is None:
            model = ConcurrencyLimiter(spec, max(1, spec.concurrency))
            self._models[spec.slug] = model
        return model

    async def _wait(self, model: ConcurrencyLimiter) -> float:
        ticket: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        model.queue.append(ticket)
        self._serve(model)
        try:
            return await ticket
        except asyncio.CancelledError:
            if ticket in model.queue:
                model.queue.remove(ticket)
            elif not ticket.cancelled() and ticket.exception() is None:
                # It was cancelled after it got a slot, which goes to the next call.
                model.undo(started_at=ticket.result())
                self._free(model)
            raise

    def _free(self, model: ConcurrencyLimiter) -> None:
        model.in_flight -= 1
        model.admit(self._clock())
        self._serve(model)

    def _serve(self, model: ConcurrencyLimiter) -> None:
        """Make sure that a task serves the queue."""
        if model.needs_service and model.serving is None:
            model.serving = asyncio.ensure_future(self._serve_queue(model))

    async def _serve_queue(self, model: ConcurrencyLimiter) -> None:
        """Serve the queue until only the end of a call can start the next one."""
        try:
            wait_s: float | None = 0.0
            while model.needs_service and wait_s is not None:
                await self._pause(model, wait_s)
                await self._ask(model)
                model.admit(self._clock())
                if model.has_given_up(self._clock()):
                    model.fail(_silence(model))
                wait_s = model.wait_s(self._clock())
        except Exception as error:  # noqa: BLE001 - raised where the calls wait
            model.fail(error)
        finally:
            model.serving = None

    async def _pause(self, model: ConcurrencyLimiter, seconds: float) -> None:
        """Wait so long, or until a silent model answers."""
        if not seconds:
            # Let calls that start together be counted before the first request.
            await asyncio.sleep(0)
            return
        model.pausing = asyncio.ensure_future(self.sleep(seconds))
        try:
            await asyncio.wait([model.pausing])
        finally:
            model.pausing.cancel()
            model.pausing = None

    async def _ask(self, model: ConcurrencyLimiter) -> None:
        """Request what the waiting calls lack, if it is time to."""
        async with model.agreeing:
            if model.must_agree(self._clock()):
                await self._agree(model)
        now = self._clock()
        if model.quota is not None and model.lacks_starts(now):
            could_start = min(len(model.queue), model.open_slots)
            wanted, unused = model.quota.wanted(could_start, now), model.quota.pop_unused(now)
            granted = await self._sharing.starts(model.spec, wanted, unused)
            model.quota.take(granted, asked_at=now, now=self._clock())

    def _report(self, model: ConcurrencyLimiter, now: float) -> None:
        if model.reporting is None and model.has_news(now):
            model.reporting = asyncio.ensure_future(self._report_news(model))

    async def _report_news(self, model: ConcurrencyLimiter) -> None:
        try:
            while model.has_news(self._clock()):
                async with model.agreeing:
                    await self._agree(model)
        except Exception:
            logger.exception("A limit of %s could not be shared", model.spec.slug)
        finally:
            model.reporting = None

    async def _agree(self, model: ConcurrencyLimiter) -> None:
        """Report to the others and apply the agreed limits; the caller holds the model's lock."""
        asked_at = self._clock()
        request = model.request(asked_at)
        state = await self._sharing.agree(model.spec, request)
        model.apply(state, request, asked_at=asked_at, now=self._clock())
        model.admit(self._clock())
        self._serve(model)


def _silence(model: ConcurrencyLimiter) -> ModelCallError:
    """Return the error of a call that has waited in vain for a silent model."""
    last = model.last_failure
    return ModelCallError(
        last.status,
        f"{last.reason}. The model has answered no call for {model.patience_s / 60:g} min",
        http_status=last.http_status,
    )
