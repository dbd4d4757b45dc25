"""Several threads that do something at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from django.db import connection

from evaluators.scoring.types import DomainError


def at_once(*actions: Callable[[], object]) -> list[object]:
    """Run all actions in threads that start together; return their results, and the message of what is refused."""
    start = threading.Barrier(len(actions))

    def do(action: Callable[[], object]) -> object:
        start.wait()
        try:
            return action()
        except DomainError as refusal:
            return str(refusal)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(actions)) as threads:
        return list(threads.map(do, actions))


def in_thread(threads: ThreadPoolExecutor, action: Callable[[], object]) -> Future[object]:
    """Do it in a thread, and return when it waits for a lock or has ended."""

    def do() -> object:
        try:
            return action()
        finally:
            connection.close()

    future = threads.submit(do)
    # SQLite lets one write at a time, and the thread waits as soon as it begins.
    while connection.vendor == "postgresql" and not future.done():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT 1 FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if cursor.fetchone():
                break
    return future
