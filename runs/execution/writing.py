"""The desk of a pair of hands: what came in is collected, written in batches, and the run watched."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal

from evaluators.judging.calls import CallRecord
from evaluators.models import ZERO_USD
from runs.execution.budget import Budget
from runs.execution.claiming import Claim
from runs.execution.database import DatabaseThread
from runs.execution.ended_rows import Ended
from runs.execution.leasing import RENEW_EVERY_S, Leases
from runs.execution.ledger import Entry, spent_usd
from runs.execution.loading import RunWork
from runs.execution.recording import BREAKER, RunState, read_state, write_down
from runs.execution.salvaging import salvage
from runs.models import ACTIVE_RUN_STATUSES

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 0.1
BATCH = 50
MOST_UNWRITTEN = 200
LOOK_EVERY_S = min(1.0, RENEW_EVERY_S)
RENEW_EVERY_LOOKS = round(RENEW_EVERY_S / LOOK_EVERY_S)


class Desk:
    """Collects calls and ended executions of one pair of hands, and writes them down.

    `room` is open while not too much is unwritten, `state` is how the run was last seen. A run
    that is over, or was stopped and goes on without these hands, makes the hands `drop`; a target
    that fails every execution alike makes them `halt`.
    """

    def __init__(
        self,
        work: RunWork,
        token: str,
        database: DatabaseThread,
        *,
        leases: Leases,
        halt: Callable[[], None],
        drop: Callable[[], None],
    ) -> None:
        """Start with an empty desk."""
        self.room = asyncio.Event()
        self.room.set()
        self.budget = Budget(work.budget_usd)
        self.state: RunState | None = None
        self._work = work
        self._token = token
        self._database = database
        self._leases = leases
        self._halt = halt
        self._drop = drop
        self._entries: list[Entry] = []
        self._ended: list[Ended] = []
        self._full = asyncio.Event()
        self._ending = asyncio.Event()

    def put_call(self, claim: Claim, record: CallRecord) -> None:
        """Take a call made under a claim."""
        self.budget.unbooked += record.cost_usd or ZERO_USD
        if self._work.clock_offset:
            record = replace(record, created_at=record.created_at + self._work.clock_offset)
        self._entries.append(Entry(claim.result_id, claim.generation, claim.attempt, record))

    def put(self, ended: Ended) -> None:
        """Take an execution that ended."""
        self._ended.append(ended)
        if len(self._ended) >= BATCH:
            self._full.set()
        if len(self._ended) >= MOST_UNWRITTEN or self._looks_broken():
            self._full.set()
            self.room.clear()

    def _looks_broken(self) -> bool:
        """Tell whether so far nothing but target errors came in, enough of them to end the run."""
        is_first = self.state is None or self.state.done_count == self.state.error_count
        return (
            is_first
            and not self._work.target.replays
            and len(self._ended) >= BREAKER
            and all(one.outcome.failure is not None for one in self._ended)
        )

    def end(self) -> None:
        """Let the regular work come to its end."""
        self._ending.set()
        self._full.set()

    async def write_regularly(self) -> None:
        """Write what came in, every batch and every tenth of a second."""
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WRITE_EVERY_S):
                    await self._full.wait()
            await self.write_now()

    async def write_now(self) -> None:
        """Write what came in."""
        if not self._ending.is_set():
            self._full.clear()
        entries, self._entries = self._entries, []
        ended, self._ended = self._ended, []
        if not (entries or ended):
            return

        def write(is_repeated: bool) -> RunState:
            return salvage(
                write_down,
                self._work,
                self._token,
                entries=entries,
                ended=ended,
                is_repeated=is_repeated,
            )

        state = await self._database.do_knowing(write)
        self._leases.let_go(one.claim.result_id for one in ended)
        self.room.set()
        if state.stale:
            # Of a run that has ended meanwhile nothing else is to be expected.
            logger.log(
                logging.WARNING if state.status in ACTIVE_RUN_STATUSES else logging.DEBUG,
                "Run %s: records of results %s came too late and were refused",
                self._work.run_id,
                state.stale,
            )
        self._take_in(state, spent=spent_usd(entry.record for entry in entries))

    async def look_regularly(self, renew_slots: Callable[[], Awaitable[None]]) -> None:
        """Look every second whether the run is still on; every few seconds show that we are alive."""
        looks = 0
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._ending.wait()
                    return
            looks += 1
            self._take_in(await self._database.do(read_state, self._work.run_id))
            if looks % RENEW_EVERY_LOOKS == 0:
                await self._leases.renew()
                await renew_slots()

    def _take_in(self, state: RunState, *, spent: Decimal = ZERO_USD) -> None:
        """Act on what the database says of the run; that its target is broken is told only once."""
        earlier = self.state.broken_target if self.state is not None else ""
        self.state = replace(state, broken_target=state.broken_target or earlier)
        self.budget.unbooked -= spent
        # What a replayed output once cost is not spent now.
        target_usd = ZERO_USD if self._work.target.replays else state.run_cost_usd
        self.budget.booked = state.evaluation_cost_usd + target_usd
        is_ours = state.started_at == self._work.started_at
        if state.status not in ACTIVE_RUN_STATUSES or not is_ours:
            self._drop()
        elif self.state.broken_target:
            self._halt()
