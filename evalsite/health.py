"""Tell whether database, broker and workers answer, each by itself."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from runs.models import WorkerProcess
from runs.models.clock import database_now

BROKER_TIMEOUT_S = 2
OK = "ok"


def health() -> dict[str, str]:
    """Return one word for each part: ok, unreachable, or missing (no worker has a recent beat)."""
    return {
        "database": database_health(),
        "broker": broker_health(settings.CELERY_BROKER_URL),
        "worker": worker_health(),
    }


def database_health() -> str:
    """Return whether the database answers a query."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "unreachable"
    return OK


def broker_health(url: str) -> str:
    """Return whether the broker answers; the embedded one lives in this process."""
    if settings.IS_EMBEDDED:
        return OK
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
    except DatabaseError:
        return "unknown"
    return OK if alive else "missing"
