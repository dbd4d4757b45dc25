"""The one clock that leases and heartbeats go by, and connections that have failed."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import Error, connection
from django.utils import timezone

# A worker renews its leases every sixth of this; one that has not for so long is taken for dead.
LEASE = timedelta(seconds=settings.LEASE_S)


def clock_offset() -> timedelta:
    """Return how far the database's clock is ahead of this machine's; nothing with SQLite."""
    if connection.vendor != "postgresql":
        return timedelta()
    return database_now() - timezone.now()


def database_answers_since() -> datetime:
    """Return when the PostgreSQL server was started; a SQLite file is never away by itself."""
    if connection.vendor != "postgresql":
        return datetime.min.replace(tzinfo=UTC)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time()")
        row: tuple[datetime] = cursor.fetchone()
    return row[0]


def database_now() -> datetime:
    """Return the time of the PostgreSQL server; with SQLite there is one machine and its clock."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row: tuple[datetime] = cursor.fetchone()
    return row[0]


def discard_connection() -> None:
    """Close this thread's connection for good; the next query opens another.

    One only put back would be handed out again, and with it what it remembers: a session that was
    opened while its server was read-only stays so for as long as it lives.
    """
    # Inside a test's transaction the connection is not ours to close.
    if connection.in_atomic_block:
        return
    if connection.vendor == "postgresql" and connection.connection is not None:
        connection.connection.close()
    with contextlib.suppress(Error):
        connection.close()
