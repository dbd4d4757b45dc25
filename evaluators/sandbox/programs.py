"""One program from its start to its end, and the end of all it started; blocks the thread it is in."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from evaluators.sandbox.limits import Limits
from evaluators.sandbox.orphans import Brood, end_brood, start_brood
from evaluators.sandbox.pipes import Ends, Pipes, close_all

GUARD_EVERY_S = 0.1
# Looking takes time, with many processes and files more of it: at most a twentieth of all.
GUARD_SHARE = 20
STOPPED = "a stop from outside"


@dataclass(frozen=True, slots=True)
class Start:
    """How to start a program. `mark` is in its environment and in no other program's.

    `handles` are open files for what shuts it in.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    mark: bytes
    user: int | None
    is_boxed: bool
    stdin: bytes = b""
    handles: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended: `exit_code` as shells count, None when it was killed by us for `ended_by`."""

    exit_code: int | None
    ended_by: str
    timed_out: bool
    duration_ms: int
    stdout: bytes
    stderr: bytes


class Stop:
    """A signal to the thread that runs a program: end it now."""

    def __init__(self) -> None:
        """Be silent."""
        self.handle = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def set(self) -> None:
        """Give the signal; from any thread."""
        os.eventfd_write(self.handle, 1)

    def close(self) -> None:
        """Forget it."""
        os.close(self.handle)


def run_program(
    start: Start, limits: Limits, stop: Stop, limit_passed: Callable[[Brood], str]
) -> Ending:
    """Run a program to its end, or to the limit it passes; nothing it started is left after that.

    Raises OSError or ValueError when it cannot be started.
    """
    ends = Ends(start.user)
    process, brood = _start(start, ends)
    began = time.monotonic()
    with contextlib.ExitStack() as last:
        # Undone from the last to the first: killed, waited for, all it started ended, the pipes closed.
        pipes = last.enter_context(Pipes(ends.ours, start.stdin, most=limits.output_kb * 1024))
        last.callback(pipes.drain)
        last.callback(end_brood, brood)
        last.callback(process.wait)
        last.callback(_kill, process)
        watch = last.enter_context(_Watch(process.pid, pipes, limits, stop))
        ended_by = watch.until_end(began, lambda: limit_passed(brood))
        duration_ms = round((time.monotonic() - began) * 1000)
    ended_by = ended_by or (limits.output_words if pipes.is_over else "")
    is_time = ended_by == limits.time_words
    exit_code = None if ended_by else _as_shells_count(process.returncode)
    return Ending(exit_code, ended_by, is_time, duration_ms, *pipes.texts)


def _start(start: Start, ends: Ends) -> tuple[subprocess.Popen[bytes], Brood]:
    its_input, its_output, its_errors = ends.its

    def open_process() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - running users' programs is what this is for
            start.command,
            stdin=its_input,
            stdout=its_output,
            stderr=its_errors,
            env=start.environment,
            cwd=start.folder,
            start_new_session=True,
            pass_fds=start.handles,
        )

    try:
        return start_brood(open_process, mark=start.mark, user=start.user, is_boxed=start.is_boxed)
    except BaseException:
        close_all(ends.ours)
        raise
    finally:
        close_all(ends.its)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and its group; the number is still its own, because nobody waited for it yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, signal.SIGKILL)


def _as_shells_count(code: int) -> int:
    return code if code >= 0 else 128 - code


class _Watch:
    """Waits for whatever comes first: the program's end, a limit, or a stop."""

    def __init__(self, pid: int, pipes: Pipes, limits: Limits, stop: Stop) -> None:
        self._pipes, self._limits, self._stop = pipes, limits, stop
        self._handle = os.pidfd_open(pid)
        for handle in (self._handle, stop.handle):
            pipes.poll.register(handle, select.POLLIN)

    def __enter__(self) -> Self:
        """Watch from now on."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Let go of the program's handle."""
        for handle in (self._handle, self._stop.handle):
            self._pipes.poll.unregister(handle)
        os.close(self._handle)

    def until_end(self, began: float, limit_passed: Callable[[], str]) -> str:
        """Return why the program has to be killed, "" when it ended by itself."""
        deadline, look = began + self._limits.seconds, began + GUARD_EVERY_S
        while (now := time.monotonic()) < deadline:
            if now < look:
                ended = self._serve_until(min(deadline, look) - now)
                if ended is not None:
                    return ended
                continue
            if passed := limit_passed():
                return passed
            spent = time.monotonic() - now
            look = time.monotonic() + max(GUARD_EVERY_S, spent * GUARD_SHARE)
        return self._limits.time_words

    def _serve_until(self, seconds: float) -> str | None:
        """Wait so long at most and serve the pipes; why the program is at its end, None if it is not."""
        ready = {handle for handle, _ in self._pipes.poll.poll(seconds * 1000)}
        for handle in ready:
            self._pipes.serve(handle)
        if self._stop.handle in ready:
            return STOPPED
        if self._pipes.is_over:
            return self._limits.output_words
        return "" if self._handle in ready else None
