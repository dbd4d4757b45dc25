"""The pulse of a worker process: it shows that it lives and sweeps, at the start and every 10 seconds."""

from __future__ import annotations

import importlib.metadata
import logging
import threading

from django.db import close_old_connections, connection
from django.utils import timezone

from runs.execution.running import let_go
from runs.execution.sweeping import hide_worker, show_worker, sweep
from runs.services.queueing import WORK_ON_RUN, queue

logger = logging.getLogger(__name__)

SWEEP_EVERY_S = 10.0


class Pulse:
    """A timer thread of its own: a worker that is busy sweeps all the same."""

    def __init__(self) -> None:
        """Be still."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Beat from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="sweep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Beat no more, give back what this process works on, and take it off the list."""
        self._ending.set()
        let_go()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _beat(self) -> None:
        while True:
            try:
                beat()
            except Exception:
                logger.exception("A sweep failed; the next one is in %s s", SWEEP_EVERY_S)
                connection.close()
            if self._ending.wait(SWEEP_EVERY_S):
                break
        try:
            hide_worker()
        except Exception:
            logger.exception("The worker could not take itself off the list")
        connection.close()


def beat() -> None:
    """Show this process, sweep, and queue hands for the runs that could use them."""
    close_old_connections()
    show_worker(now=timezone.now(), version=version())
    for run_id in sweep(now=timezone.now()):
        queue(WORK_ON_RUN, run_id)


def version() -> str:
    """Return the version installed; a checkout that is not installed has none."""
    try:
        return importlib.metadata.version("evalsite")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


PULSE = Pulse()
