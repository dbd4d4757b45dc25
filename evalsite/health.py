"""Tell whether database, broker and workers answer, each by itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from evalsite.outages import FULL, READ_ONLY, UNREACHABLE, outage_of
from runs.models import WorkerProcess
from runs.models.clock import database_now

BROKER_TIMEOUT_S = 2
LEAST_FREE_BYTES = 1024 * 1024
OK, UNKNOWN = "ok", "unknown"
PARTS = ("database", "broker", "worker")


def health(parts: Collection[str] = PARTS) -> dict[str, str]:
    """Return one word for each part asked for.

    They are ok, an outage's state (unreachable, read-only, full, busy, damaged), missing (no worker
    has a recent beat), or unknown.
    """
    states: dict[str, str] = {}
    if "database" in parts or "worker" in parts:
        states["database"] = database_health()
    if "broker" in parts:
        states["broker"] = broker_health(settings.CELERY_BROKER_URL)
    if "worker" in parts:
        # Who asks a database that is away waits for it once.
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
    return OK if shutil.disk_usage(path.parent).free > LEAST_FREE_BYTES else FULL.state


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
