"""Virtual time: it stands still while anything works, then jumps to the end of the next wait."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TypeVar

from evaluators.model_calls.limit_policy import LimitRequest, LimitState, QuotaGrant
from evaluators.model_calls.models import ModelSpec
from evaluators.model_calls.rate_limits import Limiter
from runs.execution.shared_limits import SlotKeeper

Value = TypeVar("Value")
EPOCH = datetime(2026, 5, 12, 9, tzinfo=UTC)
# How often nothing may have happened before time goes on.
STILL = 5


class VirtualTime:
    """A clock for the clients, databases and servers of one test, in all threads and loops."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._busy = 0
        self._numbers = count()
        self._sleepers: list[tuple[float, int, Future[None]]] = []
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def database_now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now)

    async def sleep(self, seconds: float) -> None:
        """Sleep without stopping the clock."""
        future: Future[None] = Future()
        with self._lock:
            heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), future))
        await asyncio.wrap_future(future)

    async def sleep_at_work(self, seconds: float) -> None:
        """Sleep while busy: the clock may advance meanwhile."""
        future: Future[None] = Future()
        future.add_done_callback(lambda _: self._change(1))
        with self._lock:
            heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), future))
            self._busy -= 1
        await asyncio.wrap_future(future)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Stop the clock."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    async def run(self, work: Awaitable[Value]) -> Value:
        """Let time advance until the work is done."""
        task = asyncio.ensure_future(work)
        still = 0
        while not task.done():
            await asyncio.sleep(0 if still else 0.0005)
            still = 0 if self._busy else still + 1
            if still > STILL:
                still = 0
                self._wake_next()
        return task.result()

    def _wake_next(self) -> None:
        with self._lock:
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            if not self._sleepers:
                return
            self.now = max(self.now, self._sleepers[0][0])
            future = heapq.heappop(self._sleepers)[2]
        future.set_result(None)

    def _change(self, by: int) -> None:
        with self._lock:
            self._busy += by


class TimedSlotKeeper(SlotKeeper):
    """A slot keeper whose database work stops the clock."""

    time: VirtualTime

    async def agree(self, spec: ModelSpec, ask: LimitRequest) -> LimitState:
        with self.time.busy():
            return await super().agree(spec, ask)

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> QuotaGrant:
        with self.time.busy():
            return await super().starts(spec, wanted, used)


class TimedLimiter(Limiter):
    """A limiter whose calls stop the clock from their start, and which records the starts."""

    time: VirtualTime
    starts: list[float]

    @asynccontextmanager
    async def slot(self, spec: ModelSpec) -> AsyncIterator[float]:
        async with super().slot(spec) as started_at:
            self.starts.append(started_at)
            with self.time.busy():
                yield started_at
