"""Get rid of a database connection that has failed, so that nobody is handed it again."""

from __future__ import annotations

import contextlib

from django.db import Error, connection


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
