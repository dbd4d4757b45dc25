"""Start a process, wait until it answers, freeze it, kill it, end it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
# Long, so that a slow machine fails no test.
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
POLL_S = 0.05
# Not on macOS, where a program is asked, which takes a hundred times as long.
LISTS_CHILDREN = Path("/proc/thread-self/children")
# PostgreSQL refuses to run as root.
UNPRIVILEGED = "nobody"


class ServerDidNotStartError(Exception):
    """A server ended or stayed silent; the message holds the end of its log."""


class Started(Protocol):
    """A process that was started, as `subprocess.Popen` describes it."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended; raises subprocess.TimeoutExpired."""


class Process:
    """A process in a session of its own, which can be started again after its end.

    `is_ready` tells whether it answers; without it a process counts as ready once it runs. What it
    writes is added to `log`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        is_ready: Callable[[], bool] = lambda: True,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        popen: Callable[..., Started] = subprocess.Popen,
    ) -> None:
        """Start nothing yet."""
        self.log = log
        self._command = [str(part) for part in command]
        self._is_ready = is_ready
        self._user = user
        self._env = dict(env) if env is not None else None
        self._stop_signal = stop_signal
        self._popen = popen
        self._process: Started | None = None

    @property
    def pid(self) -> int:
        """Return the id of the process that runs, or ran last."""
        assert self._process is not None, f"{self._command[0]} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def begin(self) -> None:
        """Start the process and do not wait for its first answer."""
        assert not self.is_running, f"{self._command[0]} runs already"
        with self.log.open("ab") as output:
            self._process = self._popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                user=self._user,
                # Whoever is not root may not be able to read the checkout.
                cwd="/" if self._user else ROOT,
                start_new_session=True,
            )

    def start(self) -> None:
        """Start the process and wait until it answers; raises ServerDidNotStartError."""
        self.begin()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if not self.is_running or time.monotonic() > deadline:
                raise ServerDidNotStartError(f"{self._command[0]} did not start:\n{self.tail()}")
            time.sleep(POLL_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        os.kill(self.pid, number)

    def freeze(self) -> None:
        """Let the process do nothing until it is woken."""
        self.signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let a frozen process go on."""
        self.signal(signal.SIGCONT)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Return the exit code once the process has ended; raises subprocess.TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """Kill the process and all it started as `kill -9` does; they are gone on return."""
        assert self._process is not None
        if self.is_running:
            # Stopped, it starts no others while its children are counted.
            self.freeze()
        family = [self.pid, *descendants(self.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        wait_until(lambda: not are_alive(family))

    def ask_to_end(self) -> None:
        """Ask the process to end, and do not wait for it."""
        self.signal(self._stop_signal)
        self.wake()

    def end(self) -> None:
        """Ask the process to end, and kill it when it does not."""
        if not self.is_running:
            return
        self.ask_to_end()
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, characters: int = 2000) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""


@contextmanager
def running(process: Process) -> Iterator[Process]:
    """Run a process while the block runs, from its first answer on.

    Raises:
        ServerDidNotStartError: it ended or did not answer in time.

    """
    try:
        process.start()
        yield process
    finally:
        process.end()


def end_what_was_started_when_told_to_end() -> None:
    """Let the first SIGTERM end this process as Ctrl-C does, with all it started; more change nothing.

    Whoever started this process in the background may have had it ignore other signals: what it
    starts is to hear them.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    for heard, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(heard) is signal.SIG_IGN:
            signal.signal(heard, usual)


def wait_until(
    is_so: Callable[[], bool],
    *,
    timeout_s: float = START_TIMEOUT_S,
    poll_s: float = POLL_S,
    what: str | Callable[[], str] = "it",
) -> None:
    """Wait until something is so, and look every `poll_s` seconds.

    Raises:
        AssertionError: it was not so in time; the message says `what` was not, or what was instead.

    """
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            said = what if isinstance(what, str) else what()
            raise AssertionError(f"not so after {timeout_s} s: {said}")
        time.sleep(poll_s)


def children(pid: int) -> list[int]:
    """Return the processes that a process started and that are still there."""
    if LISTS_CHILDREN.exists():
        lists = Path(f"/proc/{pid}/task").glob("*/children")
        # A thread may end while it is looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return [int(child) for threads in lists for child in threads.read_text().split()]
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def are_alive(pids: Sequence[int]) -> bool:
    """Tell whether any of the processes is there, and not merely waiting to be counted as dead."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", ",".join(map(str, pids))], capture_output=True, text=True
    )
    return any(not line.startswith("Z") for line in listed.stdout.split())


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


def dead_process_name() -> str:
    """Return the name that a process of this machine had which has just ended."""
    code = "from evaluators.sandbox.processes import process_name; print(process_name())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
