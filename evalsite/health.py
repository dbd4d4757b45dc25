"""Tell whether database, broker and workers answer, each by itself, and why not."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from runs.models.database import database_now
from runs.models.runs import WorkerProcess


@dataclass(frozen=True, slots=True)
class Outage:
    """One kind of outage: its state as the health page names it, and what a reader should know."""

    state: str
    title: str
    meaning: str
    remedy: str


UNREACHABLE = Outage(
    "unreachable",
    "The database does not answer",
    "It is being started again, it is down, or the network to it is broken.",
    "Try again in a moment. The administrator of the server makes sure that the database runs, and that "
    "DATABASE_URL or EVALSITE_DATA_DIR names the place where it is.",
)
FULL = Outage(
    "full",
    "The disk of the database is full",
    "Pages can be read; nothing new can be stored.",
    "The administrator of the server frees space on the disk of the database, or gives it a larger one.",
)
READ_ONLY = Outage(
    "read-only",
    "The database is read-only",
    "Pages can be read; nothing new can be stored.",
    "The administrator of the server lets this site write: to a PostgreSQL server that is no standby, or to the "
    "SQLite file and its folder.",
)
BUSY = Outage(
    "busy",
    "The database is overloaded",
    "It had no connection left, or something else held what this page needs for too long.",
    "Try again in a moment. If it happens often, see what keeps the database busy, and whether its "
    "max_connections suffices for all web and worker processes.",
)
DAMAGED = Outage(
    "damaged",
    "The database file is damaged",
    "What SQLite finds in it is not what it has written.",
    "The administrator of the server restores the last backup; the README says how.",
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


def outage_of(error: BaseException | None) -> Outage | None:
    """Return the outage behind an error; None for what is no outage, such as a query that is wrong."""
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        # Above the lowest byte stands only which of its kind it is.
        return BY_SQLITE_CODE.get(code & 0xFF)
    state = getattr(cause, "sqlstate", None)
    if state in BY_SQLSTATE:
        return BY_SQLSTATE[state]
    is_connection = isinstance(error, OperationalError | InterfaceError)
    return UNREACHABLE if is_connection and not isinstance(cause, sqlite3.Error) else None


BROKER_TIMEOUT_S = 2
MIN_FREE_BYTES = 1024 * 1024
OK, UNKNOWN = "ok", "unknown"
PARTS = ("database", "broker", "worker")


def health(parts: Collection[str] = PARTS) -> dict[str, str]:
    """Return one word for each part asked for.

    They are ok, an outage's state (unreachable, read-only, full, busy, damaged), missing (no worker
    has a recent heartbeat), or unknown.
    """
    states: dict[str, str] = {}
    if "database" in parts or "worker" in parts:
        states["database"] = database_health()
    if "broker" in parts:
        states["broker"] = broker_health(settings.CELERY_BROKER_URL)
    if "worker" in parts:
        # A question to a database that is away takes its time: ask once.
        states["worker"] = worker_health() if states["database"] == OK else UNKNOWN
    return {part: states[part] for part in parts}


def database_health() -> str:
    """Return whether the database answers a query and can be written to."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SHOW transaction_read_only" if connection.vendor == "postgresql" else "SELECT 1"
            )
            [answer] = cursor.fetchone()
    except (DatabaseError, InterfaceError) as error:
        outage = outage_of(error) or UNREACHABLE
        return outage.state
    if connection.vendor == "sqlite":
        return file_health(Path(connection.settings_dict["NAME"]))
    return READ_ONLY.state if answer == "on" else OK


def file_health(path: Path) -> str:
    """Return whether a SQLite file and what lies beside it can be written to."""
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return READ_ONLY.state
    return OK if shutil.disk_usage(path.parent).free > MIN_FREE_BYTES else FULL.state


def broker_health(url: str) -> str:
    """Return whether the broker answers; the embedded one lives in this process."""
    if settings.IS_EMBEDDED:
        return OK
    # The embedded worker needs no client of it.
    import redis

    timeouts = {"socket_timeout": BROKER_TIMEOUT_S, "socket_connect_timeout": BROKER_TIMEOUT_S}
    try:
        with redis.Redis.from_url(url, **timeouts) as client:
            client.ping()
    except (redis.RedisError, ValueError):
        return "unreachable"
    return OK


def worker_health() -> str:
    """Return whether a worker process has shown a sign of life lately."""
    try:
        alive = WorkerProcess.objects.alive(now=database_now()).exists()
    except (DatabaseError, InterfaceError):
        return UNKNOWN
    return OK if alive else "missing"
