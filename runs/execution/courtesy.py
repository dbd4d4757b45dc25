"""How hands that work in a web process give way to whoever waits for a page of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

GIVE_WAY_S = 0.002

IsAnybodyWaiting = Callable[[], bool]
Sleep = Callable[[float], Awaitable[object]]


def _nobody() -> bool:
    return False


_is_anybody_waiting: IsAnybodyWaiting = _nobody


def give_way_to(is_anybody_waiting: IsAnybodyWaiting) -> None:
    """Make all hands of this process ask, before each execution, whether somebody waits."""
    global _is_anybody_waiting
    _is_anybody_waiting = is_anybody_waiting


class Courtesy:
    """Lets one execution of a pair of hands begin at a time while somebody waits for a page.

    Threads of a process take turns at the interpreter, and hands that score without ever waiting for a
    model would take two turns of three. Hands that wait for models anyway hardly notice.
    """

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        """Be ready to give way."""
        self._sleep = sleep
        self._turn = asyncio.Lock()

    async def give_way(self) -> None:
        """Wait for a turn and a moment if somebody waits for a page."""
        if _is_anybody_waiting():
            async with self._turn:
                await self._sleep(GIVE_WAY_S)
