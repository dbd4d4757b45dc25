"""What one pair of hands holds under lease: kept while it works, and doubted after every pause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from runs.execution.claiming import renew_leases
from runs.execution.database import DatabaseThread
from runs.models.clock import LEASE

RENEW_EVERY_S = LEASE.total_seconds() / 6
# A lease this old may have run out: whoever was stopped or cut off for so long asks before going on.
DOUBT_AFTER_S = LEASE.total_seconds() / 2

Clock = Callable[[], float]


def time_since_boot() -> float:
    """Return seconds on a clock that also runs while the process is stopped or the machine sleeps."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)


class Leases:
    """The results a pair of hands holds.

    `count_under_way` tells how many it is carrying out, None when it takes on nothing any more.
    """

    def __init__(
        self,
        run_id: int,
        token: str,
        database: DatabaseThread,
        *,
        count_under_way: Callable[[], int | None],
        clock: Clock = time_since_boot,
    ) -> None:
        """Hold nothing yet."""
        self.held: set[int] = set()
        self._run_id = run_id
        self._token = token
        self._database = database
        self._count_under_way = count_under_way
        self._clock = clock
        self._renewed_at = clock()
        self._renewing = asyncio.Lock()

    def take(self, result_ids: Iterable[int]) -> None:
        """Hold results that were just claimed."""
        self.held.update(result_ids)

    def let_go(self, result_ids: Iterable[int]) -> None:
        """Hold results no more."""
        self.held.difference_update(result_ids)

    async def holds(self, result_id: int) -> bool:
        """Tell whether a result is still ours, asking the database when the last answer is old."""
        if self._is_doubtful():
            async with self._renewing:
                if self._is_doubtful():
                    await self.renew()
        return result_id in self.held

    async def renew(self) -> None:
        """Show that the hands are alive, and push the end of every lease that still is theirs."""
        asked_at, held = self._clock(), sorted(self.held)
        still = await self._database.do(
            renew_leases, self._run_id, self._token, held, under_way=self._count_under_way()
        )
        self.let_go(set(held) - still)
        self._renewed_at = asked_at

    def _is_doubtful(self) -> bool:
        return self._clock() - self._renewed_at > DOUBT_AFTER_S
