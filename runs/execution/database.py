"""Database work of an event loop, done in one thread of its own, surviving a database that restarts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, close_old_connections, connection

logger = logging.getLogger(__name__)

Args = ParamSpec("Args")
Value = TypeVar("Value")

# A database that restarts is back within seconds; leases last longer than all the pauses together.
PAUSES_S = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


class DatabaseThread:
    """One thread that holds one connection; what is asked of it is done in order."""

    def __init__(self) -> None:
        """Start with the first piece of work."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="execution-db")

    async def do(
        self, function: Callable[Args, Value], *args: Args.args, **kwargs: Args.kwargs
    ) -> Value:
        """Return what the function returns; it is called again when the database was not there."""
        return await self.do_knowing(lambda is_repeated: function(*args, **kwargs))

    async def do_knowing(self, function: Callable[[bool], Value]) -> Value:
        """Return what the function returns; it is told whether it is called again.

        What was asked is done even when the asker is cancelled meanwhile.
        """
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._executor, patiently, function)
        return await asyncio.shield(work)

    def close(self) -> None:
        """Finish what was asked, close the connection and end the thread."""
        self._executor.submit(lambda: connection.close()).result()
        self._executor.shutdown()


def patiently(function: Callable[[bool], Value]) -> Value:
    """Call the function, and again after growing pauses while the database is away; then raise."""
    for number, pause_s in enumerate((*PAUSES_S, None)):
        try:
            return function(number > 0)
        except (OperationalError, InterfaceError) as error:
            if pause_s is None:
                raise
            logger.warning("The database did not answer, asking again in %s s: %s", pause_s, error)
            _drop_connection()
            time.sleep(pause_s)
    raise AssertionError("the last pause is None")


def _drop_connection() -> None:
    # Inside a test's transaction the connection is not ours to close.
    if not connection.in_atomic_block:
        connection.close()
        close_old_connections()
