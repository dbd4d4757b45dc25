"""The state of workers, language models and recent errors at one moment, read from the database."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db.models import Count, Min, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce
from django.urls import reverse

from evaluators.model_calls.limit_policy import COUNTS_S
from evaluators.models import LanguageModel, SlotLease, Slowdown, StartGrant
from evaluators.templatetags.figures import rough
from runs.models.results import CallStatus, ModelCall, Result, ResultStatus
from runs.models.runs import (
    ACTIVE_RUN_STATUSES,
    LEASE,
    Run,
    RunEvent,
    RunOwner,
    RunStatus,
    RunWorker,
    WorkerProcess,
)

RUN_COLUMNS = (
    *("number", "status", "owner", "heartbeat_at", "created_at", "target_name"),
    *("execution_count", "done_count", "concurrency", "suite__slug", "suite__title"),
    "created_by",
)
RUN_WORKER_COLUMNS = (
    *("token", "worker", "started_at", "heartbeat_at", "in_flight", "share", "wanted"),
    *("run__number", "run__owner", "run__suite__slug", "run__suite__title"),
)
QUEUED_AGAIN = ("resume", "retry")
LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+@")


@dataclass(frozen=True, slots=True)
class RunReference:
    """A run as the page names it."""

    number: int
    suite_title: str
    url: str


@dataclass(frozen=True, slots=True)
class HeldResults:
    """The results that one run worker has leased, and when the first of those leases ends."""

    token: str
    run_id: int
    count: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything read at `now`; `runs` are the active ones, oldest first.

    `waiting` counts by run the results that no worker holds. `links` are by run too.
    """

    now: datetime
    workers: tuple[WorkerProcess, ...]
    run_workers: tuple[RunWorker, ...]
    held: tuple[HeldResults, ...]
    waiting: Mapping[int, int]
    runs: tuple[Run, ...]
    links: Mapping[int, RunReference]

    def is_alive(self, heartbeat_at: datetime | None) -> bool:
        """Tell whether a heartbeat is recent."""
        return heartbeat_at is not None and heartbeat_at >= self.now - LEASE

    def since_ms(self, then: datetime) -> float:
        """Return the milliseconds since a time; 0 for the future."""
        return max(0.0, (self.now - then).total_seconds() * 1000)

    def until_ms(self, then: datetime) -> float:
        """Return the milliseconds until a time; 0 for the past."""
        return max(0.0, (then - self.now).total_seconds() * 1000)


def read(now: datetime) -> Readings:
    """Return the readings in five queries, no matter how many rows there are."""
    run_workers, runs = _run_workers(), _runs()
    named = {run.pk: run for run in (*runs, *(run_worker.run for run_worker in run_workers))}
    return Readings(
        now=now,
        workers=tuple(WorkerProcess.objects.order_by("host", "pid", "id")),
        run_workers=tuple(run_workers),
        held=tuple(_held()),
        waiting=_waiting(run.pk for run in runs),
        runs=tuple(runs),
        links={pk: link_to(run) for pk, run in named.items()},
    )


def link_to(run: Run) -> RunReference:
    """Return the name and the address of a run."""
    place = {"slug": run.suite.slug, "number": run.number}
    return RunReference(run.number, run.suite.title, reverse("runs:run", kwargs=place))


def without_passwords(text: str) -> str:
    """Return the text with user names and passwords cut from its addresses."""
    return LOGIN_IN_ADDRESS.sub("…@", text)


def _run_workers() -> list[RunWorker]:
    run_workers = RunWorker.objects.select_related("run__suite").only(*RUN_WORKER_COLUMNS)
    return list(run_workers.order_by("run_id", "started_at", "id"))


def _held() -> list[HeldResults]:
    running = Result.objects.filter(status=ResultStatus.RUNNING, lease_until__isnull=False)
    rows = running.order_by().values_list("lease_token", "run_id")
    leases = rows.annotate(total=Count("id"), first=Min("lease_until"))
    return [HeldResults(*lease) for lease in leases]


def _waiting(run_ids: Iterable[int]) -> Mapping[int, int]:
    # Not the run's counters: they include results that were cancelled before a retry.
    pending = Result.objects.ready().filter(run_id__in=run_ids).order_by()
    return dict(pending.values_list("run_id").annotate(total=Count("id")))


def _runs() -> list[Run]:
    """Return active runs; `queued_at` is when they were started, or last resumed or retried."""
    again = RunEvent.objects.filter(run=OuterRef("pk"), kind__in=QUEUED_AGAIN).order_by("-id")
    queued_at = Coalesce(Subquery(again.values("at")[:1]), "created_at")
    active = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES).select_related("suite")
    light = active.only(*RUN_COLUMNS).annotate(queued_at=queued_at)
    return list(light.order_by("queued_at", "pk"))


WorkerKind = Literal["process", "embedded", "command_line", "unlisted"]


@dataclass(frozen=True, slots=True)
class RunWorkerRow:
    """One worker at a run; `under_way` is None until its first report."""

    run: RunReference
    since: datetime
    silent_ms: float
    is_alive: bool
    under_way: int | None
    held: int
    lease_left_ms: float | None


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """One process and the runs it works on.

    `kind` is process or embedded for a worker, and command_line for a run's own process. A process
    that has taken itself off the list but has not released its runs yet is unlisted.
    """

    host: str
    pid: str
    kind: WorkerKind
    is_alive: bool
    since: datetime | None
    silent_ms: float | None
    version: str
    sandbox: str
    last_error: str
    last_error_at: datetime | None
    run_workers: tuple[RunWorkerRow, ...]

    @property
    def is_worker(self) -> bool:
        """Tell whether it works on any run that waits."""
        return self.kind in ("process", "embedded")

    @property
    def under_way(self) -> int:
        """Return how many executions are under way."""
        return sum(run_worker.under_way or 0 for run_worker in self.run_workers)

    @property
    def held(self) -> int:
        """Return how many results it has leased."""
        return sum(run_worker.held for run_worker in self.run_workers)


def worker_lines(readings: Readings) -> tuple[WorkerLine, ...]:
    """Return silent workers first, then those at work, then the idle."""
    by_worker: defaultdict[str, list[RunWorkerRow]] = defaultdict(list)
    owners: dict[str, str] = {}
    held = {lease.token: lease for lease in readings.held}
    for run_worker in readings.run_workers:
        by_worker[run_worker.worker].append(_row(run_worker, held.get(run_worker.token), readings))
        owners[run_worker.worker] = run_worker.run.owner
    lines = [
        _worker(process, by_worker.pop(process.name, ()), readings) for process in readings.workers
    ]
    lines += [_other(name, run_workers, owners) for name, run_workers in by_worker.items()]
    return tuple(sorted(lines, key=lambda line: (line.is_alive, not line.run_workers)))


def count_versions(worker_lines: Iterable[WorkerLine]) -> Mapping[str, int]:
    """Count the live workers of each version, most frequent first."""
    counts: defaultdict[str, int] = defaultdict(int)
    for line in worker_lines:
        if line.is_worker and line.is_alive:
            counts[line.version] += 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _row(run_worker: RunWorker, held: HeldResults | None, readings: Readings) -> RunWorkerRow:
    has_reported = run_worker.heartbeat_at > run_worker.started_at
    return RunWorkerRow(
        run=readings.links[run_worker.run_id],
        since=run_worker.started_at,
        silent_ms=readings.since_ms(run_worker.heartbeat_at),
        is_alive=readings.is_alive(run_worker.heartbeat_at),
        under_way=run_worker.in_flight if has_reported else None,
        held=held.count if held else 0,
        lease_left_ms=readings.until_ms(held.until) if held else None,
    )


def _worker(
    process: WorkerProcess, run_workers: Iterable[RunWorkerRow], readings: Readings
) -> WorkerLine:
    return WorkerLine(
        host=process.host,
        pid=str(process.pid),
        kind="embedded" if _is_here(process) else "process",
        is_alive=readings.is_alive(process.heartbeat_at),
        since=process.started_at,
        silent_ms=readings.since_ms(process.heartbeat_at),
        version=process.version,
        sandbox=process.sandbox,
        last_error=without_passwords(process.last_error),
        last_error_at=process.last_error_at,
        run_workers=tuple(run_workers),
    )


def _is_here(process: WorkerProcess) -> bool:
    """Tell whether the worker is a thread of the process that serves this page."""
    return bool(settings.IS_EMBEDDED) and process.pid == os.getpid()


def _other(name: str, run_workers: Iterable[RunWorkerRow], owners: Mapping[str, str]) -> WorkerLine:
    host, _, pid, _ = name.rsplit("/", 3) if name.count("/") > 2 else (name, "", "", "")
    rows = tuple(run_workers)
    is_own = owners[name] == RunOwner.COMMAND_LINE
    return WorkerLine(
        host=host,
        pid=pid,
        kind="command_line" if is_own else "unlisted",
        is_alive=any(row.is_alive for row in rows),
        since=min(row.since for row in rows),
        silent_ms=min(row.silent_ms for row in rows),
        version="",
        sandbox="",
        last_error="",
        last_error_at=None,
        run_workers=rows,
    )


HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
# With more calls the window is shorter: a busy hour has more rows than a poll should count.
MAX_COUNTED = 5_000
LABELS = {str(value): str(label) for value, label in CallStatus.choices}


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Calls of one model: in the window, in the last minute, and the failed ones by kind."""

    calls: int
    last_minute: int
    failed: int
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The calls that were made between two times, by the model's id."""

    since: datetime
    until: datetime
    by_model: Mapping[int, CallCounts]

    @property
    def in_words(self) -> str:
        """Return the length of the window in words."""
        length = self.until - self.since
        span = "hour" if length >= HOUR else rough(length.total_seconds() * 1000)
        return f"in the last {span}"


def calls_in_last_hour(*, now: datetime) -> Window:
    """Return the counts in two queries; replies that were reused from the ledger do not count."""
    since = _start(now - HOUR)
    calls = ModelCall.objects.filter(created_at__gte=since, is_cached=False, model__isnull=False)
    rows = calls.order_by().values_list("model_id", "status")
    last_minute = Count("id", filter=Q(created_at__gte=now - MINUTE))
    counted = rows.annotate(total=Count("id"), late=last_minute)
    by_model: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for model_id, status, total, late in counted:
        by_model[int(model_id or 0)].append((status, total, late))
    return Window(since, now, {pk: _counts(own) for pk, own in by_model.items()})


def _start(hour_ago: datetime) -> datetime:
    times = ModelCall.objects.filter(created_at__gte=hour_ago).order_by("-created_at")
    earlier = times.values_list("created_at", flat=True)[MAX_COUNTED : MAX_COUNTED + 1]
    return next(iter(earlier), hour_ago)


def _counts(rows: list[tuple[str, int, int]]) -> CallCounts:
    failed = [(status, total) for status, total, _ in rows if status != CallStatus.OK]
    failed.sort(key=lambda pair: -pair[1])
    return CallCounts(
        calls=sum(total for _, total, _ in rows),
        last_minute=sum(late for _, _, late in rows),
        failed=sum(total for _, total in failed),
        kinds=tuple((LABELS.get(status, status).lower(), total) for status, total in failed),
    )


MODEL_COLUMNS = (
    *("slug", "name", "is_scripted", "concurrency", "requests_per_minute"),
    "throttle_state",
)
NO_CALLS = CallCounts(0, 0, 0, ())


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """The slots that one run worker has leased; `run` is None when the worker is gone."""

    run: RunReference | None
    token: str
    slots: int
    wanted: int
    starts_wanted: int


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model; `most` calls may be in flight, and none starts for `paused_ms`."""

    name: str
    url: str
    is_scripted: bool
    most: int
    slowdown: Slowdown
    paused_ms: float | None
    per_minute: int | None
    started: int
    holders: tuple[SlotHolder, ...]
    calls: CallCounts

    @property
    def slots(self) -> int:
        """Return how many slots are leased."""
        return sum(holder.slots for holder in self.holders)

    @property
    def waits_for_minute(self) -> bool:
        """Tell whether calls wait for the limit of requests a minute."""
        is_waiting = any(holder.starts_wanted for holder in self.holders)
        return bool(self.per_minute) and is_waiting and not self.slowdown

    @property
    def slows_runs(self) -> bool:
        """Tell whether workers wait for it, or are slower than its settings allow."""
        return (bool(self.slowdown) and bool(self.holders)) or self.waits_for_minute

    @property
    def is_in_use(self) -> bool:
        """Tell whether the page lists it."""
        return self.slows_runs or bool(self.holders) or bool(self.calls.calls)


@dataclass(frozen=True, slots=True)
class Models:
    """The models in use, those that slow runs first, and how many more there are."""

    lines: tuple[ModelLine, ...]
    idle: int
    window: Window

    @property
    def slowing(self) -> tuple[ModelLine, ...]:
        """Return those that slow runs down."""
        return tuple(line for line in self.lines if line.slows_runs)

    @property
    def calls(self) -> int:
        """Return how many calls were counted."""
        return sum(line.calls.calls for line in self.lines)

    @property
    def failed(self) -> int:
        """Return how many of them failed."""
        return sum(line.calls.failed for line in self.lines)


def read_models(readings: Readings) -> Models:
    """Return the models as they are now, in five queries."""
    holders = _holders(readings)
    started = _started(readings.now)
    window = calls_in_last_hour(now=readings.now)
    lines = [
        _line(model, holders.get(model.pk, ()), started.get(model.pk), window, readings)
        for model in LanguageModel.objects.only(*MODEL_COLUMNS)
    ]
    used = [line for line in lines if line.is_in_use]
    used.sort(key=lambda line: not line.slows_runs)
    return Models(tuple(used), len(lines) - len(used), window)


def _holders(readings: Readings) -> Mapping[int, Sequence[SlotHolder]]:
    links = {
        run_worker.token: readings.links[run_worker.run_id] for run_worker in readings.run_workers
    }
    holders: defaultdict[int, list[SlotHolder]] = defaultdict(list)
    leases = SlotLease.objects.filter(expires_at__gte=readings.now)
    for lease in leases.order_by("-slots", "holder"):
        holders[lease.model_id].append(
            SlotHolder(
                links.get(lease.holder),
                lease.holder,
                lease.slots,
                lease.wanted,
                lease.starts_wanted,
            )
        )
    return holders


def _started(now: datetime) -> Mapping[int, int]:
    """Return how many starts count against the limit of a minute, by model."""
    counting = StartGrant.objects.filter(granted_at__gt=now - timedelta(seconds=COUNTS_S))
    grants = counting.order_by()
    return dict(grants.values_list("model_id").annotate(total=Sum("calls")))


def _line(
    model: LanguageModel,
    holders: Sequence[SlotHolder],
    started: int | None,
    window: Window,
    readings: Readings,
) -> ModelLine:
    counts = window.by_model.get(model.pk, NO_CALLS)
    slowdown = model.slowdown
    paused_until = slowdown.paused_until
    return ModelLine(
        name=model.name,
        url=reverse("evaluators:language-model", args=(model.slug,)),
        is_scripted=model.is_scripted,
        most=model.concurrency,
        slowdown=slowdown,
        paused_ms=None if paused_until is None else readings.until_ms(paused_until),
        per_minute=model.requests_per_minute,
        started=counts.last_minute if started is None else started,
        holders=tuple(holders),
        calls=counts,
    )


RECENT = timedelta(days=1)
MAX_RECENT_ERRORS = 8
LOST_WORKERS = ("worker_lost", "worker_crashed")
MAX_ERROR_LENGTH = 400


@dataclass(frozen=True, slots=True)
class RecentError:
    """An error; `where` is the worker, "" for an error of a run."""

    at: datetime
    text: str
    run: RunReference | None = None
    where: str = ""


def read_recent_errors(
    worker_lines: Iterable[WorkerLine], *, now: datetime
) -> tuple[RecentError, ...]:
    """Return the newest errors of the last day, in two queries."""
    errors = [*_worker_errors(worker_lines, now), *_run_worker_errors(now), *_run_errors(now)]
    return tuple(sorted(errors, key=lambda error: error.at, reverse=True)[:MAX_RECENT_ERRORS])


def _worker_errors(worker_lines: Iterable[WorkerLine], now: datetime) -> list[RecentError]:
    return [
        RecentError(
            line.last_error_at,
            _cut(line.last_error),
            where=f"{line.host} {line.pid}",
        )
        for line in worker_lines
        if line.last_error and line.last_error_at and line.last_error_at >= now - RECENT
    ]


def _run_worker_errors(now: datetime) -> list[RecentError]:
    events = RunEvent.objects.filter(kind__in=LOST_WORKERS, at__gte=now - RECENT)
    columns = ("at", "text", "run__number", "run__suite__slug", "run__suite__title")
    newest = events.select_related("run__suite").only(*columns).order_by("-id")
    return [
        RecentError(event.at, _cut(event.text), run=link_to(event.run))
        for event in newest[:MAX_RECENT_ERRORS]
    ]


def _run_errors(now: datetime) -> list[RecentError]:
    failed = Run.objects.filter(status=RunStatus.FAILED, finished_at__gte=now - RECENT)
    columns = ("finished_at", "status_reason", "number", "suite__slug", "suite__title")
    newest = failed.select_related("suite").only(*columns).order_by("-finished_at")
    return [
        RecentError(run.finished_at, _cut(f"The run failed. {run.status_reason}"), run=link_to(run))
        for run in newest[:MAX_RECENT_ERRORS]
        if run.finished_at
    ]


def _cut(text: str) -> str:
    text = without_passwords(text.strip())
    return text if len(text) <= MAX_ERROR_LENGTH else f"{text[: MAX_ERROR_LENGTH - 1]}…"
