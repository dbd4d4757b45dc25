"""Bound the memory that large texts take: outputs, and the replies of agents that judge them.

A text of 16 MB takes many times as much while it is read and scored: up to four bytes a letter, in several copies.
And a run may have 200 executions in flight.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

# Smaller texts are not counted.
LARGE_BYTES = 64 * 1024
# What the texts that are held at once have together, unless a single one has more.
MAX_HELD_BYTES = 8 * 1024 * 1024


class LargeTexts:
    """Counts the large texts that results of one member's runs hold in this process, and makes others wait.

    A result holds its text from before it is read until the result is written, and may take more without waiting:
    it would wait for itself. Event loops of several threads may share an instance.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._lock = threading.Lock()
        self._held: dict[int, int] = {}
        self._takers = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def take(self, result_id: int, size: int) -> None:
        """Wait until there is room for a text of so many bytes, and hold it."""
        if size < LARGE_BYTES:
            return
        with self._lock:
            self._takers += 1
        try:
            await self._until(lambda: self._hold(result_id, size))
        finally:
            with self._lock:
                self._takers -= 1
            self._wake()
        # Those before may be garbage, in cycles that Python's collector would look for much later.
        gc.collect(1)

    async def nobody_waits(self) -> None:
        """Wait until every text that was asked for has its room."""
        await self._until(lambda: not self._takers)

    def release(self, result_ids: Iterable[int]) -> None:
        """Hold the texts of these results no longer."""
        with self._lock:
            freed = [self._held.pop(result_id, 0) for result_id in result_ids]
        if any(freed):
            self._wake()

    def _hold(self, result_id: int, size: int) -> bool:
        others = sum(self._held.values())
        if others and result_id not in self._held and others + size > MAX_HELD_BYTES:
            return False
        self._held[result_id] = self._held.get(result_id, 0) + size
        return True

    async def _until(self, is_met: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                if is_met():
                    return
                change = loop.create_future()
                self._waiting.append((loop, change))
            await change

    def _wake(self) -> None:
        """Let everybody who waits look again."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for loop, change in waiting:
            # A loop that has ended waits no longer.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_set, change)


@dataclass(frozen=True, slots=True)
class MemberTexts:
    """The large texts of one member's runs: answers of their targets, and replies of agents that judge these.

    They are counted apart, as a result that holds an answer waits for replies to it.
    """

    answers: LargeTexts = field(default_factory=LargeTexts)
    replies: LargeTexts = field(default_factory=LargeTexts)

    def release(self, result_ids: Collection[int]) -> None:
        """Hold no text of these results any longer."""
        self.answers.release(result_ids)
        self.replies.release(result_ids)


def _set(change: asyncio.Future[None]) -> None:
    if not change.done():
        change.set_result(None)
