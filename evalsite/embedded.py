"""The worker inside the web process: threads that work on runs, and yield to requests for pages."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from celery.worker import WorkController

from evalsite.celery import app

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Requests:
    """Counts the requests that are being answered."""

    def __init__(self) -> None:
        """Count from none."""
        self._lock = threading.Lock()
        self._count = 0

    def are_under_way(self) -> bool:
        """Tell whether anybody waits."""
        return self._count > 0

    def counted(self, application: Application) -> Application:
        """Return the application, each of whose requests is counted until it is answered."""

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            self._move(1)
            try:
                return application(environ, start_response)
            finally:
                self._move(-1)

        return answer

    def _move(self, by: int) -> None:
        with self._lock:
            self._count += by


REQUESTS = Requests()


logger = logging.getLogger(__name__)

THREADS = 4
# A thread that serves a page gives the interpreter away with every row it reads, and gets it back
# from threads that work only after so long. With Python's 5 ms the added wait was thrice as long.
SWITCH_S = 0.0005


class EmbeddedWorker:
    """A Celery worker in a thread of this process, on a broker in its memory."""

    def __init__(self) -> None:
        """Do nothing yet."""
        self._thread: threading.Thread | None = None
        self._worker: WorkController | None = None

    def start(self) -> None:
        """Work from now on."""
        self._thread = threading.Thread(target=self._work, name="embedded-worker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Release what is being worked on, then end."""
        # Loaded by the thread; not at the top, or the web process would wait for it at its start.
        heartbeat = importlib.import_module("evalsite.heartbeat").HEARTBEAT
        heartbeat.stop()
        if self._worker is not None:
            self._worker.stop()

    def _work(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        # Loading the model client takes a second: here it holds up no request.
        importlib.import_module("evaluators.model_calls.client")
        # Signals, gossip and remote control belong to processes of their own.
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
        importlib.import_module("runs.execution.run_worker").yield_while(REQUESTS.are_under_way)
        importlib.import_module("evalsite.heartbeat").HEARTBEAT.start()
        self._worker.start()


WORKER = EmbeddedWorker()
