"""The gunicorn configuration: where the site listens, its processes, and what each does when it starts and stops.

`asgi.py` is the application they serve, `serving.py` how it receives requests and sends answers, `embedded.py`
the worker inside the process of a site without separate workers.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings

from evalsite.serving import Connection

# The name of this module, also where it is started as a program.
CONFIG = "evalsite.gunicorn"
# The variable that holds the text `evalsite up` prints once the site is served.
ANNOUNCEMENT = "EVALSITE_ANNOUNCEMENT"
# Seconds for answers that are being sent when the process is asked to stop.
LAST_ANSWERS_S = 3
STOP_CHECK_S = 0.2
# Every connection is a file.
MAX_OPEN_FILES = 65_536

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

bind = f"{settings.LISTEN}:{settings.PORT}"
wsgi_app = "evalsite.asgi"
worker_class = "asgi"
asgi_loop = "asyncio"
asgi_lifespan = "off"
workers = settings.WEB_PROCESSES
# Nothing that a client sends moves the site to another path. Django reads the proxy's other headers.
forwarder_headers = ""
forwarded_allow_ips = ""
# Unused, and servers of the same user would share the file in the home folder.
control_socket_disable = True
timeout = 120
# Longer than proxies keep an idle connection (Caddy 120 s), so that none sends a request into one that closes.
keepalive = 130
# The embedded worker waits for its calls in this time. It ends before the service manager kills everything.
graceful_timeout = settings.STOP_S - 2
# The heartbeat file must not be on a disk that may stall.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - gunicorn makes its file there
loglevel = settings.LOG_LEVEL.lower()
proc_name = "evalsite"


def on_starting(server: Any) -> None:
    """Say it when pages would lack static files, or have old ones."""
    # Not imported at the top: it needs the settings.
    from evalsite.static_files import are_collected

    if settings.IS_COLLECTED and not are_collected():
        server.log.warning(
            "The static files changed since they were collected, so pages may look wrong. "
            "Run `evalsite prepare`, then restart the site."
        )


def post_worker_init(worker: Any) -> None:
    """Prepare a process: allow it many connections and time each, start the embedded worker, announce the site."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if limit == resource.RLIM_INFINITY else min(limit, MAX_OPEN_FILES)
    # A service manager may forbid it, and then has a limit of its own.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limit))
    listen = worker.loop.create_server
    worker.loop.create_server = lambda server, **options: listen(
        lambda: Connection(server()), **options
    )
    worker.loop.create_task(_stop(worker))
    if settings.IS_EMBEDDED:
        from evalsite.embedded import WORKER

        WORKER.start()
    if worker.age == 1 and (text := os.environ.get(ANNOUNCEMENT)):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


async def _stop(worker: Any) -> None:
    """Once the process is asked to stop, stop the embedded worker, and cut off clients after LAST_ANSWERS_S."""
    while worker.alive:  # noqa: ASYNC110 - gunicorn gives no event
        await asyncio.sleep(STOP_CHECK_S)
    threading.Thread(target=worker_exit, args=(None, worker)).start()
    await asyncio.sleep(LAST_ANSWERS_S)
    for connection in list(Connection.open):
        connection.abort()


def worker_exit(server: Any, worker: Any) -> None:
    """Release the results that the embedded worker holds."""
    if settings.IS_EMBEDDED:
        from evalsite.embedded import WORKER

        WORKER.stop()


if __name__ == "__main__":
    from gunicorn.app.wsgiapp import run

    # gunicorn looks for packages first in the folder it is started in, unless that is on the path already. One called
    # "runs" may be there, and must not hide ours.
    sys.path.append(str(Path.cwd()))
    run()
