"""Database work of an event loop in its own thread, patient with outages, and the errors of workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection

from evaluators.sandbox.processes import process_name
from runs.models.database import database_now, discard_connection
from runs.models.runs import Run, RunEvent, WorkerProcess

logger = logging.getLogger(__name__)

Args = ParamSpec("Args")
Value = TypeVar("Value")

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 1.0
# Calls that are paid but unwritten exist only in this process, so a long wait is worth it.
PATIENCE_S = 600.0
LAST_PATIENCE_S = 8.0
LATE_AFTER_S = 1.0
# Read-only, and sessions that PostgreSQL ended because they were idle in a transaction.
PASSING_STATES = ("25006", "25P03", "25P04")

Sleep = Callable[[float], object]
Clock = Callable[[], float]


class DatabaseThread:
    """One thread with one connection that does its work in order.

    `is_there` is set while the database answers; work that must be written waits for it. `pause` is
    called before each piece of work.
    """

    def __init__(self, pause: Callable[[], object] = lambda: None) -> None:
        """Start the thread with the first piece of work."""
        self._pause = pause
        self.is_there = asyncio.Event()
        self.is_there.set()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="execution-db")
        self._patience = Patience()

    async def do(
        self, function: Callable[Args, Value], *args: Args.args, **kwargs: Args.kwargs
    ) -> Value:
        """Return the function's value; call it again when the database was away."""
        return await self.do_repeatable(lambda is_repeated: function(*args, **kwargs))

    async def do_repeatable(self, function: Callable[[bool], Value]) -> Value:
        """Return the function's value; its argument says whether this is a repetition.

        The work is done even if the caller is cancelled.
        """
        loop = asyncio.get_running_loop()

        def tell(is_there: bool) -> None:
            change = self.is_there.set if is_there else self.is_there.clear
            # The loop may have ended while the database was away.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(change)

        def do() -> Value:
            self._pause()
            return self._patience.call(function, tell)

        work = loop.run_in_executor(self._executor, do)
        # A server that is gone raises no error for a while.
        late = loop.call_later(LATE_AFTER_S, self.is_there.clear)
        work.add_done_callback(lambda done: self._note_answer(late))
        return await asyncio.shield(work)

    def _note_answer(self, late: asyncio.TimerHandle) -> None:
        late.cancel()
        self.is_there.set()

    def shut_down(self) -> None:
        """Wait only seconds for a database that is away, because this process is about to end."""
        self._patience.shorten()

    def close(self) -> None:
        """Finish the work, close the connection and end the thread."""
        self._executor.submit(lambda: connection.close()).result()
        self._executor.shutdown()


class Patience:
    """Repeats work while the database is away, for ten minutes in all, then no more."""

    def __init__(
        self,
        *,
        patience_s: float = PATIENCE_S,
        sleep: Sleep = time.sleep,
        clock: Clock = time.monotonic,
    ) -> None:
        """Start with all patience."""
        self.is_over = False
        self._patience_s = patience_s
        self._sleep = sleep
        self._clock = clock

    def shorten(self) -> None:
        """Have little patience from now on: enough for a connection that a restart broke."""
        self._patience_s = min(self._patience_s, LAST_PATIENCE_S)

    def call(
        self,
        function: Callable[[bool], Value],
        tell: Callable[[bool], None] = lambda is_there: None,
    ) -> Value:
        """Return the function's value; its argument says whether this is a repetition.

        `tell` is called with False when the database is away and with True when it is back. Raises the
        database's own error when patience is over, and any other error at once.
        """
        pause_s, is_repeated = FIRST_PAUSE_S, False
        since = self._clock()
        while True:
            try:
                value = function(is_repeated)
            except (DatabaseError, InterfaceError) as error:
                if not is_temporary(error) or self.is_over:
                    raise
                # Measured by the clock, because each try may take long to fail.
                if self._clock() >= since + self._patience_s:
                    self.is_over = True
                    raise
                if not is_repeated:
                    logger.warning(
                        "The database does not answer; retrying until it does: %s", error
                    )
                    tell(False)
                is_repeated = True
                discard_connection()
                self._sleep(pause_s)
                pause_s = min(MAX_PAUSE_S, pause_s * 2)
            else:
                if is_repeated:
                    logger.warning("The database answers again after %.1f s", self._clock() - since)
                    tell(True)
                return value


def is_temporary(error: BaseException) -> bool:
    """Tell whether a database error may go away by itself: no answer, no space, read-only."""
    if isinstance(error, OperationalError):
        # SQLite raises the same error for wrong SQL.
        return getattr(error.__cause__, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR
    if isinstance(error, InterfaceError):
        return True
    return getattr(error.__cause__, "sqlstate", None) in PASSING_STATES


CRASHED = "worker_crashed"
RESUMED = ("resume", "retry")
MAX_CRASHES = 3
MAX_REASON_LENGTH = 400


def note_error(error: BaseException) -> str:
    """Store the error as this worker's last one if the database answers; return its description."""
    reason = describe_error(error)
    if is_temporary(first_error(error)):
        return reason
    WorkerProcess.objects.filter(name=process_name()).update(
        last_error=reason, last_error_at=database_now()
    )
    return reason


def note_crash(run_id: int, reason: str) -> bool:
    """Record in the log of a run that a worker crashed.

    True when it is the third crash after the same number of results since the run was last resumed.
    """
    done = Run.objects.values_list("done_count", flat=True).get(id=run_id)
    place = f"A worker crashed after {done} results: "
    events = RunEvent.objects.filter(run_id=run_id)
    events.create(run_id=run_id, kind=CRASHED, text=place + reason)
    latest = events.filter(kind__in=RESUMED).order_by("-id").values_list("id", flat=True).first()
    crashes = events.filter(kind=CRASHED, text__startswith=place, id__gt=latest or 0)
    return crashes.count() >= MAX_CRASHES


def describe_error(error: BaseException) -> str:
    """Return kind and text of an error."""
    error = first_error(error)
    return f"{type(error).__name__}: {error}"[:MAX_REASON_LENGTH]


def first_error(error: BaseException) -> BaseException:
    """Return the error itself, or the first of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
