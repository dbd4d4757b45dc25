"""Several threads that do something at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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
