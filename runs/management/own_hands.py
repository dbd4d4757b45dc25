"""A command-line process as the only hands of a run: it carries the run out and keeps its heartbeat."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from django.db import DatabaseError, InterfaceError, connection

from runs.execution.database import is_away
from runs.execution.finishing import end_run
from runs.execution.mishaps import first_of, in_words
from runs.execution.running import let_go_of, patiently, work_on_run
from runs.execution.sweeping import sweep
from runs.models import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.clock import LEASE, database_now

logger = logging.getLogger(__name__)

BEAT_EVERY_S = LEASE.total_seconds() / 6
LOOK_AGAIN_S = 1.0
MOST_BREAKS = 3


class OwnHands:
    """Hands in one thread and a heartbeat in another, from entering the block to leaving it.

    `problem` says in words why the hands gave up, "" as long as they have not.
    """

    def __init__(self, run: Run, *, waiting: Sequence[int] = ()) -> None:
        """Do nothing yet; `waiting` are runs of this process whose turn comes after."""
        self.problem = ""
        self._run_id = run.pk
        self._waiting = waiting
        self._owner_id = run.owner_id
        self._breaks = 0
        self._is_over = threading.Event()
        self._is_released = threading.Event()
        # Daemons: whoever does not want to wait for them ends the process.
        self._threads = [
            threading.Thread(target=self._carry_out, name="hands", daemon=True),
            threading.Thread(target=self._beat, name="heartbeat", daemon=True),
        ]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of what is still in hand, and end the threads."""
        if not self._is_over.is_set():
            self.release()
        for thread in self._threads:
            thread.join()

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; True once the hands have nothing left to do."""
        return self._is_over.wait(seconds)

    def stop(self, reason: str) -> None:
        """End the run, keeping what is done; raises the database's own error when it does not answer."""
        end_run(self._run_id, RunStatus.STOPPED, reason)

    def release(self, *, for_good: bool = True) -> None:
        """Let go of the run; `for_good`, or with none waiting, within seconds.

        After that this process takes on nothing more of it. Other runs are not its business: a watch
        that sees the end before the hands say so must not keep the next run from its hands.
        """
        self._is_released.set()
        if for_good or not self._waiting:
            let_go_of(self._run_id)

    def _carry_out(self) -> None:
        try:
            while self._goes_on():
                self._work()
        except Exception as error:
            logger.exception("The run could not be carried out to its end")
            self.problem = in_words(error)
        finally:
            self._is_over.set()
            connection.close()

    def _goes_on(self) -> bool:
        if self._is_released.is_set():
            return False
        mine = Run.objects.filter(pk=self._run_id, owner_id=self._owner_id)
        return patiently(mine.filter(status__in=ACTIVE_RUN_STATUSES).exists)

    def _work(self) -> None:
        """Work until nothing can be claimed, and set right what these hands may have lost before."""
        try:
            work_on_run(self._run_id, owner_id=self._owner_id)
        except Exception as error:
            self._breaks += 1
            if self._breaks >= MOST_BREAKS or is_away(first_of(error)):
                raise
            logger.exception("The hands broke off and begin again")
        if self._goes_on():
            self._is_released.wait(LOOK_AGAIN_S)
            patiently(lambda: sweep(now=database_now()))

    def _beat(self) -> None:
        """Show that the run, and what waits for its turn, is in hand; a database that is away now may be there at the next beat."""
        while not self._is_over.wait(BEAT_EVERY_S):
            try:
                mine = Run.objects.filter(pk__in=(self._run_id, *self._waiting))
                mine.filter(owner_id=self._owner_id).update(heartbeat_at=database_now())
            except (DatabaseError, InterfaceError) as error:
                logger.warning("The heartbeat failed, next in %s s: %s", BEAT_EVERY_S, error)
                connection.close()
        connection.close()
