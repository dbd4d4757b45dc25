"""Start programs of the site by forking a process that has loaded what they need already.

Loading that is most of what it takes to start a web process, a worker or a command. A forked program gets
its own environment and output before anything loads settings, and ends as any program does.
`python -m tests.services.forking NUMBER` forks on requests that come through the socket with that number.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import IO, Any, NoReturn

from tests.services.processes import ROOT
from tests.services.site import Site

# What takes the longest, of libraries and of our own core, and needs no settings.
PRELOADED = (
    *("aiohttp", "celery.__main__", "celery.apps.worker", "celery.bin.celery"),
    *("celery.concurrency.thread", "django.contrib.admin.options"),
    *("django.core.management.commands.shell", "django.db.backends.postgresql.base"),
    *("django.db.backends.sqlite3.base", "fido2.server", "gunicorn.app.wsgiapp", "httpx2"),
    *("jsonpath", "jsonschema", "kombu.transport.redis", "markdown_it", "numpy", "openai"),
    *("openai.types.chat", "pydantic", "regex", "yaml"),
    *("runs.compare.evidence", "runs.engine.execute", "runs.filters.language"),
    *("runs.what_if.asking",),
)
MAX_REQUEST = 1 << 20
# Of one size, so that two that are read late are still two.
REPLY_SIZE = 32


def fork_sites() -> None:
    """Fork the programs of every site from now on."""
    Site.popen = staticmethod(popen)


def popen(
    command: Sequence[str], *, env: Mapping[str, str], stdout: IO[bytes], stderr: Any, **rest: Any
) -> Forked:
    """Fork a Python file, module or text, which runs in the root of the project and in a session of its own."""
    program, *arguments = command
    assert program == sys.executable
    outputs = [stdout, stdout if stderr == subprocess.STDOUT else stderr]
    ours, theirs = socket.socketpair()
    with theirs:
        request = json.dumps({"arguments": arguments, "env": dict(env)}).encode()
        fds = [file.fileno() for file in (theirs, *outputs)]
        socket.send_fds(_requests(), [request], fds)
    return Forked(ours)


class Forked:
    """What a `Popen` is for a program that was started."""

    def __init__(self, replies: socket.socket) -> None:
        """Wait until it runs."""
        self._replies = replies
        self._code: int | None = None
        self.pid = int(replies.recv(REPLY_SIZE))

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended; raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not select.select([self._replies], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self._code = int(self._replies.recv(REPLY_SIZE))
            self._replies.close()
        return self._code


@cache
def _requests() -> socket.socket:
    """Start the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-m", __name__, str(number)]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[number], start_new_session=True)

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def serve(requests: socket.socket) -> None:
    """Fork a program for each request, until nobody can send more."""
    for name in PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, fds, _, _ = socket.recv_fds(requests, MAX_REQUEST, 3)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            watch(socket.socket(fileno=fds[0]), fds[1:], **json.loads(request))
        for fd in fds:
            os.close(fd)


def watch(
    replies: socket.socket, outputs: list[int], arguments: list[str], env: dict[str, str]
) -> NoReturn:
    """Run a program in a child, and reply with its process ID and then its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if (pid := os.fork()) == 0:
        replies.close()
        run(outputs, arguments, env)
    replies.send(str(pid).encode().ljust(REPLY_SIZE))
    _, status = os.waitpid(pid, 0)
    # Nobody may be left to read it.
    with contextlib.suppress(BrokenPipeError):
        replies.send(str(os.waitstatus_to_exitcode(status)).encode().ljust(REPLY_SIZE))
    os._exit(0)


def run(outputs: list[int], arguments: list[str], env: dict[str, str]) -> NoReturn:
    """Become the program."""
    os.setsid()
    for number, fd in enumerate([os.open(os.devnull, os.O_RDONLY), *outputs]):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(env)
    if arguments[0] == "-c":
        code, *words = arguments[1:]
        sys.argv = ["-c", *words]
        exec(code, {"__name__": "__main__"})
    elif arguments[0] == "-m":
        _, module, *words = arguments
        sys.argv = ["", *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
