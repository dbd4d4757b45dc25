"""A pair of hands: one event loop that keeps many executions of one run in flight."""

from __future__ import annotations

import asyncio

from django.utils import timezone

from evaluators.judging.client import ModelClient
from evaluators.kinds._base import Sandbox
from runs.engine import ExecutionOutcome, execute
from runs.execution.budget import Budget, BudgetedLimiter
from runs.execution.claiming import release_results
from runs.execution.database import DatabaseThread
from runs.execution.jobs import Job, claim_jobs
from runs.execution.loading import RunWork
from runs.execution.ports import ExecutionPorts
from runs.execution.recording import Ended, RunState
from runs.execution.slots import SlotKeeper
from runs.execution.writing import Desk
from runs.plan import Cause, TargetFailure
from runs.targets._base import TargetContext

MOST_STRETCH = 200
QUICK_REFILL_S = 0.5


class Hands:
    """Carries out results of one run until none waits, the run ends, or its budget is spent.

    `halt` lets what is in flight end and takes nothing new; `drop` lets go of everything at once.
    """

    def __init__(
        self, work: RunWork, token: str, database: DatabaseThread, *, sandbox: Sandbox | None = None
    ) -> None:
        """Hold nothing yet."""
        self.work = work
        self.token = token
        self.sandbox = sandbox
        self.is_halted = False
        self._database = database
        self._desk = Desk(work, token, database, halt=self.halt, drop=self.drop)
        self._slots = SlotKeeper(work, token, database)
        limiter = BudgetedLimiter(
            self._desk.budget,
            self._slots.in_use,
            lease=self._slots.lease,
            report=self._slots.report,
        )
        self._client = ModelClient(limiter)
        self._waiting: asyncio.Queue[Job | None] = asyncio.Queue()
        self._hungry = asyncio.Event()
        self._carriers: list[asyncio.Task[None]] = []

    async def work_off(self) -> RunState | None:
        """Work until nothing is left to claim; returns how the run was last seen."""
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self._desk.write_regularly()),
                    group.create_task(self._desk.look_regularly(self._client.limiter.renew)),
                ]
                self._carriers = [
                    group.create_task(self._carry()) for _ in range(self.work.concurrency)
                ]
                await self._feed()
                await asyncio.wait(self._carriers)
                self._desk.end()
                await asyncio.wait(helpers)
        finally:
            await self._close()
        return self._desk.state

    @property
    def budget(self) -> Budget:
        """Return what the run may spend and has spent."""
        return self._desk.budget

    def halt(self) -> None:
        """Take nothing new."""
        self.is_halted = True
        self._hungry.set()

    def drop(self) -> None:
        """Let go of everything: what is in flight is cancelled and will not be recorded."""
        self.halt()
        for carrier in self._carriers:
            carrier.cancel()

    async def _close(self) -> None:
        """Write what is unwritten, give back what was not carried out, and end every connection."""
        self._desk.end()
        await self._client.aclose()
        await self._desk.write_now()
        held = sorted(self._desk.held)
        if held:
            await self._database.do(release_results, self.work.run_id, self.token, held)
        await self._slots.give_back()

    async def _feed(self) -> None:
        """Claim a stretch at a time, and the next before the last is used up."""
        stretch, last = self.work.concurrency, float("-inf")
        clock = asyncio.get_running_loop().time
        while not self.is_halted:
            is_quick = clock() - last < QUICK_REFILL_S
            stretch = min(stretch * 2, MOST_STRETCH) if is_quick else self.work.concurrency
            last = clock()
            self._hungry.clear()
            jobs = await self._database.do(
                claim_jobs, self.work, token=self.token, most=stretch, now=timezone.now()
            )
            if not jobs:
                break
            self._desk.held.update(job.claim.result_id for job in jobs)
            for job in jobs:
                self._waiting.put_nowait(job)
            await self._hungry.wait()
        for _ in self._carriers:
            self._waiting.put_nowait(None)

    async def _carry(self) -> None:
        """Carry out one execution after the other."""
        low = self.work.concurrency // 2
        while True:
            if self._waiting.qsize() <= low:
                self._hungry.set()
            job = await self._waiting.get()
            if job is None or self.is_halted:
                return
            await self._desk.room.wait()
            await self._carry_out(job)

    async def _carry_out(self, job: Job) -> None:
        name = self.work.plan.target.name
        ports = ExecutionPorts(
            work=self.work,
            context=TargetContext(name, job.execution.case, recorded=job.recorded),
            client=self._client,
            write_down=self._desk.caller_of(job.claim),
            earlier=job.earlier,
            sandbox=self.sandbox,
        )
        if job.problem:
            outcome = ExecutionOutcome(failure=TargetFailure(job.problem, Cause.FAILED))
        else:
            outcome = await execute(job.execution, ports)
        if ports.is_refused:
            self.halt()
        else:
            self._desk.put(Ended(job.claim, job.execution.root, outcome, timezone.now()))
