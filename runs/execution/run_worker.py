"""Execute the waiting results of a run until none is left.

`work_on_run` is the entry. It loads the run, works on it in an event loop, and ends it. `RunLoop` claims results and
keeps many executions in flight. `RequestPriority` lets page requests of the same process go first.
`freeze_loaded_objects` takes load off the garbage collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from evaluators.kinds._base import Sandbox
from evaluators.model_calls.calls import CallRecord
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.rate_limits import Limiter
from evaluators.models import ZERO_USD
from evaluators.scoring.types import DomainError
from runs.engine.execute import execute
from runs.engine.ports import Cause, ExecutionOutcome, TargetFailure
from runs.execution.active_runs import ActiveRuns, RunSlot
from runs.execution.claims import (
    Job,
    Leases,
    begin_run,
    claim_jobs,
    release_held,
    time_since_boot,
    waits_alone,
)
from runs.execution.database import (
    DatabaseThread,
    Patience,
    first_error,
    is_temporary,
    note_crash,
    note_error,
)
from runs.execution.execution_ports import ExecutionPorts
from runs.execution.large_texts import MemberTexts
from runs.execution.ledger import Admission, Budget, CallRefusedError
from runs.execution.loading import RunWork, load_work
from runs.execution.result_writer import EndedExecution, ResultWriter, RunState
from runs.execution.shared_limits import SlotKeeper
from runs.execution.shares import (
    Share,
    agree_on_money,
    agree_on_share,
    register_run_worker,
    unregister_run_worker,
)
from runs.finishing import complete_run, finish_run, summarise_run
from runs.models.database import database_now
from runs.models.runs import ALL_ALIKE, Run, RunStatus
from runs.queue import WORK_ON_RUN, queue
from runs.scripts import sandbox_in_force
from runs.target_kinds._base import TargetContext

if TYPE_CHECKING:
    from runs.execution.agents import AgentClient

logger = logging.getLogger(__name__)

# About ten times what an execution without calls takes, so that a page gets nine tenths of the interpreter.
YIELD_S = 0.01
# About twice what a part of a file takes to write, of which a file has tens of thousands.
FILE_PART_WAIT_S = 0.002
# The longest that a batch of claims or records waits while page requests follow each other.
MAX_BATCH_WAIT_S = 0.1
MAX_BATCH = 500
QUICK_REFILL_S = 1.0
SHARE_EVERY_S = 1.0
# While a worker waits for its share, or gives up what it has beyond it.
REBALANCE_EVERY_S = 0.25
# While a worker waits for money that others have reserved.
MONEY_EVERY_S = 0.2
# Calls in flight are paid for, so a stopped run waits this long for their replies.
LATE_REPLIES_S = 60.0
# Giving up before or after the work loses nothing: the reaper finds the remaining work.
WAIT_S = 30.0
# Once when a worker starts, and again with its first runs, which load pages, prices and kinds.
MAX_FREEZES = 3

IsAnybodyWaiting = Callable[[], bool]
Sleep = Callable[[float], Awaitable[object]]
Value = TypeVar("Value")


def work_on_run(run_id: int, *, owner_id: str = "") -> bool:
    """Claim and execute results of a run until none is left to claim; safe to call repeatedly.

    Workers (`owner_id` "") do not touch runs of a command line, and a command line does not touch
    theirs. False when another process may do it: this one works on the run already, or its member has all
    places here but one, so that runs of others never wait for one member's. Then the run is kept for the
    next of these places that is free.
    """
    member = None if owner_id else with_live_connection(partial(_member, run_id))
    slot = _active_runs.take(run_id, member)
    if slot is None:
        return False
    freeze_loaded_objects()
    try:
        _work(slot, owner_id)
        while not _active_runs.give_back(slot):
            _work(slot, owner_id)
    except BaseException:
        _active_runs.drop(slot)
        raise
    finally:
        if (deferred := _active_runs.next_deferred(member)) is not None:
            queue(WORK_ON_RUN, deferred, expires_s=WAIT_S)
    return True


def _member(run_id: int) -> int | None:
    """Return who started a run, None for nobody."""
    return Run.objects.filter(id=run_id).values_list("created_by", flat=True).first()


def is_deferred(run_id: int) -> bool:
    """Tell whether this process keeps a run until its member has a place here."""
    return _active_runs.is_deferred(run_id)


def offer_places(places: int) -> None:
    """Tell how many tasks this process does at once."""
    _active_runs.places = places


def tokens_at_work() -> list[str]:
    """Return the tokens under which this process holds results now."""
    return _active_runs.tokens()


def release() -> None:
    """Release everything this process works on because it is about to end."""
    _active_runs.shut_down()


def release_run(run_id: int) -> None:
    """Release everything that this process holds of one run within seconds, and take nothing new of it."""
    _active_runs.shut_down_run(run_id)


def _work(slot: RunSlot, owner_id: str = "") -> None:
    try:
        while _execute_run(slot, owner_id):
            pass
    except Exception as error:
        _after_crash(slot.run_id, error)
        raise


def _execute_run(slot: RunSlot, owner_id: str) -> bool:
    """Execute results until none is left to claim, and tell whether one waits that is executed alone."""
    run_id = slot.run_id
    run = with_live_connection(Run.objects.filter(id=run_id, owner_id=owner_id).first)
    if run is None or not run.is_active:
        return False
    with_live_connection(lambda: begin_run(run_id, now=database_now()))
    with_live_connection(lambda: run.refresh_from_db(fields=["started_at"]))
    try:
        work = with_live_connection(lambda: load_work(run))
    except (DomainError, ValueError, KeyError, TypeError) as error:
        logger.exception("Run %s cannot be executed", run_id)
        _fail(run_id, f"The run cannot be executed: {error}")
        return False
    with _registered(run_id) as token:
        run_loop, state = _run_loop(work, token, slot)
    with_live_connection(lambda: _conclude(work, run_loop, state))
    if run_loop.is_draining:
        return False
    return with_live_connection(partial(waits_alone, run_id, owner_id))


def with_live_connection(function: Callable[[], Value]) -> Value:
    """Return the function's value, even if this thread's idle connection has died.

    Raises the database's own error when it stays away for half a minute.
    """
    return Patience(patience_s=WAIT_S).call(lambda is_repeated: function())


@contextmanager
def _registered(run_id: int) -> Iterator[str]:
    """List the worker under its own token while it works."""
    token = secrets.token_hex(16)
    with_live_connection(
        lambda: register_run_worker(run_id, token, under_way=0, now=database_now())
    )
    try:
        yield token
    finally:
        with_live_connection(lambda: unregister_run_worker(token))


def _run_loop(work: RunWork, token: str, slot: RunSlot) -> tuple[RunLoop, RunState | None]:
    database = DatabaseThread(partial(pause_for_requests, at_most_s=MAX_BATCH_WAIT_S))

    async def run_to_end() -> tuple[RunLoop, RunState | None]:
        texts = _active_runs.texts_of(slot.member)
        run_loop = RunLoop(work, token, database, sandbox=sandbox_in_force(), texts=texts)
        _active_runs.show(slot, run_loop)
        return run_loop, await run_loop.run_to_end()

    try:
        return asyncio.run(run_to_end())
    finally:
        database.close()
        # All generations: this run's loop lives a moment longer and goes into the oldest, where Python's collector
        # finds it after millions of objects. The next run's end does.
        gc.collect()


def _conclude(work: RunWork, run_loop: RunLoop, state: RunState | None) -> None:
    """End the run if its budget is spent or cannot be kept, its target is broken, or its last result is written."""
    if run_loop.is_aborted:
        # The run ended without this worker and may be active again, so what it saw is out of date.
        summarise_run(work.run_id)
        complete_run(work.run_id)
    elif state is not None and state.broken_target:
        _fail(work.run_id, f"{ALL_ALIKE} {state.broken_target}")
    elif run_loop.budget.was_reached:
        _conclude_at_budget(work, run_loop.budget)
    else:
        complete_run(work.run_id)


def _conclude_at_budget(work: RunWork, budget: Budget) -> None:
    """End the run if its present budget covers no more result, by what all workers have booked by now."""
    if budget.unpriced:
        _fail(work.run_id, budget.describe())
        return
    run = Run.objects.only("budget_usd", "run_cost_usd", "evaluation_cost_usd").get(id=work.run_id)
    # Replayed outputs cost nothing.
    target_usd = ZERO_USD if work.is_replayed else run.run_cost_usd
    budget.cap, budget.booked = run.budget_usd, run.evaluation_cost_usd + target_usd
    if budget.covers_another:
        complete_run(work.run_id)
    else:
        reason = budget.describe()
        finish_run(work.run_id, RunStatus.BUDGET_REACHED, reason=reason, in_background=False)


def _fail(run_id: int, reason: str) -> None:
    finish_run(run_id, RunStatus.FAILED, reason=reason, in_background=False)


def _after_crash(run_id: int, error: Exception) -> None:
    """Record why a worker crashed; a run that crashes workers repeatedly fails."""
    reason = note_error(error)
    if not is_temporary(first_error(error)) and note_crash(run_id, reason):
        _fail(run_id, f"The run cannot be executed: {reason}")


_active_runs = ActiveRuns()


class RunLoop:
    """Executes results of one run until none waits, the run ends, or its budget is spent.

    All workers together keep as many in flight as the run allows. `drain` takes nothing new and lets
    executions in flight end. `abort` lets only calls in flight end, so that their cost is recorded, and
    then releases everything.
    """

    def __init__(
        self,
        work: RunWork,
        token: str,
        database: DatabaseThread,
        *,
        sandbox: Sandbox | None = None,
        texts: MemberTexts | None = None,
    ) -> None:
        """Hold nothing yet."""
        self.work = work
        self.token = token
        self.sandbox = sandbox
        self.is_draining = False
        self._database = database
        self._texts = texts or MemberTexts()
        self._leases = Leases(
            work.run_id,
            token,
            database,
            count_under_way=lambda: self.under_way,
            released=self._texts.release,
        )
        self._writer = ResultWriter(
            work, token, database, leases=self._leases, drain=self.drain, abort=self.abort
        )
        self._admission = Admission(self._leases, self._writer.budget, database, self._writer.room)
        self._limiter = Limiter(SlotKeeper(work, token, database), clock=time_since_boot)
        self._client = ModelClient(self._limiter)
        self._agents = _agent_client(work)
        self._request_priority = RequestPriority()
        self._waiting: asyncio.Queue[Job | None] = asyncio.Queue()
        self._needs_refill = asyncio.Event()
        self._share = Share(even=0, reserved=0)
        self._is_all_claimed = False
        self._consumers: set[asyncio.Task[None]] = set()
        self._executed_by: dict[asyncio.Task[None] | None, int] = {}
        self._no_consumers_left = asyncio.Event()
        self._aborting: asyncio.Task[None] | None = None
        self._asking_for_money = asyncio.Lock()
        self._stored_grant = ZERO_USD
        self._is_money_released = asyncio.Event()

    async def run_to_end(self) -> RunState | None:
        """Work until nothing is left to claim; return the last known state of the run."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._agree_on_share(group)
                helpers = [
                    group.create_task(self._writer.write_batches()),
                    group.create_task(
                        self._writer.watch_run(self._renew_limits, self._give_back_money)
                    ),
                    group.create_task(self._keep_share(group)),
                ]
                await self._produce()
                while at_work := [task for task in self._consumers if not task.done()]:
                    await asyncio.wait(at_work)
                self._no_consumers_left.set()
                self._writer.end()
                await asyncio.wait(helpers)
        finally:
            try:
                await self._close()
            finally:
                self._leases.release(tuple(self._leases.held))
        return self._writer.state

    @property
    def budget(self) -> Budget:
        """Return the budget of the run and its spending."""
        return self._writer.budget

    @property
    def under_way(self) -> int:
        """Return how many results are being executed."""
        return len(self._executed_by)

    @property
    def is_aborted(self) -> bool:
        """Tell whether the run was over for this worker before its work was done."""
        return self._aborting is not None

    def drain(self) -> None:
        """Take nothing new."""
        self.is_draining = True
        self._needs_refill.set()

    def abort(self, *, late_replies_s: float = LATE_REPLIES_S) -> None:
        """Make no more calls, wait that long for those in flight, and release everything.

        Until then they count in the concurrency and the budget of the run, which may have been resumed.
        """
        self.drain()
        self._admission.close("The run is over for this worker.")
        if self._aborting is None:
            for consumer in self._consumers:
                if self._executed_by.get(consumer) not in self._admission.in_flight:
                    consumer.cancel()
        if self._aborting is None or late_replies_s < LATE_REPLIES_S:
            self._aborting = asyncio.ensure_future(self._release(late_replies_s))

    def shut_down(self, *, late_replies_s: float) -> None:
        """Release everything because the process is about to end."""
        self._database.shut_down()
        self.abort(late_replies_s=late_replies_s)

    async def _release(self, late_replies_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(late_replies_s):
                await self._admission.idle.wait()
        for consumer in tuple(self._consumers):
            consumer.cancel()

    async def _close(self) -> None:
        """Write what is unwritten, release what was not executed, and close every connection."""
        if self._aborting is not None:
            self._aborting.cancel()
        self._writer.end()
        await self._client.aclose()
        if self._agents is not None:
            await self._agents.aclose()
        await self._writer.write_now()
        await self._database.do(release_held, self.work.run_id, self.token)
        await self._limiter.aclose()

    async def _keep_share(self, group: asyncio.TaskGroup) -> None:
        """Adjust the number of executions in flight as other workers of the run come and go."""
        while not self._no_consumers_left.is_set():
            with contextlib.suppress(TimeoutError):
                every_s = SHARE_EVERY_S if self._share.is_settled else REBALANCE_EVERY_S
                async with asyncio.timeout(every_s):
                    await self._no_consumers_left.wait()
                    return
            await self._agree_on_share(group)

    async def _agree_on_share(self, group: asyncio.TaskGroup) -> None:
        at_most = 0 if self.is_aborted else self.work.concurrency
        self._share = await self._database.do(
            agree_on_share,
            self.work.run_id,
            self.token,
            concurrency=self.work.concurrency,
            wanted=min(at_most, len(self._leases.held)) if self._is_all_claimed else at_most,
            in_flight=sum(not consumer.done() for consumer in self._consumers),
        )
        if not self._share.even:
            # Each of the other workers has one execution in flight, and more are not allowed.
            self.drain()
        if not self.is_draining:
            for _ in range(self._share.allowed - len(self._consumers)):
                self._consumers.add(group.create_task(self._consume()))

    async def _produce(self) -> None:
        """Claim batch after batch, each before the last is used up."""
        batch, last = 0, float("-inf")
        clock = asyncio.get_running_loop().time
        while not self.is_draining:
            self._needs_refill.clear()
            # Each that waits holds its stored output already.
            await self._texts.answers.nobody_waits()
            if allowed := self._share.allowed:
                is_quick = clock() - last < QUICK_REFILL_S
                batch = max(min(batch * 2, MAX_BATCH) if is_quick else batch // 2, allowed)
                last = clock()
                jobs = await self._database.do_repeatable(partial(self._claim, batch))
                if not jobs:
                    break
                self._leases.take(job.claim for job in jobs)
                for job in jobs:
                    self._waiting.put_nowait(job)
                # Each may hold an output of megabytes, until it is executed.
                del job, jobs
            await self._needs_refill.wait()
        self._is_all_claimed = True
        self._waiting.put_nowait(None)

    def _claim(self, most: int, is_repeated: bool) -> list[Job]:
        held = self._leases.held
        return claim_jobs(
            self.work, token=self.token, most=most, held=held, is_repeated=is_repeated
        )

    async def _consume(self) -> None:
        """Execute one job after the other while the share of this worker is large enough."""
        try:
            while len(self._consumers) <= self._share.allowed:
                if self._waiting.qsize() <= self._share.allowed // 2:
                    self._needs_refill.set()
                job = await self._waiting.get()
                if job is None or self.is_draining:
                    # The other consumers end by it too.
                    self._waiting.put_nowait(None)
                    return
                await self._consume_job(job)
                del job
        finally:
            self._consumers.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _consume_job(self, job: Job) -> None:
        await self._writer.room.wait()
        await self._request_priority.yield_to_requests()
        if not await self._reserve_money(job.claim.result_id):
            return
        is_example = False
        try:
            # Another worker may have taken the result over while it waited here.
            if await self._leases.holds(job.claim.result_id):
                consumer = asyncio.current_task()
                self._executed_by[consumer] = job.claim.result_id
                try:
                    is_example = await self._execute_job(job)
                finally:
                    del self._executed_by[consumer]
        finally:
            if job.claim.result_id not in self._leases.held:
                # It was lost meanwhile, so nothing will be written that would release it.
                self._texts.release([job.claim.result_id])
            self.budget.release(job.claim.result_id, is_example=is_example)
            self._is_money_released.set()

    async def _reserve_money(self, result_id: int) -> bool:
        """Wait until the budget covers one more execution; False if it never will, or nothing new begins."""
        budget = self.budget
        if budget.reserve(result_id):
            return True
        async with self._asking_for_money:
            while not self.is_draining:
                self._is_money_released.clear()
                used = budget.used
                others = await self._agree_on_money(executions=2 * self._share.allowed)
                if budget.reserve(result_id):
                    return True
                # Money that is being written just now counts twice for a moment.
                if not (others or used or budget.used):
                    budget.was_reached = True
                    self.drain()
                    return False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(MONEY_EVERY_S):
                        await self._is_money_released.wait()
        return False

    async def _agree_on_money(self, *, executions: int) -> Decimal:
        """Reserve money for some more executions, and return what other workers have reserved."""
        budget, written, used = self.budget, self.budget.written, self.budget.used
        if not executions:
            # Nothing may begin on money that is being given back.
            budget.granted = used
        grant = await self._database.do(
            agree_on_money, self.work, self.token, used=used, executions=executions
        )
        self._stored_grant = grant.granted
        # What was booked meanwhile may be a part of the grant.
        budget.granted = grant.granted - (budget.written - written)
        if grant.dearest is not None:
            budget.dearest = max(budget.dearest or ZERO_USD, grant.dearest)
        return grant.others

    async def _execute_job(self, job: Job) -> bool:
        """Execute a result; tell whether its cost is an example of what others may cost."""
        name, result_id = self.work.plan.target.name, job.claim.result_id
        await self._texts.answers.take(result_id, job.claim.stored_size)
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
            admit=partial(self._admit, result_id),
            begin=partial(self._admission.begin, result_id),
            write_down=partial(self._put_call, job),
            earlier=job.earlier,
            take_room=partial(self._texts.answers.take, result_id),
            take_room_for_judge=partial(self._texts.replies.take, result_id),
            agents=self._agents,
            sandbox=self.sandbox,
        )
        if job.problem:
            outcome = ExecutionOutcome(failure=TargetFailure(job.problem, Cause.FAILED))
        else:
            outcome = await execute(job.execution, ports)
        if not ports.is_refused:
            self._writer.put(EndedExecution(job.claim, job.execution.root, outcome))
        else:
            self._texts.release([result_id])
            if self.budget.is_spent():
                self.drain()
        decision = outcome.decision
        is_scored = decision is not None and decision.status == "scored"
        # As in `dearest_usd`, an error that cost nothing is no example.
        has_cost = self.budget.costs.get(result_id, ZERO_USD) > 0
        return not ports.is_refused and (is_scored or has_cost)

    async def _admit(self, result_id: int) -> None:
        """Wait until a call is allowed; raises CallRefusedError."""
        await self._request_priority.yield_to_requests()
        await self._admission.admit(result_id)

    def _put_call(self, job: Job, record: CallRecord) -> None:
        self._admission.end(job.claim.result_id)
        self._writer.put_call(job.claim, record)
        self._check_budget()

    def _check_budget(self) -> None:
        """Once the budget is spent, refuse the calls that wait for a slot or a start."""
        if self.budget.is_used_up:
            self._limiter.refuse_all(CallRefusedError(self.budget.describe()))

    async def _renew_limits(self) -> None:
        self._check_budget()
        await self._give_back_money()
        await self._limiter.renew()

    async def _give_back_money(self) -> None:
        """Give back what this worker has reserved and does not need, as others may need it."""
        has_surplus = self._stored_grant > self.budget.used
        if has_surplus and not self._asking_for_money.locked():
            await self._agree_on_money(executions=0)


def _agent_client(work: RunWork) -> AgentClient | None:
    """Return the client for agents; None for a run that asks none."""
    if not (work.target.uses_agent or work.agents):
        return None
    # Imported here: it takes long to load, and many runs ask no agent.
    from runs.execution.agents import AgentClient

    return AgentClient()


def _nobody() -> bool:
    return False


_is_anybody_waiting: IsAnybodyWaiting = _nobody


def yield_to_waiting_requests(is_anybody_waiting: IsAnybodyWaiting) -> None:
    """Make every run loop of this process check before each execution whether a page request waits."""
    global _is_anybody_waiting
    _is_anybody_waiting = is_anybody_waiting


def pause_for_requests(*, at_most_s: float = FILE_PART_WAIT_S) -> None:
    """Let page requests of this process be answered first, between two steps of work without an event loop."""
    until = time.monotonic() + at_most_s
    while _is_anybody_waiting() and time.monotonic() < until:
        time.sleep(min(YIELD_S, at_most_s))


class RequestPriority:
    """Starts only one execution or call of a worker at a time while a page request waits.

    The threads of a process take turns at the interpreter. A worker that scores without waiting for
    models would take two of three turns. A worker that waits for models hardly notices.
    """

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        """Be ready to yield."""
        self._sleep = sleep
        self._turn = asyncio.Lock()

    async def yield_to_requests(self) -> None:
        """Wait for a turn and a moment if a page request waits."""
        if _is_anybody_waiting():
            async with self._turn:
                await self._sleep(YIELD_S)


_freeze_lock = threading.Lock()
_freezes = 0


def freeze_loaded_objects() -> None:
    """Hide everything loaded so far from the garbage collector; do nothing after the first few calls.

    Some 200,000 objects of libraries live as long as the process. Scanning them again and again takes
    a sixth of the time of a long run, and stops all threads, including those that serve pages, for a
    tenth of a second each time.
    """
    global _freezes
    with _freeze_lock:
        if _freezes == MAX_FREEZES:
            return
        _freezes += 1
        # Otherwise present garbage would stay forever.
        gc.collect()
        gc.freeze()
