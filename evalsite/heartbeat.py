"""The heartbeat of a worker process: it shows that it lives and runs the reaper, at the start and every 10 seconds."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from pathlib import Path

from django.conf import settings
from django.db import close_old_connections, connection

from evaluators.sandbox.box import clear_after_the_dead
from evaluators.sandbox.probe import MAX_WORD_LENGTH, sandbox_offered
from runs.execution.database import note_error
from runs.execution.reaper import end_idle_transactions, reap, register_worker, unregister_worker
from runs.execution.run_worker import release, settle
from runs.models.clock import database_now, discard_connection
from runs.queue import WORK_ON_RUN, queue

logger = logging.getLogger(__name__)

HEARTBEAT_EVERY_S = min(10.0, settings.LEASE_S / 3)
# Every beat queues what still lacks hands: without an end the queue of busy workers would only grow.
QUEUED_FOR_S = 60.0
SCRIPTS_OFF = "scripts off; "


class Heartbeat:
    """A timer thread of its own: a worker that is busy reaps all the same."""

    def __init__(self) -> None:
        """Be still."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._missed = False

    def start(self) -> None:
        """Beat from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="reap", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Beat no more, give back what this process works on, and take it off the list."""
        self._ending.set()
        release()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _beat(self) -> None:
        settle()
        while True:
            self.beat()
            touch_heartbeat_file()
            if self._ending.wait(HEARTBEAT_EVERY_S):
                break
        try:
            unregister_worker()
        except Exception:
            logger.exception("The worker could not take itself off the list")
        connection.close()

    def beat(self) -> None:
        """Show this process and reap; never raises.

        After a beat that failed, one only shows the process: hands that could not renew their
        leases while the database was away are first to write what they hold.
        """
        was_missed, self._missed = self._missed, True
        clear_boxes()
        try:
            close_old_connections()
            end_idle_transactions()
            register_worker(now=database_now(), version=version(), sandbox=sandbox_in_force())
            if not was_missed:
                reap_and_queue()
            self._missed = False
        except Exception as error:
            logger.exception("The reaper failed; the next one is in %s s", HEARTBEAT_EVERY_S)
            discard_connection()
            self._note(error)

    def _note(self, error: Exception) -> None:
        try:
            note_error(error)
        except Exception:
            logger.exception("The error could not be kept")


def sandbox_in_force() -> str:
    """Return what locks scripts in here, in at most 100 characters; it begins with the switch if that is off."""
    words = sandbox_offered().in_words
    return words if settings.SCRIPTS else f"{SCRIPTS_OFF}{words}"[:MAX_WORD_LENGTH]


def touch_heartbeat_file() -> None:
    """Show whoever watches over this process from outside that it goes on, its database or not."""
    try:
        if settings.HEARTBEAT_FILE:
            Path(settings.HEARTBEAT_FILE).touch()
    except OSError as error:
        logger.warning("EVALSITE_BEAT_FILE cannot be written: %s", error)


def reap_and_queue() -> None:
    """Set right what dead workers left, and queue hands for the runs that could use them."""
    for run_id in reap(now=database_now()):
        queue(WORK_ON_RUN, run_id, expires_s=QUEUED_FOR_S)


def clear_boxes() -> None:
    """End and remove what scripts of workers that were killed have left on this machine."""
    try:
        clear_after_the_dead()
    except OSError:
        logger.exception("What scripts of dead workers left could not be removed")


def version() -> str:
    """Return the version installed; a checkout that is not installed has none."""
    try:
        return importlib.metadata.version("evalsite")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


HEARTBEAT = Heartbeat()
