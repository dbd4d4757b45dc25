"""Check database, broker and workers separately, and explain outages of the database."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from runs.models.database import database_now
from runs.models.runs import WorkerProcess


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
    "57014": BUSY,
    "40P01": BUSY,
}
BY_SQLITE_CODE = {
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
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        # The higher bytes hold the extended error code.
        return BY_SQLITE_CODE.get(code & 0xFF)
    state = getattr(cause, "sqlstate", None)
    if state in BY_SQLSTATE:
        return BY_SQLSTATE[state]
    is_connection = isinstance(error, OperationalError | InterfaceError)
    return UNREACHABLE if is_connection and not isinstance(cause, sqlite3.Error) else None


BROKER_TIMEOUT_S = 2
PROBE_BYTES = 1024 * 1024
# PostgreSQL writes about 1 MB for them.
PROBE_ROWS = 40_000
OK, UNKNOWN = "ok", "unknown"
PARTS = ("database", "broker", "worker")


def health(parts: Collection[str] = PARTS) -> dict[str, str]:
    """Return the state of each part: ok, the state of an outage, missing or unknown.

    Missing means that no worker has a recent heartbeat.
    """
    states: dict[str, str] = {}
    if "database" in parts or "worker" in parts:
        states["database"] = database_health()
    if "broker" in parts:
        states["broker"] = broker_health(settings.CELERY_BROKER_URL)
    if "worker" in parts:
        # A query to a database that is down takes long: ask once.
        states["worker"] = worker_health() if states["database"] == OK else UNKNOWN
    return {part: states[part] for part in parts}


def database_health() -> str:
    """Return the state of the database: whether it answers, and has room for what runs write.

    Reading, and changing a row in place, still work on a full disk. So a small file is written and
    removed where the database keeps its own: this touches no table and waits for no lock.
    """
    try:
        if connection.vendor == "postgresql":
            return server_health()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError) as error:
        outage = find_outage(error) or UNREACHABLE
        return outage.state
    return file_health(Path(connection.settings_dict["NAME"]))


def server_health() -> str:
    """Return whether the PostgreSQL server takes writes; raises the error if its disk does not."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SHOW transaction_read_only")
        [read_only] = cursor.fetchone()
        if read_only == "on":
            return READ_ONLY.state
        # Rows beyond the memory of a query go to a file on the disk of the database.
        cursor.execute("SET LOCAL work_mem = '64kB'; SET LOCAL temp_tablespaces = ''")
        cursor.execute("SELECT count(*) FROM generate_series(1, %s)", [PROBE_ROWS])
    return OK


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
