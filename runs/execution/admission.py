"""Whether the next call of an execution may be made: asked before every try, in flight until recorded."""

from __future__ import annotations

import asyncio

from runs.execution.budget import Budget
from runs.execution.database import DatabaseThread
from runs.execution.leasing import Leases


class CallRefusedError(Exception):
    """The call was not made; its execution is given back without a record."""


class Admission:
    """Lets calls of one pair of hands through while they are of use.

    A call waits while the database is away or too much is unwritten: what cannot be written down
    should not be spent. It is refused once the run is over for these hands, when its result was
    lost to others, and when the budget is spent.
    """

    def __init__(
        self, leases: Leases, budget: Budget, database: DatabaseThread, room: asyncio.Event
    ) -> None:
        """Let calls through."""
        self.in_flight = 0
        self.idle = asyncio.Event()
        self.idle.set()
        self._leases = leases
        self._budget = budget
        self._database = database
        self._room = room
        self._closed = ""

    def close(self, reason: str) -> None:
        """Refuse every call from now on; those in flight go on."""
        self._closed = reason

    async def admit(self, result_id: int) -> None:
        """Return when the call may be made; raises CallRefusedError."""
        await self._database.is_there.wait()
        await self._room.wait()
        is_held = await self._leases.holds(result_id)
        if self._closed:
            raise CallRefusedError(self._closed)
        if not is_held:
            raise CallRefusedError("The result was taken over by other hands.")
        if self._budget.is_spent():
            raise CallRefusedError(self._budget.in_words())

    def begin(self) -> None:
        """Count a call as in flight."""
        self.in_flight += 1
        self.idle.clear()

    def end(self) -> None:
        """Count a call as over."""
        self.in_flight -= 1
        if not self.in_flight:
            self.idle.set()
