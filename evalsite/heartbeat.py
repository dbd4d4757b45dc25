"""The heartbeat of a worker process: at the start and every 10 seconds it registers the process and runs the reaper."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import close_old_connections, connection

from evalsite import version
from evaluators.sandbox.box import remove_dead_boxes
from evaluators.sandbox.probe import MAX_WORD_LENGTH, find_sandbox
from runs.execution import jobs, run_worker
from runs.execution.database import note_error
from runs.execution.reaper import end_idle_transactions, reap, register_worker, unregister_worker
from runs.exports.services import WRITER
from runs.models.database import database_now, discard_connection
from runs.models.runs import LEASE
from runs.queue import WORK_ON_RUN, queue

logger = logging.getLogger(__name__)

HEARTBEAT_EVERY_S = min(10.0, settings.LEASE_S / 3)
# Every heartbeat queues runs that lack workers. Without an expiry the queue would grow while all workers are busy.
QUEUED_FOR_S = 60.0
SCRIPTS_OFF = "scripts off; "


class Heartbeat:
    """Sends heartbeats from its own thread, so that a busy worker sends them too."""

    def __init__(self) -> None:
        """Do nothing yet."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._missed = False
        self._sent_at: datetime | None = None

    def start(self) -> None:
        """Start the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Release the runs, jobs and export of this process, and take it off the list of workers."""
        self._ending.set()
        WRITER.stop()
        run_worker.release()
        jobs.release()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        run_worker.freeze_loaded_objects()
        while True:
            self.send()
            touch_heartbeat_file()
            if self._ending.wait(HEARTBEAT_EVERY_S):
                break
        try:
            unregister_worker()
        except Exception:
            logger.exception("The worker could not take itself off the list")
        connection.close()

    def send(self) -> None:
        """Register this process and reap; never raises.

        The heartbeat after a failed one does not reap: workers that could not renew their leases
        while the database was down get time to write their results. Nor does one more than a
        lease after the last: if the machine slept or its clock was set, others could not renew theirs either.
        """
        was_missed, self._missed = self._missed, True
        clear_boxes()
        try:
            close_old_connections()
            end_idle_transactions()
            now = database_now()
            is_late = self._sent_at is not None and now - self._sent_at > LEASE
            self._sent_at = now
            register_worker(now=now, version=version(), sandbox=describe_sandbox())
            if not was_missed and not is_late:
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
            logger.exception("The error could not be stored")


def describe_sandbox() -> str:
    """Describe the sandbox of this process in at most 100 characters, starting with "scripts off" if they are."""
    text = find_sandbox().in_words
    return text if settings.SCRIPTS else f"{SCRIPTS_OFF}{text}"[:MAX_WORD_LENGTH]


def touch_heartbeat_file() -> None:
    """Touch the file that shows an external watchdog that this process is alive, even without a database."""
    try:
        if settings.HEARTBEAT_FILE:
            Path(settings.HEARTBEAT_FILE).touch()
    except OSError as error:
        logger.warning("EVALSITE_HEARTBEAT_FILE cannot be written: %s", error)


def reap_and_queue() -> None:
    """Clean up after dead workers, and queue runs that could use more workers."""
    for run_id in reap(now=database_now(), at_work=run_worker.tokens_at_work()):
        queue(WORK_ON_RUN, run_id, expires_s=QUEUED_FOR_S)


def clear_boxes() -> None:
    """End processes and remove files that scripts of killed workers left on this machine."""
    try:
        remove_dead_boxes()
    except OSError:
        logger.exception("Processes or files of dead workers could not be removed")


HEARTBEAT = Heartbeat()
