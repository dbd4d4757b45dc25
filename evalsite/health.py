"""Check database, broker and workers separately, and explain outages of the database."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.models import Exists, Max, OuterRef

from runs.models.database import database_now
from runs.models.results import Result
from runs.models.runs import (
    ACTIVE_RUN_STATUSES,
    LEASE,
    Run,
    RunOwner,
    RunWorker,
    WorkerProcess,
    members_at_limit,
)

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Outage:
    """One kind of outage: its state on the health page, and texts for the reader."""

    state: str
    title: str
    meaning: str
    remedy: str


UNREACHABLE = Outage(
    "unreachable",
    "The database does not answer",
    "It is restarting, it is down, or the network to it is broken.",
    "Try again in a moment. The administrator of the server should check that the database runs, and that "
    "DATABASE_URL or EVALSITE_DATA_DIR names the right place.",
)
FULL = Outage(
    "full",
    "The disk of the database is full",
    "Pages can be read; nothing new can be stored.",
    "The administrator of the server should free space on the disk of the database, or provide a larger one.",
)
NO_ROOM_TO_READ = Outage(
    FULL.state,
    FULL.title,
    "SQLite has no room left even for the small files that it needs to read.",
    FULL.remedy,
)
READ_ONLY = Outage(
    "read-only",
    "The database is read-only",
    "Pages can be read; nothing new can be stored.",
    "The administrator of the server should let this site write: to a PostgreSQL server that is not a standby, "
    "or to the SQLite file and its folder.",
)
BUSY = Outage(
    "busy",
    "The database is overloaded",
    "It had no connection left, or something else locked the rows of this page for too long.",
    "Try again in a moment. If it happens often, check what keeps the database busy, and whether its "
    "max_connections is enough for all web and worker processes.",
)
SLOW = Outage(
    "slow",
    "The database took too long",
    "It stopped reading what this page asks for, because that took longer than allowed.",
    "Ask for less: a narrower filter, fewer runs or a smaller one. If it happens often, the administrator of the "
    "server should check what keeps the database busy. EVALSITE_MAX_STATEMENT_S sets the limit.",
)
NO_ROOM_FOR_FILES = Outage(
    FULL.state,
    "The disk of the server is full",
    "Nothing long can be sent to it, such as an upload.",
    "The administrator of the server should free space on the disk of its temporary files, which TMPDIR names, or "
    "provide a larger one.",
)
DAMAGED = Outage(
    "damaged",
    "The database file is damaged",
    "SQLite cannot read what it wrote.",
    "The administrator of the server should restore the last backup; the README says how.",
)

BY_SQLSTATE = {
    "25006": READ_ONLY,
    "25P03": BUSY,
    "25P04": BUSY,
    "53100": FULL,
    "53200": BUSY,
    "53300": BUSY,
    "53400": BUSY,
    "55P03": BUSY,
    "57014": SLOW,
    "40P01": BUSY,
}
BY_SQLITE_CODE = {
    sqlite3.SQLITE_IOERR_SHMSIZE: NO_ROOM_TO_READ,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_LOCKED: BUSY,
    sqlite3.SQLITE_CANTOPEN: UNREACHABLE,
    sqlite3.SQLITE_IOERR: UNREACHABLE,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
BY_ERRNO = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: FULL,
    errno.EROFS: READ_ONLY,
    errno.EACCES: READ_ONLY,
    errno.EPERM: READ_ONLY,
}


def find_outage(error: BaseException | None) -> Outage | None:
    """Return the outage behind an error; None for other errors, such as a wrong query."""
    if isinstance(error, OSError):
        return NO_ROOM_FOR_FILES if BY_ERRNO.get(error.errno or 0) is FULL else None
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        # The higher bytes hold the extended error code.
        return BY_SQLITE_CODE.get(code, BY_SQLITE_CODE.get(code & 0xFF))
    state = getattr(cause, "sqlstate", None)
    if state in BY_SQLSTATE:
        return BY_SQLSTATE[state]
    is_connection = isinstance(error, OperationalError | InterfaceError)
    return UNREACHABLE if is_connection and not isinstance(cause, sqlite3.Error) else None


BROKER_TIMEOUT_S = 2
PROBE_BYTES = 1024 * 1024
# PostgreSQL writes about 1 MB for them.
PROBE_ROWS = 40_000
# Anybody may ask for the state, so what costs something is done once for all who ask within this time.
PROBE_EVERY_S = 5.0
# A dead worker of another machine is noticed after one lease.
STALLED_AFTER_S = 2 * LEASE.total_seconds()
OK, UNKNOWN = "ok", "unknown"
PARTS = ("database", "broker", "worker", "work")


@dataclass(frozen=True, slots=True)
class Health:
    """The state of each part: ok, the state of an outage, missing, stalled or unknown.

    Missing means that no worker has a recent heartbeat, stalled that work waits although a worker is
    free. The database was last written to `written_s_ago`. The oldest such work has waited for
    `unclaimed_s`, 0 if there is none. Both are None if they are unknown or of a part not asked for.
    """

    states: dict[str, str]
    written_s_ago: float | None = None
    unclaimed_s: float | None = None

    @property
    def is_ok(self) -> bool:
        """Tell whether every part is well."""
        return all(state == OK for state in self.states.values())


def health(parts: Collection[str] = PARTS) -> Health:
    """Return the state of these parts."""
    states: dict[str, str] = {}
    written_s_ago = unclaimed_s = None
    if set(parts) - {"broker"}:
        states["database"], written_s_ago = database_health()
    if "broker" in parts:
        states["broker"] = broker_health(settings.CELERY_BROKER_URL)
    # A query to a database that is down takes long: ask once.
    is_there = states.get("database") == OK
    if "worker" in parts:
        states["worker"] = worker_health() if is_there else UNKNOWN
    if "work" in parts:
        states["work"], unclaimed_s = work_health() if is_there else (UNKNOWN, None)
    asked = {part: states[part] for part in parts}
    return Health(asked, written_s_ago if "database" in parts else None, unclaimed_s)


class Occasional(Generic[Value]):
    """A value that is read again only when it is older than PROBE_EVERY_S, by one thread for all.

    An error of the reading is raised and not kept.
    """

    def __init__(self, read: Callable[[], Value]) -> None:
        """Read nothing yet."""
        self._read = read
        self._lock = threading.Lock()
        self._kept: tuple[Value, float] | None = None

    def get(self) -> tuple[Value, float]:
        """Return the value and its age in seconds."""
        with self._lock:
            if self._kept is None or time.monotonic() - self._kept[1] >= PROBE_EVERY_S:
                self._kept = (self._read(), time.monotonic())
            value, read_at = self._kept
            return value, time.monotonic() - read_at

    def forget(self) -> None:
        """Read the value again next time."""
        self._kept = None


def database_health() -> tuple[str, float | None]:
    """Return whether the database answers and has room for what runs write, and when it was written to.

    Reading, and changing a row in place, still work on a full disk. So now and then a small file is
    written and removed where the database keeps its own: this touches no table and waits for no lock.
    """
    try:
        with connection.cursor() as cursor:
            is_server = connection.vendor == "postgresql"
            cursor.execute("SHOW transaction_read_only" if is_server else "SELECT 'off'")
            [read_only] = cursor.fetchone()
        if read_only == "on":
            return READ_ONLY.state, None
        state, age_s = ROOM.get()
        return state, age_s if state == OK else None
    except (DatabaseError, InterfaceError) as error:
        outage = find_outage(error) or UNREACHABLE
        return outage.state, None


def storage_outage() -> Outage | None:
    """Return why nothing new can be stored while pages can be read; None if there is no such reason."""
    state, _ = database_health()
    return next((outage for outage in (FULL, READ_ONLY) if outage.state == state), None)


def room_health() -> str:
    """Return whether the database has room; raises its error if there is another problem."""
    if connection.vendor != "postgresql":
        return file_health(Path(connection.settings_dict["NAME"]))
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            # Rows beyond the memory of a query go to a file on the disk of the database.
            cursor.execute("SET LOCAL work_mem = '64kB'; SET LOCAL temp_tablespaces = ''")
            cursor.execute("SELECT count(*) FROM generate_series(1, %s)", [PROBE_ROWS])
    except DatabaseError as error:
        if find_outage(error) is FULL:
            return FULL.state
        raise
    return OK


ROOM = Occasional(room_health)


def file_health(path: Path) -> str:
    """Return the state of a SQLite file: whether it and its folder can be written to."""
    if not os.access(path, os.W_OK):
        return READ_ONLY.state
    try:
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        outage = BY_ERRNO.get(error.errno or 0, UNREACHABLE)
        return outage.state
    return OK


def broker_health(url: str) -> str:
    """Return the state of the broker; the embedded one is part of this process."""
    if settings.IS_EMBEDDED:
        return OK
    # Imported here: the embedded worker does not need it.
    import redis

    timeouts = {"socket_timeout": BROKER_TIMEOUT_S, "socket_connect_timeout": BROKER_TIMEOUT_S}
    try:
        with redis.Redis.from_url(url, **timeouts) as client:
            client.ping()
    except (redis.RedisError, ValueError):
        return "unreachable"
    return OK


def worker_health() -> str:
    """Return whether any worker process has a recent heartbeat."""
    try:
        alive = WorkerProcess.objects.alive(now=database_now()).exists()
    except (DatabaseError, InterfaceError):
        return UNKNOWN
    return OK if alive else "missing"


def work_health() -> tuple[str, float | None]:
    """Return whether workers take the work that waits, and for how long the oldest has waited."""
    try:
        seconds, _ = UNCLAIMED.get()
    except (DatabaseError, InterfaceError):
        return UNKNOWN, None
    return "stalled" if seconds > STALLED_AFTER_S else OK, seconds


def unclaimed_s() -> float:
    """Return the seconds that a run has waited without a worker, while one was free or none was alive.

    0 if there is no such run. A worker has several threads, each of which executes one run; those of one member
    leave one of them free.
    """
    now = database_now()
    alive = RunWorker.objects.alive(now=now)
    workers = WorkerProcess.objects.alive(now=now).count()
    threads = settings.CELERY_WORKER_CONCURRENCY
    busy = alive.filter(run__owner=RunOwner.WORKERS)
    members = list(busy.values_list("run__created_by", flat=True))
    if workers and len(members) >= workers * threads:
        return 0.0
    waiting = Result.objects.ready().filter(run_id=OuterRef("pk"))
    runs = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES, owner=RunOwner.WORKERS)
    runs = runs.filter(Exists(waiting)).exclude(Exists(alive.filter(run_id=OuterRef("pk"))))
    runs = runs.exclude(created_by__in=members_at_limit(members, workers=workers))
    since = runs.order_by().values_list("waits_since", Max("run_workers__heartbeat_at"))
    return max((_seconds(now, moments) for moments in since), default=0.0)


def _seconds(now: datetime, moments: Iterable[datetime | None]) -> float:
    """Return the seconds since the last of the moments."""
    last = max(moment for moment in moments if moment is not None)
    return max(0.0, (now - last).total_seconds())


UNCLAIMED = Occasional(unclaimed_s)
