"""One program from its start to its end, watched while it runs, and the end of all it started; blocks the thread it is in."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from evaluators.sandbox.box import Box, user_files
from evaluators.sandbox.confinement import MEGABYTE, ProgramLimits
from evaluators.sandbox.processes import (
    Brood,
    end_brood,
    members,
    memory_held,
    memory_share,
    start_brood,
)

BLOCK = 512
# A mapping of a file without a name; memory that processes share looks like one and is counted as such.
MAPPED = re.compile(
    r"^(\w+)-(\w+) \S+ (\w+) (\w+):(\w+) (\d+) +/(?!dev/zero \(|SYSV|memfd:).* \(deleted\)$",
    re.MULTILINE,
)
libc = ctypes.CDLL(None)

File = tuple[int, int]


def deleted_bytes(pids: Iterable[int], user: int | None) -> tuple[int, set[int]]:
    """Return what deleted files of the processes take, and which processes cannot be looked into.

    Those of another user are looked at as that user: root in a container may not otherwise.
    """
    open_ones: dict[File, int] = {}
    mapped: dict[File, int] = {}
    closed = set()
    with _as_user(user):
        for pid in pids:
            try:
                open_ones.update(_open_files(pid))
                for file, size in _mapped_files(pid):
                    mapped[file] = max(size, mapped.get(file, 0))
            except PermissionError:
                closed.add(pid)
    # Of a mapping only its end is known, of an open file what it really takes.
    return sum({**mapped, **open_ones}.values()), closed


def _open_files(pid: int) -> Iterator[tuple[File, int]]:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            names = [entry.name for entry in entries]
    except (FileNotFoundError, ProcessLookupError):
        return
    for name in names:
        try:
            facts = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116 - thousands of times
        except (FileNotFoundError, ProcessLookupError):
            continue
        if not facts.st_nlink and stat.S_ISREG(facts.st_mode):
            yield (facts.st_dev, facts.st_ino), facts.st_blocks * BLOCK


def _mapped_files(pid: int) -> Iterator[tuple[File, int]]:
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return
    for start, end, offset, major, minor, inode in MAPPED.findall(text):
        device = os.makedev(int(major, 16), int(minor, 16))
        yield (device, int(inode)), int(offset, 16) + int(end, 16) - int(start, 16)


@contextlib.contextmanager
def _as_user(user: int | None) -> Iterator[None]:
    """Look at files as a user, in this thread alone."""
    if user is None:
        yield
        return
    group_before, before = libc.setfsgid(user), libc.setfsuid(user)
    try:
        yield
    finally:
        libc.setfsuid(before)
        libc.setfsgid(group_before)


class ProgramGuard:
    """Looks again and again whether one program has passed a limit.

    No limit of the kernel covers these: it knows the memory of one process and the size of one file.
    """

    def __init__(self, box: Box, limits: ProgramLimits, public: tuple[str, ...] = ()) -> None:
        """Have seen nothing yet; in public folders all that is its user's is the program's."""
        self._box, self._limits, self._public = box, limits, public
        self._closed: set[int] = set()

    def limit_passed(self, brood: Brood) -> str:
        """Return the limit that a running program has passed, in words; "" for none."""
        pids = members(brood)
        if _hold_too_much(pids, self._limits.memory_mb * 1024):
            return self._limits.memory_words
        without_name, closed = deleted_bytes(pids, brood.user)
        # Whoever becomes another user is closed for a moment.
        stays_closed, self._closed = closed & self._closed, closed
        if stays_closed and not brood.is_boxed:
            return f"{self._limits.disk_words}, which cannot be counted: a process of it is closed"
        elsewhere = () if brood.user is None else user_files(brood.user, self._public)
        return disk_limit_passed(
            self._box, self._limits, elsewhere=elsewhere, without_name=without_name
        )


def _hold_too_much(pids: Collection[int], most_kb: int) -> bool:
    # What processes share is counted once only when it matters: that takes longer.
    if sum(map(memory_held, pids)) <= most_kb:
        return False
    return sum(map(memory_share, pids)) > most_kb


def disk_limit_passed(
    box: Box, limits: ProgramLimits, *, elsewhere: Iterable[str] = (), without_name: int = 0
) -> str:
    """Return in words that a program wrote more than it may, or hides how much it is; "" if not.

    `elsewhere` are its paths outside the box, `without_name` bytes of files in no folder any more.
    """
    room = limits.disk_mb * MEGABYTE - without_name
    if room < 0:
        return limits.disk_words
    try:
        for count, size in enumerate(_sizes(box.written, elsewhere), start=1):
            room -= size
            if count > limits.files or room < 0:
                return limits.disk_words
    except PermissionError:
        # It is our own user's, who took his own rights away.
        return f"{limits.disk_words}, which cannot be counted: a folder of it is closed"
    except OSError:
        # A path that has become too long to be looked at.
        return limits.disk_words
    return ""


def _sizes(folders: Iterable[Path], others: Iterable[str]) -> Iterator[int]:
    """Give the size of each file: those in the folders, and the others with what is in them."""
    ahead = [str(folder) for folder in folders]
    for path in others:
        with contextlib.suppress(FileNotFoundError):
            facts = os.lstat(path)
            yield facts.st_blocks * BLOCK
            if stat.S_ISDIR(facts.st_mode):
                ahead.append(path)
    while ahead:
        folder = ahead.pop()
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            try:
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield facts.st_blocks * BLOCK
            if entry.is_dir(follow_symlinks=False):
                ahead.append(entry.path)


CHUNK = 64 * 1024


class Ends:
    """Both ends of the three pipes of a program: input, output, errors."""

    def __init__(self, user: int | None) -> None:
        """Make the pipes; they are the user's, so that /dev/stdout can be opened by its name."""
        pairs = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        if user is not None:
            for end, _ in pairs:
                os.fchown(end, user, -1)
        (its_input, our_input), (our_output, its_output), (our_errors, its_errors) = pairs
        self.ours = (our_input, our_output, our_errors)
        self.its = (its_input, its_output, its_errors)


def close_all(ends: Iterable[int]) -> None:
    """Let go of the ends."""
    for end in ends:
        os.close(end)


class Pipes:
    """Our ends of the three pipes of a program; `is_over` once it printed more than it may.

    What it never reads, and that it closes its ends early, is its own business.
    """

    def __init__(self, ends: tuple[int, int, int], stdin: bytes, *, most: int) -> None:
        """Take over the ends; `most` bytes are read of output and of errors, each."""
        self.is_over = False
        self.poll = select.poll()
        self._most = most
        self._unsent = memoryview(stdin)
        self._input, *outputs = ends
        self._open = set(ends)
        self._texts = {handle: bytearray() for handle in outputs}
        for handle in ends:
            os.set_blocking(handle, False)
            self.poll.register(handle, select.POLLIN if handle in outputs else select.POLLOUT)

    def __enter__(self) -> Self:
        """Be ready."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Let go of all ends."""
        for handle in list(self._open):
            self._shut(handle)

    @property
    def texts(self) -> tuple[bytes, bytes]:
        """Return output and errors so far."""
        output, errors = self._texts.values()
        return bytes(output), bytes(errors)

    def serve(self, handle: int) -> None:
        """Do what a pipe is ready for; other handles are none of ours."""
        if handle in self._texts:
            self._read(handle)
        elif handle == self._input:
            self._send()

    def drain(self) -> None:
        """Take what the dead have left."""
        for handle in self._texts:
            while self._read(handle):
                pass

    def _send(self) -> None:
        if self._input not in self._open:
            return
        try:
            while self._unsent:
                sent = os.write(self._input, self._unsent[:CHUNK])
                self._unsent = self._unsent[sent:]
        except BlockingIOError:
            return
        except OSError:
            # It closed its end, or is gone.
            pass
        self._shut(self._input)

    def _read(self, handle: int) -> bool:
        """Take what is there; False when there is nothing more for now."""
        if handle not in self._open:
            return False
        try:
            chunk = os.read(handle, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._shut(handle)
            return False
        text = self._texts[handle]
        room = self._most - len(text)
        text += chunk[:room]
        self.is_over = self.is_over or len(chunk) > room
        return not self.is_over

    def _shut(self, handle: int) -> None:
        if handle in self._open:
            self._open.discard(handle)
            self.poll.unregister(handle)
            os.close(handle)


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
    start: Start, limits: ProgramLimits, stop: Stop, limit_passed: Callable[[Brood], str]
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

    def __init__(self, pid: int, pipes: Pipes, limits: ProgramLimits, stop: Stop) -> None:
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
