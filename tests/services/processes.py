"""Start a server process, wait until it answers, end it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
POLL_S = 0.02
# PostgreSQL refuses to run as root.
UNPRIVILEGED = "nobody"


class ServerDidNotStartError(Exception):
    """A server ended or stayed silent; the message holds the end of its log."""


def free_port() -> int:
    """Return a port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def unprivileged_user() -> str | None:
    """Return whom to run as instead of root; None when not root."""
    return UNPRIVILEGED if os.getuid() == 0 else None


@contextmanager
def scratch_folder(name: str, *, owner: str | None = None) -> Iterator[Path]:
    """Give a short-named folder (socket paths must be short) and remove it at the end."""
    path = Path(tempfile.mkdtemp(prefix=f"evalsite-{name}-", dir="/tmp"))
    try:
        if owner:
            shutil.chown(path, user=owner)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    is_ready: Callable[[], bool],
    user: str | None = None,
    env: Mapping[str, str] | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server while the block runs, from its first answer on.

    Raises:
        ServerDidNotStartError: it ended or did not answer in time.

    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            user=user,
            cwd="/" if user else None,
            start_new_session=True,
        )
    try:
        _wait(process, command, log, is_ready)
        yield process
    finally:
        _end(process, stop_signal)


def wait_until(is_so: Callable[[], bool], *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it was not so in time.

    """
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {timeout_s} s")
        time.sleep(POLL_S)


def _wait(
    process: subprocess.Popen[bytes],
    command: Sequence[str | Path],
    log: Path,
    is_ready: Callable[[], bool],
) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-2000:]
            raise ServerDidNotStartError(f"{command[0]} did not start:\n{tail}")
        time.sleep(POLL_S)


def _end(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    process.send_signal(stop_signal)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
