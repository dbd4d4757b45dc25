"""The worker inside the web process: its threads execute runs and yield to page requests."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery.worker import WorkController

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class RequestCounter:
    """Counts the requests that are being answered."""

    def __init__(self) -> None:
        """Start at zero."""
        self._lock = threading.Lock()
        self._count = 0

    def is_busy(self) -> bool:
        """Tell whether any request is being answered."""
        return self._count > 0

    def wrap(self, application: Application) -> Application:
        """Return the application with its requests counted."""

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            self._add(1)
            try:
                return application(environ, start_response)
            finally:
                self._add(-1)

        return answer

    def _add(self, number: int) -> None:
        with self._lock:
            self._count += number


REQUESTS = RequestCounter()


logger = logging.getLogger(__name__)

THREADS = 4
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
            concurrency=THREADS,
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
