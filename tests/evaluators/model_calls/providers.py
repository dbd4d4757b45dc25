"""Nine ways in which providers behave, and workers that call one: the real client and limiter, without a network.

Time stands still while anything works, and jumps to the next moment at which something happens.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from random import Random
from typing import TYPE_CHECKING, Any

from evaluators.model_calls.calls import CallKey, ChatCall, Ledger, ModelCallError
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.endpoint import Received
from evaluators.model_calls.limit_policy import (
    GrantedStarts,
    LimitRequest,
    LimitState,
    QuotaGrant,
    Retries,
    SharedLimit,
)
from evaluators.model_calls.models import ModelSpec
from evaluators.model_calls.rate_limits import Limiter, LimitSharing, UnsharedLimits

if TYPE_CHECKING:
    from evaluators.model_calls.endpoint import Endpoint

BEGAN_AT = 1000.0
LATENCY_S = 0.1
OUTAGE_S = 20.0
OUTAGE_ENDS_S = 21.0
HANGS_S = 30.0
HEARTBEAT_S, LEASE_S = 5.0, 15.0
# What an agreement through a database takes.
AGREEING_S = 0.003
ANSWER = json.dumps({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]})


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps over every wait."""

    def __init__(self) -> None:
        self.now = BEGAN_AT
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits and nothing will ever happen")
        self._loop.now += max(0.0, timeout)
        return super().select(0)


@dataclass(frozen=True)
class Fate:
    """How one call ends, after how long, with what Retry-After."""

    status: int = 200
    seconds: float = LATENCY_S
    retry_after_s: int = 0


class Provider:
    """Answers every call of every model after a tenth of a second."""

    def decide(self, model: str, at: float, random: Random) -> Fate:
        """Return what happens to a call that arrives `at` so many seconds after the beginning."""
        return Fate(seconds=LATENCY_S * random.uniform(0.8, 1.2))


@dataclass
class Unreliable(Provider):
    """Refuses, breaks or hangs at random."""

    refused: float = 0.0
    broken: float = 0.0
    hanging: float = 0.0

    def decide(self, model: str, at: float, random: Random) -> Fate:
        drawn = random.random()
        if drawn < self.hanging:
            return Fate(seconds=HANGS_S)
        if drawn < self.hanging + self.refused:
            return Fate(429)
        if drawn < self.hanging + self.refused + self.broken:
            return Fate(500)
        return super().decide(model, at, random)


@dataclass
class Bucket(Provider):
    """Lets each model have so many calls a minute, out of a bucket that fills steadily."""

    retry_after_s: int = 0
    per_minute: int = 600
    burst: float = 60.0
    filled: dict[str, tuple[float, float]] = field(default_factory=dict)

    def decide(self, model: str, at: float, random: Random) -> Fate:
        left, then = self.filled.get(model, (self.burst, at))
        left = min(self.burst, left + (at - then) * self.per_minute / 60)
        is_free = left >= 1
        self.filled[model] = (left - is_free, at)
        return Fate() if is_free else Fate(429, LATENCY_S * 0.3, self.retry_after_s)


@dataclass
class FixedMinute(Provider):
    """Lets each model have so many calls in each minute of the clock, and says when the next one begins."""

    per_minute: int = 600
    used: Counter[tuple[str, int]] = field(default_factory=Counter)

    def decide(self, model: str, at: float, random: Random) -> Fate:
        minute, second = divmod(at + 23, 60)
        if self.used[model, int(minute)] >= self.per_minute:
            return Fate(429, LATENCY_S * 0.3, int(60 - second) + 1)
        self.used[model, int(minute)] += 1
        return Fate()


@dataclass
class Outage(Provider):
    """Fails every call, or a part of them, for 20 seconds."""

    status: int = 503
    share: float = 1.0

    def decide(self, model: str, at: float, random: Random) -> Fate:
        is_away = OUTAGE_ENDS_S - OUTAGE_S <= at < OUTAGE_ENDS_S
        if is_away and random.random() < self.share:
            return Fate(self.status)
        return super().decide(model, at, random)


@dataclass
class Hub:
    """The limits of all workers in one place, as the database keeps them, and the times of all starts."""

    limits: dict[str, SharedLimit] = field(default_factory=dict)
    granted: int = 0

    def limit(self, spec: ModelSpec) -> SharedLimit:
        usual = SharedLimit(spec.concurrency, spec.requests_per_minute)
        return self.limits.setdefault(spec.slug, usual)


@dataclass
class HubSharing:
    """One worker's way to the hub, which takes a moment."""

    hub: Hub
    name: str

    async def agree(self, spec: ModelSpec, request: LimitRequest) -> LimitState:
        await asyncio.sleep(AGREEING_S)
        now = asyncio.get_running_loop().time()
        self._return(spec, request.used)
        return self.hub.limit(spec).agree(self.name, request, now=now, lease_s=LEASE_S)

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> QuotaGrant:
        await asyncio.sleep(AGREEING_S)
        now = asyncio.get_running_loop().time()
        shared = self.hub.limit(spec)
        self._return(spec, used)
        granted = shared.grant_starts(self.name, wanted, now=now)
        if granted.calls:
            self.hub.granted += 1
            shared.grants[self.hub.granted] = GrantedStarts(self.name, now, granted.calls)
        return replace(granted, grant=self.hub.granted)

    async def leave(self, used: Mapping[int, int]) -> None:
        for limit in self.hub.limits.values():
            limit.leases.pop(self.name, None)

    def _return(self, spec: ModelSpec, used: Mapping[int, int]) -> None:
        shared = self.hub.limit(spec)
        for grant, calls in used.items():
            if granted := shared.grants.get(grant):
                shared.throttle.give_back(granted.calls - calls)
                granted.calls = calls


@dataclass
class Evaluation:
    """Results of two calls each, target then judge, executed by workers that share the limits of both models.

    For `loading_s`, each worker stands still before it can send its first call.
    """

    provider: Provider
    results: int = 500
    at_once: int = 50
    workers: int = 1
    seed: int = 1
    per_minute: int | None = None
    loading_s: float = 0.0
    done: int = 0
    given_up: list[ModelCallError] = field(default_factory=list)
    ended_s: float = 0.0
    starts: dict[str, list[float]] = field(default_factory=lambda: {"target": [], "judge": []})
    statuses: Counter[int] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    most_in_flight: int = 0
    hub: Hub = field(default_factory=Hub)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._left = iter(range(self.results))

    def run(self) -> Evaluation:
        """Execute everything and return itself."""
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(self._work())
        return self

    @property
    def requests(self) -> int:
        """Return how many calls the provider received."""
        return self.statuses.total()

    def most_in_a_minute(self, model: str = "target") -> int:
        """Return the most calls that started within 60 seconds."""
        times, first, most = self.starts[model], 0, 0
        for number, time in enumerate(times):
            while times[first] < time - 60:
                first += 1
            most = max(most, number - first + 1)
        return most

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.workers):
                group.create_task(self._worker(f"worker {number}"))
        self.ended_s = asyncio.get_running_loop().time() - BEGAN_AT

    async def _worker(self, name: str) -> None:
        clock = asyncio.get_running_loop().time
        sharing: LimitSharing = HubSharing(self.hub, name)
        if self.workers == 1:
            sharing = UnsharedLimits(clock)
        limiter = Limiter(sharing, clock=clock)
        client = _Client(self, limiter)
        heart = asyncio.ensure_future(self._beat(limiter))
        async with asyncio.TaskGroup() as group:
            for _ in range(self.at_once // self.workers):
                group.create_task(self._execute_all(client))
        heart.cancel()
        await limiter.aclose()

    async def _beat(self, limiter: Limiter) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await limiter.renew()

    async def _execute_all(self, client: ModelClient) -> None:
        for number in self._left:
            try:
                for model in self.starts:
                    await client.chat(self._spec(model), _call(number), Ledger())
            except ModelCallError as error:
                self.given_up.append(error)
            else:
                self.done += 1

    def _spec(self, model: str) -> ModelSpec:
        limits = {"concurrency": self.at_once, "requests_per_minute": self.per_minute}
        return ModelSpec(model, "http://provider", model, **limits)


class _Client(ModelClient):
    """A client whose requests go to the provider of an evaluation."""

    def __init__(self, evaluation: Evaluation, limiter: Limiter) -> None:
        super().__init__(limiter, Retries(jitter=evaluation.random.random))
        self._evaluation = evaluation

    def _endpoint(self, spec: ModelSpec) -> Endpoint:
        place = (spec.slug, "")
        if not self._endpoints:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, JumpingLoop)
            loop.now += self._evaluation.loading_s
        self._endpoints.setdefault(place, _Endpoint(self._evaluation, spec.slug))
        return self._endpoints[place]


@dataclass
class _Endpoint:
    """The way to one model of the provider."""

    evaluation: Evaluation
    model: str

    async def post_chat(
        self, body: Mapping[str, Any], more_headers: Mapping[str, str], *, longest: int
    ) -> Received:
        evaluation, model = self.evaluation, self.model
        at = asyncio.get_running_loop().time() - BEGAN_AT
        fate = evaluation.provider.decide(model, at, evaluation.random)
        evaluation.starts[model].append(at)
        evaluation.statuses[fate.status] += 1
        evaluation.in_flight[model] += 1
        evaluation.most_in_flight = max(evaluation.most_in_flight, evaluation.in_flight[model])
        try:
            await asyncio.sleep(fate.seconds)
        finally:
            evaluation.in_flight[model] -= 1
        headers = {"retry-after": str(fate.retry_after_s)} if fate.retry_after_s else {}
        answer = ANSWER if fate.status == 200 else ""
        return Received(fate.status, headers, BytesIO(answer.encode()))

    async def close(self) -> None:
        """Hold nothing open."""


def _call(number: int) -> ChatCall:
    return ChatCall([{"role": "user", "content": str(number)}], CallKey("target"))
