"""A pair of hands: one event loop that keeps many executions of one run in flight."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.utils import timezone

from evaluators.judging.client import ModelClient
from evaluators.kinds._base import Sandbox
from runs.engine import ExecutionOutcome, execute
from runs.execution.budget import Budget, BudgetedLimiter
from runs.execution.claiming import LEASE, Claim, begin_run, release_results, renew_leases
from runs.execution.database import DatabaseThread
from runs.execution.jobs import Job, claim_jobs
from runs.execution.ledger import Entry, spent_usd
from runs.execution.loading import RunWork
from runs.execution.ports import ExecutionPorts
from runs.execution.recording import Ended, RunState, read_state, write_down
from runs.execution.slots import SlotKeeper
from runs.models import ACTIVE_RUN_STATUSES
from runs.targets._base import Cause, TargetContext, TargetFailure

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 0.1
BATCH = 50
MOST_UNWRITTEN = 400
LOOK_EVERY_S = 1.0
MOST_STRETCH = 200
QUICK_REFILL_S = 0.5


class Hands:
    """Carries out results of one run until none waits, the run is stopped or its budget is spent."""

    def __init__(
        self, work: RunWork, token: str, database: DatabaseThread, *, sandbox: Sandbox | None = None
    ) -> None:
        """Hold nothing yet."""
        self.work = work
        self.token = token
        self.database = database
        self.sandbox = sandbox
        self.budget = Budget(work.budget_usd)
        self.slots = SlotKeeper(work, token, database)
        limiter = BudgetedLimiter(
            self.budget, self.slots.in_use, lease=self.slots.lease, report=self.slots.report
        )
        self.client = ModelClient(limiter)
        self.state: RunState | None = None
        self.waiting: asyncio.Queue[Job | None] = asyncio.Queue()
        self.held: set[int] = set()
        self.entries: list[Entry] = []
        self.ended: list[Ended] = []
        self.hungry = asyncio.Event()
        self.full = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.is_halted = False
        self.carriers: list[asyncio.Task[None]] = []

    async def work_off(self) -> RunState | None:
        """Work until nothing is left to claim; returns the last state of the run that was seen."""
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._write()), group.create_task(self._look())]
                self.carriers = [
                    group.create_task(self._carry()) for _ in range(self.work.concurrency)
                ]
                await self._feed()
                await asyncio.wait(self.carriers)
                for helper in helpers:
                    helper.cancel()
        finally:
            await self._close()
        return self.state

    async def _close(self) -> None:
        """Write what is unwritten, give back what was not begun, and end every connection."""
        await self._write_now()
        if self.held:
            held = sorted(self.held)
            await self.database.do(release_results, self.work.run_id, self.token, held)
        await self.slots.give_back()
        await self.client.aclose()

    async def _feed(self) -> None:
        """Claim a stretch at a time, and the next before the last is used up."""
        stretch, last = self.work.concurrency, float("-inf")
        loop = asyncio.get_running_loop()
        while not self.is_halted:
            is_quick = loop.time() - last < QUICK_REFILL_S
            stretch = min(stretch * 2, MOST_STRETCH) if is_quick else self.work.concurrency
            last = loop.time()
            jobs = await self.database.do(
                claim_jobs, self.work, token=self.token, most=stretch, now=timezone.now()
            )
            if not jobs:
                break
            self.held.update(job.claim.result_id for job in jobs)
            for job in jobs:
                self.waiting.put_nowait(job)
            self.hungry.clear()
            await self.hungry.wait()
        for _ in self.carriers:
            self.waiting.put_nowait(None)

    async def _carry(self) -> None:
        """Carry out one execution after the other."""
        low = self.work.concurrency // 2
        while True:
            if self.waiting.qsize() <= low:
                self.hungry.set()
            job = await self.waiting.get()
            if job is None or self.is_halted:
                return
            await self.room.wait()
            await self._carry_out(job)

    async def _carry_out(self, job: Job) -> None:
        ports = ExecutionPorts(
            work=self.work,
            context=TargetContext(
                self.work.plan.target.name, job.execution.case, recorded=job.recorded
            ),
            client=self.client,
            write_down=lambda record: self._note_call(job.claim, record),
            earlier=job.earlier,
            sandbox=self.sandbox,
        )
        if job.problem:
            outcome = ExecutionOutcome(failure=TargetFailure(job.problem, Cause.FAILED))
        else:
            outcome = await execute(job.execution, ports)
        if ports.is_refused:
            self.halt()
            return
        self.ended.append(Ended(job.claim, job.execution.root, outcome, timezone.now()))
        if len(self.ended) >= BATCH:
            self.full.set()
        if len(self.ended) >= MOST_UNWRITTEN:
            self.room.clear()
