"""The workers page: live workers, waiting runs and the reason, slowed models, and recent errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.conf import settings

from evaluators.templatetags.figures import counted, rough
from runs.models.database import database_now
from runs.models.runs import LEASE, Run, RunOwner, RunWorker, members_at_limit
from runs.queue import BrokerState, ask_broker
from runs.workers.queries import (
    HeldResults,
    ModelLine,
    Models,
    Readings,
    RecentError,
    RunReference,
    SlotHolder,
    WorkerLine,
    count_versions,
    read,
    read_models,
    read_recent_errors,
    worker_lines,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """One active run: results waiting, held and finished.

    `gone` of the held results belong to workers that are gone; the last of their leases ends in
    `gone_left_ms`. `run_workers` live workers work on it, of the `useful` that it could occupy. `why`
    says what it waits for, "" when nothing delays it.
    """

    run: RunReference
    target: str
    status: str
    is_own: bool
    since: datetime
    waiting: int
    held: int
    gone: int
    gone_left_ms: float
    done: int
    executions: int
    run_workers: int
    useful: int
    why: str
    is_stuck: bool


@dataclass(frozen=True, slots=True)
class _Context:
    """What explains the state of every run: workers, the broker, and what each run holds."""

    readings: Readings
    workers: int
    has_free: bool
    has_broker: bool
    run_workers: Mapping[int, Sequence[RunWorker]]
    held: Mapping[int, Sequence[HeldResults]]
    slots: Mapping[str, Sequence[tuple[ModelLine, SlotHolder]]]
    # Members whose runs have all places that those of one member may have.
    full: Collection[int]


def queued_runs(
    readings: Readings,
    worker_lines: Sequence[WorkerLine],
    models: Sequence[ModelLine],
    *,
    has_broker: bool,
) -> tuple[QueuedRun, ...]:
    """Return the active runs in the order they were queued."""
    alive = [line for line in worker_lines if line.is_worker and line.is_alive]
    threads = int(settings.CELERY_WORKER_CONCURRENCY)
    has_free = any(len(line.run_workers) < threads for line in alive)
    slots = [(holder.token, (line, holder)) for line in models for holder in line.holders]
    members = {run.pk: run.created_by_id for run in readings.runs}
    at_work = (members.get(run_worker.run_id) for run_worker in readings.run_workers)
    context = _Context(
        readings,
        len(alive),
        has_free,
        has_broker,
        run_workers=_grouped(
            (run_worker.run_id, run_worker) for run_worker in readings.run_workers
        ),
        held=_grouped((held.run_id, held) for held in readings.held),
        slots=_grouped(slots),
        full=members_at_limit(at_work, workers=len(alive)),
    )
    return tuple(_queued(run, context) for run in readings.runs)


def _grouped(pairs: Iterable[tuple[Key, Value]]) -> Mapping[Key, Sequence[Value]]:
    groups: defaultdict[Key, list[Value]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def _queued(run: Run, context: _Context) -> QueuedRun:
    run_workers = context.run_workers.get(run.pk, ())
    alive = [
        run_worker
        for run_worker in run_workers
        if context.readings.is_alive(run_worker.heartbeat_at)
    ]
    tokens = {run_worker.token for run_worker in run_workers}
    leases = context.held.get(run.pk, ())
    gone = [lease for lease in leases if lease.token not in tokens]
    held = sum(lease.count for lease in leases)
    waiting = context.readings.waiting.get(run.pk, 0)
    left = waiting + held
    is_own = run.owner == RunOwner.COMMAND_LINE
    why, is_stuck = _own(run, context) if is_own else _why(run, alive, left, context)
    return QueuedRun(
        run=context.readings.links[run.pk],
        target=run.target_name,
        status=run.status,
        is_own=is_own,
        since=getattr(run, "queued_at", run.created_at),
        waiting=waiting,
        held=held,
        gone=sum(lease.count for lease in gone),
        gone_left_ms=max((context.readings.until_ms(lease.until) for lease in gone), default=0.0),
        done=run.done_count,
        executions=run.execution_count,
        run_workers=sum(run_worker.is_at_work for run_worker in alive),
        useful=1 if is_own else _useful(run, left, context),
        why=why,
        is_stuck=is_stuck,
    )


def _useful(run: Run, left: int, context: _Context) -> int:
    """Return how many of the live workers the run could occupy."""
    most = max(1, run.concurrency)
    return max(1, min(context.workers, -(-left // most), most))


def _own(run: Run, context: _Context) -> tuple[str, bool]:
    readings = context.readings
    if run.heartbeat_at is None or readings.is_alive(run.heartbeat_at):
        return "executed by a command line", False
    silence = rough(readings.since_ms(run.heartbeat_at))
    ends = rough(2 * LEASE.total_seconds() * 1000)
    return (
        f"its command line has been silent for {silence}; after {ends} the run is cancelled",
        True,
    )


def _why(
    run: Run, run_workers: Sequence[RunWorker], left: int, context: _Context
) -> tuple[str, bool]:
    """Return what delays a run of the workers, and whether it stands still."""
    if not context.workers:
        return "waits for a worker", True
    if not left:
        return "finishing", False
    earlier = sum(worker.share for worker in run_workers if not worker.is_at_work)
    if earlier >= run.concurrency:
        calls = counted(earlier, "earlier call")
        return f"waits for the replies to {calls}, a minute at most", False
    at_work = sum(worker.is_at_work for worker in run_workers)
    if not at_work:
        return _untaken(run, context)
    if slow := _slowed(run_workers, context):
        return slow, False
    missing = _useful(run, left, context) - at_work
    if missing > 0:
        return f"could use {counted(missing, 'more worker,more workers')}", False
    return "", False


def _untaken(run: Run, context: _Context) -> tuple[str, bool]:
    if not context.has_broker:
        return "waits for the broker", True
    if not context.has_free:
        return "waits until a worker is done with another run", False
    if run.created_by_id in context.full:
        return "waits until another run of the same member is done", False
    return "starts within seconds", False


def _slowed(run_workers: Sequence[RunWorker], context: _Context) -> str:
    """Return which model these workers wait for, and what they get."""
    own = [pair for run_worker in run_workers for pair in context.slots.get(run_worker.token, ())]
    for model, holder in own:
        if model.slowdown.silent_since is not None:
            return f"{model.name} does not answer; it is retried with one call at a time"
        if model.paused_ms is not None:
            return f"{model.name} is paused for {rough(model.paused_ms)}"
        if holder.starts_wanted and model.slowdown.rate is not None:
            return f"{model.name} is slowed to {model.slowdown.rate:.3g} calls a second"
        if holder.starts_wanted and model.per_minute:
            return f"{model.name} takes {counted(model.per_minute, 'call')} a minute"
    for model, holder in own:
        if holder.slots < holder.wanted:
            shares = [share for line, share in own if line is model]
            slots, wanted = sum(s.slots for s in shares), sum(s.wanted for s in shares)
            return f"{model.name} gives {slots} of {counted(wanted, 'call')} at a time"
    return ""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all rows, including those that the page does not list."""

    alive: int
    silent: int
    at_work: int
    is_embedded: bool
    run_workers: int
    runs_at_work: int
    under_way: int
    held: int
    lease_left_ms: float | None
    waiting: int
    waiting_runs: int
    oldest: datetime | None


def compute_totals(worker_lines: Sequence[WorkerLine], queue: Sequence[QueuedRun]) -> Totals:
    """Return the sums."""
    workers = [line for line in worker_lines if line.is_worker]
    alive = [line for line in workers if line.is_alive]
    run_workers = [
        run_worker
        for line in worker_lines
        for run_worker in line.run_workers
        if run_worker.is_alive
    ]
    leases = [
        run_worker.lease_left_ms
        for run_worker in run_workers
        if run_worker.lease_left_ms is not None
    ]
    waiting = [run for run in queue if run.waiting]
    return Totals(
        alive=len(alive),
        silent=len(workers) - len(alive),
        at_work=sum(bool(line.run_workers) for line in alive),
        is_embedded=any(line.kind == "embedded" for line in alive),
        run_workers=len(run_workers),
        runs_at_work=sum(bool(run.run_workers) for run in queue),
        under_way=sum(run_worker.under_way or 0 for run_worker in run_workers),
        held=sum(run.held for run in queue),
        lease_left_ms=min(leases, default=None),
        waiting=sum(run.waiting for run in waiting),
        waiting_runs=len(waiting),
        oldest=min((run.since for run in waiting), default=None),
    )


WORKER_COMMAND = "celery -A evalsite worker"
SITE_COMMAND = "evalsite up"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that needs attention; `command` starts what is missing."""

    tone: str
    title: str
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """`sentence` sums up the page; "" where the first notice does."""

    sentence: str
    notices: tuple[Notice, ...]


def describe_state(
    worker_lines: Sequence[WorkerLine], queue: Sequence[QueuedRun], broker: BrokerState
) -> State:
    """Return the state; a missing worker comes before a broker that does not answer."""
    alive = [line for line in worker_lines if line.is_worker and line.is_alive]
    notices = [] if alive else [_no_worker(worker_lines, queue)]
    if not broker.answers:
        notices.append(_no_broker(has_workers=bool(alive)))
    if len(versions := count_versions(worker_lines)) > 1:
        notices.append(_versions(versions))
    return State(_sentence(alive, queue) if alive else "", tuple(notices))


def _sentence(alive: Sequence[WorkerLine], queue: Sequence[QueuedRun]) -> str:
    at_work = sum(bool(line.run_workers) for line in alive)
    taken = [run for run in queue if run.run_workers and not run.is_own]
    own = [run for run in queue if run.is_own]
    left = [run for run in queue if not run.run_workers and not run.is_own]
    waiting = sum(run.waiting for run in queue)
    if not queue:
        return f"{_are(alive)} ready; nothing waits."
    if taken and at_work:
        workers = counted(len(alive), "worker")
        busy = workers if at_work == len(alive) else f"{at_work} of {workers}"
        doing = f"{busy} {_verb(at_work, 'executes', 'execute')} {counted(len(taken), 'run')}"
    elif left:
        waiting_runs = f"{counted(len(left), 'run')} {_verb(len(left), 'waits', 'wait')}"
        doing = f"{_are(alive)} alive, none is busy yet; {waiting_runs}"
    elif own:
        executes = _verb(len(own), "executes its own run", "execute their own runs")
        doing = f"{counted(len(own), 'command line')} {executes}; {_are(alive)} idle"
    else:
        doing = f"{_are(alive)} ready; one that is ending releases {counted(len(taken), 'run')}"
    waits = f"{counted(waiting, 'result')} {_verb(waiting, 'waits', 'wait')}"
    return f"{doing}; {waits if waiting else 'nothing else waits'}."


def _no_worker(worker_lines: Sequence[WorkerLine], queue: Sequence[QueuedRun]) -> Notice:
    left = [run for run in queue if not run.is_own]
    results = sum(run.waiting + run.held for run in left)
    silent = [line for line in worker_lines if line.is_worker]
    if left:
        verb = _verb(len(left), "stands", "stand")
        waits = f"{counted(len(left), 'run')} with {counted(results, 'open result')} {verb} still until one starts."
    else:
        waits = "Runs started now wait until one starts."
    seen = f" {_are(silent)} silent." if silent else ""
    title = "No worker is running."
    if settings.IS_EMBEDDED:
        how = (
            "The site's worker runs inside the web process and appears here within seconds; if it does not, see the "
            "log. Restart the site:"
        )
        return Notice("bad", title, f"{waits}{seen} {how}", SITE_COMMAND)
    return Notice("bad", title, f"{waits}{seen} Start one, on any machine:", WORKER_COMMAND)


def _no_broker(*, has_workers: bool) -> Notice:
    continuing = "Workers continue with their runs. " if has_workers else ""
    return Notice(
        "bad",
        "The broker does not answer.",
        f"{continuing}Runs started, resumed or rerun meanwhile wait, and start within seconds once "
        "Redis is back. Its address is in CELERY_BROKER_URL.",
    )


def _versions(versions: Mapping[str, int]) -> Notice:
    listed = ", ".join(f"{version} ({counted(n, 'worker')})" for version, n in versions.items())
    text = f"{listed}. Restart those that were left out of the last upgrade."
    return Notice("warn", "The workers run different versions.", text)


def _are(worker_lines: Sequence[WorkerLine]) -> str:
    return f"{counted(len(worker_lines), 'worker')} {_verb(len(worker_lines), 'is', 'are')}"


def _verb(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural


# A poll draws no more rows than these, however large the site is.
MAX_WORKERS_SHOWN, MAX_RUNS, MAX_MODELS = 25, 25, 25


@dataclass(frozen=True, slots=True)
class WorkersPage:
    """Everything the page shows, and how many more rows there are than it lists."""

    state: State
    totals: Totals
    broker: BrokerState
    worker_lines: tuple[WorkerLine, ...]
    workers_left: int
    queue: tuple[QueuedRun, ...]
    runs_left: int
    models: Models
    lines: tuple[ModelLine, ...]
    lines_left: int
    recent_errors: tuple[RecentError, ...]


def workers_page() -> WorkersPage:
    """Return the page in a fixed number of queries and one request to the broker."""
    readings = read(database_now())
    workers = worker_lines(readings)
    models = read_models(readings)
    broker = ask_broker()
    queue = queued_runs(readings, workers, models.lines, has_broker=broker.answers)
    return WorkersPage(
        state=describe_state(workers, queue, broker),
        totals=compute_totals(workers, queue),
        broker=broker,
        worker_lines=workers[:MAX_WORKERS_SHOWN],
        workers_left=max(0, len(workers) - MAX_WORKERS_SHOWN),
        queue=queue[:MAX_RUNS],
        runs_left=max(0, len(queue) - MAX_RUNS),
        models=models,
        lines=models.lines[:MAX_MODELS],
        lines_left=max(0, len(models.lines) - MAX_MODELS),
        recent_errors=read_recent_errors(workers, now=readings.now),
    )
