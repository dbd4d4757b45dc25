"""Calls that want to start, a clock that stands still, and other processes that hold slots."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.model_calls.limit_policy import LimitRequest, LimitState, QuotaGrant
from evaluators.model_calls.models import ModelSpec
from evaluators.model_calls.rate_limits import Limiter


def spec(**changes: Any) -> ModelSpec:
    return ModelSpec(**{"slug": "m", "base_url": "", "model_id": "m", "concurrency": 4, **changes})


@dataclass
class Clock:
    """A clock that only sleeping moves."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class Others:
    """The other processes: what they leave, and what they are told and asked."""

    slots: int = 4
    concurrency: int | None = None
    is_metered: bool = False
    is_silent: bool = False
    pause_s: float = 0.0
    valid_s: float = float("inf")
    starts_left: int = 1000
    wait_s: float = 30.0
    problem: Exception | None = None
    asks: list[LimitRequest] = field(default_factory=list)
    asked_starts: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)
    left: list[Mapping[int, int]] = field(default_factory=list)

    async def agree(self, spec: ModelSpec, ask: LimitRequest) -> LimitState:
        self.asks.append(ask)
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        slots = min(ask.wanted, self.slots)
        return LimitState(
            slots,
            self.concurrency or spec.concurrency,
            is_metered=self.is_metered,
            is_silent=self.is_silent,
            pause_s=self.pause_s,
            valid_s=self.valid_s,
        )

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> QuotaGrant:
        self.asked_starts.append((wanted, used))
        await asyncio.sleep(0)
        calls = min(wanted, self.starts_left)
        self.starts_left -= calls
        return QuotaGrant(calls, 0.0 if calls else self.wait_s, len(self.asked_starts))

    async def leave(self, used: Mapping[int, int]) -> None:
        self.left.append(used)

    @property
    def wanted(self) -> list[int]:
        return [ask.wanted for ask in self.asks]


async def let_tasks_run() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


class Calls:
    """Calls through a limiter that end when they are told to."""

    def __init__(self, limiter: Limiter, model: ModelSpec) -> None:
        self.limiter, self.model = limiter, model
        self.most = 0
        self.begun: list[int] = []
        self._ends: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())

    @property
    def in_flight(self) -> int:
        return sum(not end.is_set() for end in self._ends.values())

    async def begin(self, count: int) -> None:
        for number in range(len(self._tasks), len(self._tasks) + count):
            self._tasks[number] = asyncio.create_task(self._call(number))
        await let_tasks_run()

    async def end(self, count: int = 1) -> None:
        running = [number for number, end in self._ends.items() if not end.is_set()]
        for number in running[:count]:
            self._ends[number].set()
        await let_tasks_run()

    async def cancel(self, number: int) -> None:
        self._tasks[number].cancel()
        await let_tasks_run()

    async def _call(self, number: int) -> None:
        async with self.limiter.slot(self.model):
            self.begun.append(number)
            self._ends[number] = asyncio.Event()
            self.most = max(self.most, self.in_flight)
            await self._ends[number].wait()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.wait(self._tasks.values())
        await self.limiter.aclose()
