"""A pair of hands: one event loop that keeps many executions of one run in flight."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from evaluators.judging.calls import CallRecord
from evaluators.judging.client import ModelClient
from evaluators.judging.limits import Limiter
from evaluators.kinds._base import Sandbox
from runs.engine import ExecutionOutcome, execute
from runs.execution.admission import Admission, CallRefusedError
from runs.execution.agents import AgentClient
from runs.execution.budget import Budget
from runs.execution.claiming import hide_hand, release_held
from runs.execution.courtesy import Courtesy
from runs.execution.database import DatabaseThread
from runs.execution.ended_rows import Ended
from runs.execution.jobs import Job, claim_jobs
from runs.execution.leasing import Leases, time_since_boot
from runs.execution.loading import RunWork
from runs.execution.ports import ExecutionPorts
from runs.execution.recording import RunState
from runs.execution.slots import SlotKeeper
from runs.execution.writing import Desk
from runs.plan import Cause, TargetFailure
from runs.targets._base import TargetContext

MOST_STRETCH = 200
QUICK_REFILL_S = 0.5
# How long calls in flight may still answer, because they are paid: after a stop, and when the
# process itself is told to end.
LATE_REPLIES_S = 60.0
LAST_REPLIES_S = 8.0


class Hands:
    """Carries out results of one run until none waits, the run ends, or its budget is spent.

    `halt` lets what is in flight end and takes nothing new; `drop` lets only the calls in flight
    end, so that they are booked, and then lets go of everything.
    """

    def __init__(
        self, work: RunWork, token: str, database: DatabaseThread, *, sandbox: Sandbox | None = None
    ) -> None:
        """Hold nothing yet."""
        self.work = work
        self.token = token
        self.sandbox = sandbox
        self.is_halted = False
        self.under_way = 0
        self._database = database
        self._leases = Leases(work.run_id, token, database, count_under_way=self._shown_under_way)
        self._desk = Desk(
            work, token, database, leases=self._leases, halt=self.halt, drop=self.drop
        )
        self._admission = Admission(self._leases, self._desk.budget, database, self._desk.room)
        self._limiter = Limiter(SlotKeeper(work, token, database), clock=time_since_boot)
        self._client = ModelClient(self._limiter)
        self._agents = AgentClient()
        self._courtesy = Courtesy()
        self._waiting: asyncio.Queue[Job | None] = asyncio.Queue()
        self._hungry = asyncio.Event()
        self._carriers: list[asyncio.Task[None]] = []
        self._dropping: asyncio.Task[None] | None = None

    async def work_off(self) -> RunState | None:
        """Work until nothing is left to claim; returns how the run was last seen."""
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self._desk.write_regularly()),
                    group.create_task(self._desk.look_regularly(self._renew_limits)),
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

    @property
    def were_dropped(self) -> bool:
        """Tell whether the run was over for these hands before they were done."""
        return self._dropping is not None

    def _shown_under_way(self) -> int | None:
        return None if self.were_dropped else self.under_way

    def halt(self) -> None:
        """Take nothing new."""
        self.is_halted = True
        self._hungry.set()

    def drop(self, *, late_replies_s: float = LATE_REPLIES_S) -> None:
        """Make no more calls, give those in flight so long to answer, and let go of everything."""
        self.halt()
        self._admission.close("The run is over for these hands.")
        if self._dropping is None or late_replies_s < LATE_REPLIES_S:
            self._dropping = asyncio.ensure_future(self._let_go(late_replies_s))

    def hurry(self) -> None:
        """Let go of everything within seconds: the process is about to end."""
        self._database.hurry()
        self.drop(late_replies_s=LAST_REPLIES_S)

    async def _let_go(self, late_replies_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(late_replies_s):
                # Nobody should wait for these hands: a run that is on again is given others.
                await self._database.do(hide_hand, self.token)
                await self._admission.idle.wait()
        for carrier in self._carriers:
            carrier.cancel()

    async def _close(self) -> None:
        """Write what is unwritten, give back what was not carried out, and end every connection."""
        if self._dropping is not None:
            self._dropping.cancel()
        self._desk.end()
        await self._client.aclose()
        await self._agents.aclose()
        await self._desk.write_now()
        await self._database.do(release_held, self.work.run_id, self.token)
        await self._limiter.aclose()

    async def _feed(self) -> None:
        """Claim a stretch at a time, and the next before the last is used up."""
        stretch, last = self.work.concurrency, float("-inf")
        clock = asyncio.get_running_loop().time
        while not self.is_halted:
            is_quick = clock() - last < QUICK_REFILL_S
            stretch = min(stretch * 2, MOST_STRETCH) if is_quick else self.work.concurrency
            last = clock()
            self._hungry.clear()
            jobs = await self._database.do_knowing(partial(self._claim, stretch))
            if not jobs:
                break
            self._leases.take(job.claim.result_id for job in jobs)
            for job in jobs:
                self._waiting.put_nowait(job)
            await self._hungry.wait()
        for _ in self._carriers:
            self._waiting.put_nowait(None)

    def _claim(self, most: int, is_repeated: bool) -> list[Job]:
        held = self._leases.held
        return claim_jobs(
            self.work, token=self.token, most=most, held=held, is_repeated=is_repeated
        )

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
            await self._courtesy.give_way()
            # What was lost to other hands while it waited here is theirs to carry out.
            if await self._leases.holds(job.claim.result_id):
                self.under_way += 1
                try:
                    await self._carry_out(job)
                finally:
                    self.under_way -= 1

    async def _carry_out(self, job: Job) -> None:
        name = self.work.plan.target.name
        ports = ExecutionPorts(
            work=self.work,
            context=TargetContext(
                name,
                job.execution.case,
                recorded=job.recorded,
                files=self.work.files,
                sandbox=self.sandbox,
            ),
            client=self._client,
            admit=partial(self._admission.admit, job.claim.result_id),
            begin=self._admission.begin,
            write_down=partial(self._put_call, job),
            earlier=job.earlier,
            agents=self._agents,
            sandbox=self.sandbox,
        )
        if job.problem:
            outcome = ExecutionOutcome(failure=TargetFailure(job.problem, Cause.FAILED))
        else:
            outcome = await execute(job.execution, ports)
        if not ports.is_refused:
            self._desk.put(Ended(job.claim, job.execution.root, outcome))
        elif self.budget.is_spent():
            self.halt()

    def _put_call(self, job: Job, record: CallRecord) -> None:
        self._admission.end()
        self._desk.put_call(job.claim, record)
        self._mind_budget()

    def _mind_budget(self) -> None:
        """Let no call wait for a slot or for the minute only to be refused when its turn has come."""
        if self.budget.is_used_up:
            self._limiter.turn_away(CallRefusedError(self.budget.in_words()))

    async def _renew_limits(self) -> None:
        self._mind_budget()
        await self._limiter.renew()
