"""The worker inside the web process: its threads execute runs and yield to page requests."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from typing import TYPE_CHECKING

from django.conf import settings

from evalsite.serving import REQUESTS

if TYPE_CHECKING:
    from celery.worker import WorkController


logger = logging.getLogger(__name__)

# A thread that serves a page releases the interpreter lock with every row it reads, and waits this
# long to get it back from a working thread. Python's default of 5 ms made pages three times slower.
SWITCH_S = 0.0005


class EmbeddedWorker:
    """A Celery worker in a thread of this process, with an in-memory broker."""

    def __init__(self) -> None:
        """Do nothing yet."""
        self._thread: threading.Thread | None = None
        self._worker: WorkController | None = None
        self._stopping = threading.Lock()

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._work, name="embedded-worker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Release active runs, then stop the worker; a second call waits for the first."""
        # Not imported at the top: that would delay the start of the web process.
        heartbeat = importlib.import_module("evalsite.heartbeat").HEARTBEAT
        with self._stopping:
            heartbeat.stop()
            if self._worker is not None:
                self._worker.stop()
                self._worker = None

    def _work(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        # Loading Celery and the model client takes a second. In this thread it delays no request.
        from celery.worker import WorkController

        from evalsite.celery import app

        importlib.import_module("evaluators.model_calls.endpoint")
        # Signals, gossip and remote control are for separate worker processes.
        self._worker = WorkController(
            app=app,
            pool_cls="threads",
            concurrency=settings.CELERY_WORKER_CONCURRENCY,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            loglevel=logging.WARNING,
            quiet=True,
        )
        importlib.import_module("runs.execution.run_worker").yield_to_waiting_requests(
            REQUESTS.is_busy
        )
        importlib.import_module("evalsite.heartbeat").HEARTBEAT.start()
        self._worker.start()


WORKER = EmbeddedWorker()
