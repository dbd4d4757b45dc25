"""Work on a job: ask models within its budget, and write every reply down before it is relied upon.

A job is read from the database by the function of its purpose, which returns what asks the models. It finds the
replies of a worker that was lost in the ledger, so only those in flight are asked for again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from django.db import IntegrityError

from evaluators.kinds._base import CaseFacts
from evaluators.model_calls.calls import CallKey, CallRecord, Ledger
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.judge import ModelJudge
from evaluators.model_calls.rate_limits import Limiter
from evaluators.models import ZERO_USD
from evaluators.reading.json import storable
from evaluators.sandbox.processes import process_name
from evaluators.templatetags.figures import money
from runs.execution.active_runs import LAST_REPLIES_S
from runs.execution.claims import RENEW_EVERY_S, time_since_boot
from runs.execution.database import DatabaseThread, describe_error, first_error, is_temporary
from runs.execution.execution_ports import ExecutionPorts
from runs.execution.ledger import (
    CallRefusedError,
    unlimited_reason,
    unpriced_model,
    write_job_calls,
)
from runs.execution.loading import Calls, RunWork, earlier_job_calls
from runs.execution.run_worker import LATE_REPLIES_S
from runs.execution.shared_limits import SlotKeeper
from runs.models.jobs import JobState, ModelJob
from runs.scripts import sandbox_in_force
from runs.target_kinds._base import TargetContext

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 0.25
LOOK_EVERY_S = 1.0
TAKEN = "The job was stopped, or another worker has it."
RELEASED = "The worker is about to end."


class JobFailedError(Exception):
    """The job cannot be done; the message says why. What its calls cost stays booked."""


@dataclass(slots=True)
class JobBudget:
    """The budget of a job: no call begins that could exceed it, as far as the dearest call so far tells.

    The dearest call is that of the same evaluator, by its path, "" for those of the job itself: what a model writes
    costs more than what it judges. Nobody knows what the first one costs, so it has all that is left to itself,
    and does not begin where the estimate is more than that. A call is named by its task.
    """

    cap: Decimal | None
    spent: Decimal = ZERO_USD
    dearest: dict[str, Decimal] = field(default_factory=dict)
    reserved: dict[Any, Decimal] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def reserve(self, call: Any, path: str, estimate_usd: Decimal = ZERO_USD) -> bool:
        """Reserve money for a call as soon as there is some; False where the budget does not cover it."""
        while self.cap is not None:
            others = sum(usd for key, usd in self.reserved.items() if key is not call)
            left = self.cap - self.spent - others
            amount = self.dearest.get(path, max(left, estimate_usd))
            if left > 0 and amount <= left:
                if call not in self.reserved:
                    # A call that is given up before it is sent has no record that would release it.
                    call.add_done_callback(lambda ended: self.book(ended, path, None))
                self.reserved[call] = amount
                break
            if not others:
                return False
            self.changed.clear()
            await self.changed.wait()
        return True

    def book(self, call: Any, path: str, usd: Decimal | None) -> None:
        """Note what a call cost, and release what it did not."""
        self.reserved.pop(call, None)
        if usd is not None:
            self.spent += usd
            self.dearest[path] = max(usd, self.dearest.get(path, ZERO_USD))
        self.changed.set()


class JobCalls:
    """The models that a job asks, and the ledger that it writes; a step of the job is a number of its own."""

    def __init__(self, job: ModelJob, task: JobTask) -> None:
        """Take over what was paid for before."""
        self.job, self.work = job, task.work
        self.refusal = ""
        self.is_budget_reached = False
        # The model of an answer whose cost is not known.
        self._unpriced = ""
        self.database = DatabaseThread()
        slots = SlotKeeper(task.work, job.token, self.database)
        limiter = Limiter(slots, clock=time_since_boot)
        self.client = ModelClient(limiter)
        self._earlier = task.earlier
        self._unwritten: list[tuple[int, CallRecord]] = []
        # Nothing ends it before the job is over for this worker.
        self.asking = asyncio.timeout(None)
        self._budget = JobBudget(job.budget_usd)
        for calls in task.earlier.values():
            for record in calls.values():
                self._budget.book(record, record.key.evaluator_path, record.cost_usd)
        # Those that were repeated, too.
        self._budget.spent = task.spent_usd

    def model(self, slug: str, step: int, *, estimate_usd: Decimal = ZERO_USD) -> ModelJudge:
        """Return a model that is asked in a step, where a call costs about `estimate_usd`."""
        ledger = self._ledger(step, "", estimate_usd)
        return ModelJudge(self.client, self.work.models, slug, ledger)

    def ports(
        self,
        path: str,
        case: CaseFacts,
        target: str,
        step: int,
        *,
        estimate_usd: Decimal = ZERO_USD,
    ) -> ExecutionPorts:
        """Return the ports by which the evaluator at `path` scores what a target answered to a case, in a step."""
        ledger, plan = self._ledger(step, path, estimate_usd), self.work.plan
        return ExecutionPorts(
            work=replace(self.work, plan=replace(plan, target=replace(plan.target, name=target))),
            context=TargetContext(target, case, files=self.work.files),
            client=self.client,
            admit=ledger.admit,
            begin=ledger.begin,
            write_down=ledger.record,
            earlier=self._earlier.get(step, {}),
            sandbox=sandbox_in_force(),
        )

    def close(self, reason: str) -> None:
        """Refuse every further call."""
        self.refusal = self.refusal or reason

    def abort(self, reason: str, *, late_replies_s: float) -> None:
        """Refuse every further call, and wait that long for the replies to those in flight, which are paid for."""
        self.close(reason)
        until = asyncio.get_running_loop().time() + late_replies_s
        # It has ended already where nothing is asked any more.
        with suppress(RuntimeError):
            self.asking.reschedule(min(until, self.asking.when() or until))

    def shut_down(self) -> None:
        """End the work on the job because the process is about to end."""
        self.database.shut_down()
        self.abort(RELEASED, late_replies_s=LAST_REPLIES_S)

    async def write(self) -> None:
        """Write the replies that came since the last time."""
        calls, self._unwritten = self._unwritten, []
        if calls and not await self.database.do(self._write, calls):
            # The heartbeat would only notice seconds later, when all calls have begun.
            self.abort(TAKEN, late_replies_s=LATE_REPLIES_S)

    def _write(self, calls: list[tuple[int, CallRecord]]) -> bool:
        """Write replies; return False when the job was stopped or deleted, or another worker has it."""
        jobs = ModelJob.objects.filter(pk=self.job.pk)
        try:
            write_job_calls(self.job, self.work, calls)
        except IntegrityError:
            if jobs.exists():
                raise
            # Its suite was deleted, and all calls with it.
            return False
        is_held = bool(jobs.filter(token=self.job.token, state=JobState.RUNNING).update(tries=0))
        if not is_held:
            jobs.forget_late_replies()
        return is_held

    def _ledger(self, step: int, path: str, estimate_usd: Decimal) -> Ledger:
        earlier = self._earlier.get(step, {})

        def recall(key: CallKey, request_hash: str) -> CallRecord | None:
            return earlier.get((key, request_hash))

        async def admit() -> None:
            await self.database.is_there.wait()
            has_room = await self._budget.reserve(asyncio.current_task(), path, estimate_usd)
            if self._unpriced and self.job.budget_usd is not None and not self.refusal:
                self.is_budget_reached = True
                self.close(unlimited_reason(self._unpriced))
            if self.refusal:
                self._budget.book(asyncio.current_task(), path, None)
                raise CallRefusedError(self.refusal)
            if not has_room:
                self.is_budget_reached = True
                self.close(f"The budget of {money(self.job.budget_usd)} leaves no room for a call.")
                raise CallRefusedError(self.refusal)

        def record(call: CallRecord) -> None:
            self._budget.book(asyncio.current_task(), path, call.cost_usd)
            self._unwritten.append((step, call))
            self._unpriced = self._unpriced or unpriced_model(call, self.work.models)

        return Ledger(recall, record, admit)


# Reads what a job needs, and returns what asks the models: its outcome so far, also where calls were refused.
AskModels = Callable[[JobCalls], Awaitable[Mapping[str, Any]]]
ReadJob = Callable[[ModelJob], tuple[RunWork, AskModels]]


def work_on_job(job_id: int, read_jobs: Mapping[str, ReadJob]) -> None:
    """Do a job, by its purpose; do nothing when it is gone, over, or another worker has it."""
    job = None if _active_jobs.is_closed else ModelJob.objects.claim(job_id, process_name())
    if job is None:
        return
    try:
        work, ask_models = read_jobs[job.purpose](job)
        task = JobTask(work, ask_models, earlier_job_calls(job), job.spent_usd())
        asyncio.run(_do(job, task))
    except Exception as error:
        failure = first_error(error)
        if is_temporary(failure):
            # The reaper gives it to the next worker once the database answers.
            raise
        if isinstance(failure, JobFailedError):
            reason = str(failure)
        else:
            logger.exception("Job %s crashed", job_id)
            reason = describe_error(error)
        job.finish(JobState.FAILED, job.outcome, reason)


def finish_job(job_id: int, read_jobs: Mapping[str, ReadJob]) -> None:
    """Do a job here; while another worker has it, wait for that one, and continue the job if it ends."""
    work_on_job(job_id, read_jobs)
    while ModelJob.objects.open().filter(pk=job_id).exists():
        time.sleep(LOOK_EVERY_S)
        work_on_job(job_id, read_jobs)


@dataclass(frozen=True, slots=True)
class JobTask:
    """What a job needs to be done, as it was read from the database."""

    work: RunWork
    ask_models: AskModels
    earlier: Mapping[int, Calls]
    spent_usd: Decimal


def release() -> None:
    """Release the jobs that this process works on because it is about to end."""
    _active_jobs.shut_down()


class ActiveJobs:
    """The jobs that one process works on, for all its threads."""

    def __init__(self) -> None:
        """Work on nothing yet."""
        self.is_closed = False
        self._lock = threading.Lock()
        self._loops: dict[JobCalls, asyncio.AbstractEventLoop] = {}

    @contextmanager
    def at_work(self, calls: JobCalls) -> Iterator[None]:
        """Let `shut_down` find the calls of a job."""
        with self._lock:
            self._loops[calls] = asyncio.get_running_loop()
            if self.is_closed:
                calls.shut_down()
        try:
            yield
        finally:
            with self._lock:
                del self._loops[calls]

    def shut_down(self) -> None:
        """Make every job end its calls and wait for another worker; take no other."""
        with self._lock:
            self.is_closed = True
            for calls, loop in self._loops.items():
                loop.call_soon_threadsafe(calls.shut_down)


_active_jobs = ActiveJobs()


async def _do(job: ModelJob, task: JobTask) -> None:
    calls, outcome = JobCalls(job, task), job.outcome
    async with _kept(job, calls):
        try:
            async with calls.asking:
                with _active_jobs.at_work(calls):
                    outcome = storable(await task.ask_models(calls))
        except TimeoutError:
            # The ledger has what came in time.
            if not calls.asking.expired():
                raise
        await calls.write()
        if calls.refusal == RELEASED:
            await calls.database.do(job.release)
            return
        state = JobState.DONE
        if calls.refusal:
            state = JobState.BUDGET_REACHED if calls.is_budget_reached else JobState.STOPPED
        await calls.database.do(job.finish, state, outcome, calls.refusal)


@asynccontextmanager
async def _kept(job: ModelJob, calls: JobCalls) -> AsyncIterator[None]:
    """Write replies and renew the heartbeat meanwhile, and close everything at the end."""
    keeping = asyncio.ensure_future(_keep(job, calls))
    try:
        yield
    finally:
        keeping.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await keeping
            await calls.write()
        finally:
            await calls.client.aclose()
            await calls.client.limiter.aclose()
            calls.database.close()


async def _keep(job: ModelJob, calls: JobCalls) -> None:
    renewed_at = time_since_boot()
    while True:
        await asyncio.sleep(WRITE_EVERY_S)
        await calls.write()
        if time_since_boot() >= renewed_at + RENEW_EVERY_S / 2:
            renewed_at = time_since_boot()
            await calls.client.limiter.renew()
            if not await calls.database.do(job.keep):
                calls.abort(TAKEN, late_replies_s=LATE_REPLIES_S)
