"""So many programs at once and no more, for all event loops of a process."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import deque

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[int]"]


class Slots:
    """Numbers from 0 that are taken and given back; who finds none waits in line."""

    def __init__(self, count: int) -> None:
        """Have all of them free."""
        self._lock = threading.Lock()
        self._free = list(range(count))
        self._line: deque[Waiter] = deque()

    async def take(self) -> int:
        """Return a number that nobody else has, once there is one."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free:
                return heapq.heappop(self._free)
            turn: asyncio.Future[int] = loop.create_future()
            self._line.append((loop, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            self._leave((loop, turn))
            raise

    def give_back(self, number: int) -> None:
        """Hand the number to the next in line; may be called from any thread."""
        with self._lock:
            while self._line:
                loop, turn = self._line.popleft()
                try:
                    loop.call_soon_threadsafe(self._hand_over, turn, number)
                except RuntimeError:
                    # Its loop is closed: nobody waits there any more.
                    continue
                return
            heapq.heappush(self._free, number)

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            if waiter in self._line:
                self._line.remove(waiter)
        turn = waiter[1]
        if turn.done() and not turn.cancelled():
            self.give_back(turn.result())

    def _hand_over(self, turn: asyncio.Future[int], number: int) -> None:
        """Give the number on when the one in line was cancelled meanwhile."""
        if turn.done():
            self.give_back(number)
        else:
            turn.set_result(number)
