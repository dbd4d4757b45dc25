"""The gunicorn configuration: one process with threads and the embedded worker."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings

# The variable that holds the text `evalsite up` prints once the site is served.
ANNOUNCEMENT = "EVALSITE_ANNOUNCEMENT"

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

bind = f"{settings.LISTEN}:{settings.PORT}"
# One process holds the embedded worker and its broker. Most threads wait for clients.
workers = 1
threads = 100
worker_class = "evalsite.serving.Worker"
# Nothing that a client sends moves the site to another path. Django reads the proxy's other headers.
forwarder_headers = ""
forwarded_allow_ips = ""
# Unused, and servers of the same user would share the file in the home folder.
control_socket_disable = True
timeout = 120
# The embedded worker waits for its calls in this time. It ends before the service manager kills everything.
graceful_timeout = settings.STOP_S - 2
# The heartbeat file must not be on a disk that may stall.
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108, PTH112 - gunicorn makes its file there
loglevel = settings.LOG_LEVEL.lower()
proc_name = "evalsite"


def post_worker_init(worker: Any) -> None:
    """Start the embedded worker in the forked process, and print the announcement."""
    if settings.IS_EMBEDDED:
        from evalsite.embedded import WORKER

        WORKER.start()
    if worker.age == 1 and (text := os.environ.get(ANNOUNCEMENT)):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def worker_exit(server: Any, worker: Any) -> None:
    """Release the results that the embedded worker holds."""
    if settings.IS_EMBEDDED:
        from evalsite.embedded import WORKER

        WORKER.stop()
