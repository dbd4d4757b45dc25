"""How gunicorn serves Evalsite: one process, a few threads, and the embedded worker beside them."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings

# What `evalsite up` has to say once the first worker serves.
ANNOUNCEMENT = "EVALSITE_ANNOUNCEMENT"

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

bind = f"{settings.LISTEN}:{settings.PORT}"
# One process holds the embedded worker and its broker; more threads only wait for the interpreter.
workers = 1
threads = 4
worker_class = "gthread"
# Nothing uses it, and in the home folder several servers would share it.
control_socket_disable = True
timeout = 120
graceful_timeout = 20
# The heartbeat file must not lie on a disk that may stall.
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108, PTH112 - gunicorn makes its file there
loglevel = settings.LOG_LEVEL.lower()
proc_name = "evalsite"


def post_worker_init(worker: Any) -> None:
    """Start the embedded worker in the process that serves, after it was forked; say that it serves."""
    if settings.IS_EMBEDDED:
        from evalsite.embedded import WORKER

        WORKER.start()
    if worker.age == 1 and (said := os.environ.get(ANNOUNCEMENT)):
        sys.stderr.write(f"{said}\n")
        sys.stderr.flush()


def worker_exit(server: Any, worker: Any) -> None:
    """Give back the results that the embedded worker holds."""
    if settings.IS_EMBEDDED:
        from evalsite.embedded import WORKER

        WORKER.stop()
