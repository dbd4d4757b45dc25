"""Run one program in a blocking call: start it, enforce its limits, and end every process it started."""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from evaluators.sandbox.box import Box, user_files
from evaluators.sandbox.confinement import MEGABYTE, ProgramLimits
from evaluators.sandbox.processes import (
    ProcessFamily,
    end_family,
    family_pids,
    has_memory,
    memory_held,
    memory_share,
    process_threads,
    start_family,
)

BLOCK = 512
# A mapping of a deleted file. Shared memory looks like one, but is counted as memory.
MAPPED = re.compile(
    r"^(\w+)-(\w+) \S+ (\w+) (\w+):(\w+) (\d+) +/(?!dev/zero \(|SYSV|memfd:).* \(deleted\)$",
    re.MULTILINE,
)
libc = ctypes.CDLL(None)

File = tuple[int, int]


def deleted_bytes(pids: Iterable[int], user: int | None) -> tuple[int, set[int]]:
    """Return the bytes of files that the processes deleted but keep open, and the processes that hide theirs.

    Processes of another user are inspected as that user, as root in a container may not do it otherwise, and
    those that are closed to it as ourselves.
    """
    held = _HeldFiles()
    with _as_user(user):
        closed = {pid for pid in pids if not held.add(pid)}
    closed = {pid for pid in closed if not held.add(pid)}
    return held.bytes, closed


@dataclass(slots=True)
class _HeldFiles:
    """The deleted files that processes hold, by device and number, with their bytes."""

    opened: dict[File, int] = field(default_factory=dict)
    mapped: dict[File, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Return their size together."""
        # Of a mapping only the end is known; of an open file, the real size.
        return sum({**self.mapped, **self.opened}.values())

    def add(self, pid: int) -> bool:
        """Add those of a process; False where it may not be inspected.

        Each thread is inspected: it may have files of its own, and the first may have ended before the others.
        """
        has_read_memory, is_open = False, True
        for thread in filter(has_memory, process_threads(pid)):
            try:
                self.opened.update(_open_files(thread))
                # Threads share their memory.
                for file, size in () if has_read_memory else _mapped_files(thread):
                    self.mapped[file] = max(size, self.mapped.get(file, 0))
                has_read_memory = True
            except PermissionError:
                # A thread that ends may not be inspected, but it has given up its memory and soon its files.
                is_open = is_open and not has_memory(thread)
        return is_open


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
    """Access files as a user, in this thread only."""
    if user is None:
        yield
        return
    own_group, own_user = libc.setfsgid(user), libc.setfsuid(user)
    try:
        yield
    finally:
        libc.setfsuid(own_user)
        libc.setfsgid(own_group)


class ProgramGuard:
    """Checks repeatedly whether one program has passed a limit.

    The kernel limits only the memory of one process and the size of one file.
    """

    def __init__(self, box: Box, limits: ProgramLimits, public: tuple[str, ...] = ()) -> None:
        """Start without observations; files of the program's user in public folders belong to the program."""
        self._box, self._limits, self._public = box, limits, public
        self._closed: set[int] = set()

    def limit_passed(self, family: ProcessFamily) -> str:
        """Return the limit that a running program has passed, "" for none."""
        pids = family_pids(family)
        if _hold_too_much(pids, self._limits.memory_mb * 1024):
            return self._limits.memory_words
        deleted, closed = deleted_bytes(pids, family.user)
        # A process that starts another program cannot be inspected for a moment.
        stays_closed, self._closed = closed & self._closed, closed
        if stays_closed:
            return f"{self._limits.disk_words}, which cannot be counted: one of its processes is closed"
        elsewhere = () if family.user is None else user_files(family.user, self._public)
        return disk_limit_passed(self._box, self._limits, elsewhere=elsewhere, deleted=deleted)


def _hold_too_much(pids: Collection[int], most_kb: int) -> bool:
    # Counting shared memory once takes longer, so only do it near the limit.
    if sum(map(memory_held, pids)) <= most_kb:
        return False
    return sum(map(memory_share, pids)) > most_kb


def disk_limit_passed(
    box: Box, limits: ProgramLimits, *, elsewhere: Iterable[str] = (), deleted: int = 0
) -> str:
    """Return the limit if a program wrote too much or hides how much it wrote, else "".

    `elsewhere` are its paths outside the box, `deleted` the bytes of its deleted files.
    """
    room = limits.disk_mb * MEGABYTE - deleted
    if room < 0:
        return limits.disk_words
    try:
        for count, size in enumerate(_sizes(box.written, elsewhere), start=1):
            room -= size
            if count > limits.files or room < 0:
                return limits.disk_words
    except PermissionError:
        # The program runs as our own user and removed its rights.
        return f"{limits.disk_words}, which cannot be counted: one of its folders is closed"
    except OSError:
        # A path is too long to read.
        return limits.disk_words
    return ""


def _sizes(folders: Iterable[Path], others: Iterable[str]) -> Iterator[int]:
    """Yield the size of each file in the folders and below the other paths."""
    pending = [str(folder) for folder in folders]
    for path in others:
        with contextlib.suppress(FileNotFoundError):
            facts = os.lstat(path)
            yield facts.st_blocks * BLOCK
            if stat.S_ISDIR(facts.st_mode):
                pending.append(path)
    while pending:
        folder = pending.pop()
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
                pending.append(entry.path)


CHUNK = 64 * 1024


class PipeEnds:
    """Both ends of the three pipes of a program: input, output, errors."""

    def __init__(self, user: int | None) -> None:
        """Make the pipes; the user owns them, so that /dev/stdout can be opened by name."""
        pairs = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        if user is not None:
            for end, _ in pairs:
                os.fchown(end, user, -1)
        (its_input, our_input), (our_output, its_output), (our_errors, its_errors) = pairs
        self.ours = (our_input, our_output, our_errors)
        self.its = (its_input, its_output, its_errors)


def close_all(ends: Iterable[int]) -> None:
    """Close the ends."""
    for end in ends:
        os.close(end)


class Pipes:
    """Our ends of the three pipes of a program; `is_over` once it printed too much.

    The program may ignore its input and close its ends early.
    """

    def __init__(self, ends: tuple[int, int, int], stdin: bytes, *, most: int) -> None:
        """Take over the ends; read at most `most` bytes of output and of errors each."""
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
        """Return the pipes."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close all ends."""
        for handle in list(self._open):
            self._shut(handle)

    @property
    def texts(self) -> tuple[bytes, bytes]:
        """Return output and errors so far."""
        output, errors = self._texts.values()
        return bytes(output), bytes(errors)

    def serve(self, handle: int) -> None:
        """Read or write a pipe that is ready; ignore other handles."""
        if handle in self._texts:
            self._read(handle)
        elif handle == self._input:
            self._send()

    def drain(self) -> None:
        """Read what ended processes left in the pipes."""
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
            # The program closed its end or is gone.
            pass
        self._shut(self._input)

    def _read(self, handle: int) -> bool:
        """Read what is there; False if there is nothing more for now."""
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
# Checks take longer with many processes and files: spend at most a twentieth of the time on them.
GUARD_SHARE = 20
STOPPED = "a stop from outside"


@dataclass(frozen=True, slots=True)
class Start:
    """How to start a program. `mark` is in its environment and in no other program's.

    `handles` are open files for the program that confines it.
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
    """How a program ended: `exit_code` as shells report it, None if we killed it because of `ended_by`."""

    exit_code: int | None
    ended_by: str
    timed_out: bool
    duration_ms: int
    stdout: bytes
    stderr: bytes


class Stop:
    """A signal to the thread that runs a program to end it now."""

    def __init__(self) -> None:
        """Open the signal."""
        self.handle = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def set(self) -> None:
        """Send the signal; callable from any thread."""
        os.eventfd_write(self.handle, 1)

    def close(self) -> None:
        """Close the signal."""
        os.close(self.handle)


def run_program(
    start: Start, limits: ProgramLimits, stop: Stop, limit_passed: Callable[[ProcessFamily], str]
) -> Ending:
    """Run a program until it ends or passes a limit, then end every process it started.

    Raises OSError or ValueError if it cannot be started.
    """
    ends = PipeEnds(start.user)
    process, family = _start(start, ends)
    began = time.monotonic()
    with contextlib.ExitStack() as last:
        # These run in reverse order: kill, wait, end the other processes, drain and close the pipes.
        pipes = last.enter_context(Pipes(ends.ours, start.stdin, most=limits.output_kb * 1024))
        last.callback(pipes.drain)
        last.callback(end_family, family)
        last.callback(process.wait)
        last.callback(_kill, process)
        watch = last.enter_context(_Watch(process.pid, pipes, limits, stop))
        ended_by = watch.until_end(began, lambda: limit_passed(family))
        duration_ms = round((time.monotonic() - began) * 1000)
    ended_by = ended_by or (limits.output_words if pipes.is_over else "")
    is_time = ended_by == limits.time_words
    exit_code = None if ended_by else _shell_exit_code(process.returncode)
    return Ending(exit_code, ended_by, is_time, duration_ms, *pipes.texts)


def _start(start: Start, ends: PipeEnds) -> tuple[subprocess.Popen[bytes], ProcessFamily]:
    its_input, its_output, its_errors = ends.its

    # A program that changes its user itself cannot be inspected until it has become the next program, which
    # takes long on a busy machine. Bubblewrap needs our rights.
    user = None if start.is_boxed else start.user

    def open_process() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - running users' programs is what this is for
            start.command,
            stdin=its_input,
            stdout=its_output,
            stderr=its_errors,
            env=start.environment,
            cwd=start.folder,
            user=user,
            group=user,
            extra_groups=None if user is None else (),
            start_new_session=True,
            pass_fds=start.handles,
        )

    try:
        return start_family(open_process, mark=start.mark, user=start.user, is_boxed=start.is_boxed)
    except BaseException:
        close_all(ends.ours)
        raise
    finally:
        close_all(ends.its)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and its group; nobody has waited for it yet, so its number cannot be reused."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, signal.SIGKILL)


def _shell_exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


class _Watch:
    """Waits for the end of the program, a limit, or a stop."""

    def __init__(self, pid: int, pipes: Pipes, limits: ProgramLimits, stop: Stop) -> None:
        self._pipes, self._limits, self._stop = pipes, limits, stop
        self._handle = os.pidfd_open(pid)
        for handle in (self._handle, stop.handle):
            pipes.poll.register(handle, select.POLLIN)

    def __enter__(self) -> Self:
        """Return the watch."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the program's handle."""
        for handle in (self._handle, self._stop.handle):
            self._pipes.poll.unregister(handle)
        os.close(self._handle)

    def until_end(self, began: float, limit_passed: Callable[[], str]) -> str:
        """Return why the program has to be killed, "" if it ended by itself."""
        deadline, next_check = began + self._limits.seconds, began + GUARD_EVERY_S
        while (now := time.monotonic()) < deadline:
            if now < next_check:
                ended = self._serve_until(min(deadline, next_check) - now)
                if ended is not None:
                    return ended
                continue
            if passed := limit_passed():
                return passed
            spent = time.monotonic() - now
            next_check = time.monotonic() + max(GUARD_EVERY_S, spent * GUARD_SHARE)
        return self._limits.time_words

    def _serve_until(self, seconds: float) -> str | None:
        """Wait and serve the pipes; return why the program ended or must end, None if it goes on running."""
        ready = {handle for handle, _ in self._pipes.poll.poll(seconds * 1000)}
        for handle in ready:
            self._pipes.serve(handle)
        if self._stop.handle in ready:
            return STOPPED
        if self._pipes.is_over:
            return self._limits.output_words
        return "" if self._handle in ready else None
