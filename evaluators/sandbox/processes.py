"""Read what the kernel knows of processes, and find and end every process that a program started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

# Fields of /proc/PID/stat, counted after the name.
STATE, PARENT, SESSION, START_TIME = 0, 1, 3, 19
HELD = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)
OWN_SHARE = re.compile(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
# A killed process that does not end is stuck in the kernel; we stop waiting for it.
PATIENCE_MS = 10_000
MAX_ROUNDS = 10_000
_lock = threading.Lock()
_families: dict[int, ProcessFamily] = {}


@dataclass(frozen=True, slots=True)
class ProcessFamily:
    """The processes of one program: number `root` and all its descendants.

    In a pid namespace of their own (`is_boxed`) they die with the first. Otherwise, descendants that left
    the session are recognised by their `user` if no other program has it; if not, by a start after `began`
    (ticks since boot) without the `mark` of another program in their environment.
    """

    root: int
    mark: bytes
    user: int | None
    began: int
    is_boxed: bool


def start_family(
    start: Callable[[], Popen[bytes]], *, mark: bytes, user: int | None, is_boxed: bool
) -> tuple[Popen[bytes], ProcessFamily]:
    """Start a program in its own session and track its processes until `end_family`."""
    inherit_orphans()
    if user is None and not is_boxed:
        close_to_others()
    # A search for strays must never meet a program that is not registered yet.
    with _lock:
        began = ticks_now()
        process = start()
        family = ProcessFamily(process.pid, mark, user, began, is_boxed)
        _families[family.root] = family
    return process, family


def end_family(family: ProcessFamily) -> None:
    """Kill all remaining processes and wait for them; the root must have been waited for before.

    All are stopped before any is killed: otherwise a fork bomb would fork as fast as it dies.
    """
    for _ in range(MAX_ROUNDS):
        strays = _strays(family)
        if not strays:
            break
        if not family.is_boxed:
            _stop_all(family)
        for pid in strays:
            _remove_dead(pid)
    with _lock:
        _families.pop(family.root, None)


def family_pids(family: ProcessFamily) -> set[int]:
    """Return the numbers of all living processes of a family."""
    numbers: set[int] = set()
    pending = [family.root, *_strays(family)]
    while pending:
        pid = pending.pop()
        if pid not in numbers:
            numbers.add(pid)
            pending.extend(child_processes(pid))
    return numbers


@cache
def inherit_orphans() -> None:
    """Make this process the parent of orphaned descendants; once is enough."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@cache
def close_to_others() -> None:
    """Prevent programs of our own user from tracing this process or reading its memory and environment."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _stop_all(family: ProcessFamily) -> None:
    stopped = {family.root}
    for _ in range(MAX_ROUNDS):
        running = family_pids(family) - stopped
        if not running:
            return
        for pid in running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= running


def _strays(family: ProcessFamily) -> list[int]:
    """Return the children of this process that belong to the family, without its root."""
    with _lock:
        others = [other for other in _families.values() if other is not family]
        unknown = [pid for pid in child_processes(os.getpid()) if pid not in _families]
    return [pid for pid in unknown if _belongs(pid, family, others)]


def _belongs(pid: int, family: ProcessFamily, others: list[ProcessFamily]) -> bool:
    facts = process_facts(pid)
    if facts is None:
        return False
    if facts.session == family.root or family.is_boxed:
        return facts.session == family.root
    if family.user is not None:
        return process_user(pid) == family.user
    if facts.session == os.getsid(0) or facts.started < family.began:
        return False
    environment = process_environment(pid)
    return not any(facts.session == other.root or other.mark in environment for other in others)


def _remove_dead(pid: int) -> None:
    """Kill a child of this process and wait for it."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        watch = select.poll()
        watch.register(handle, select.POLLIN)
        if watch.poll(PATIENCE_MS):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, handle, os.WEXITED)
    finally:
        os.close(handle)


def process_name() -> str:
    """Return host, place, pid and start of this process, joined by "/"; not cached, as a fork changes them."""
    place, pid, start = own_process_key()
    return "/".join((platform.node() or "host", place, str(pid), start))


def own_process_key() -> tuple[str, int, str]:
    """Return place, number and start of this process; not cached, as a fork changes them."""
    pid = os.getpid()
    return place_of_processes(), pid, _own_start(pid)


@cache
def _own_start(pid: int) -> str:
    # Kept, because a process that may open no more files would lose its name.
    return start_time(pid)


def is_dead(name: str) -> bool:
    """Tell whether the process of this name is gone; False if that cannot be known here.

    It can be known only for processes of the same boot and the same pid namespace. The host's name is
    no help, as containers share it.
    """
    parts = name.rsplit("/", 3)
    return len(parts) == 4 and has_ended(parts[1], int(parts[2]), parts[3])


def has_ended(place: str, pid: int, start: str) -> bool:
    """Tell whether this process has ended; False if that cannot be known here."""
    if not place or place != place_of_processes():
        return False
    try:
        return start_time(pid) != start
    except OSError:
        return False


@cache
def place_of_processes() -> str:
    """Return an id shared by all processes whose numbers can be compared with ours; "" if unknown.

    Those are the processes of the same boot and the same pid namespace.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]


def start_time(pid: int) -> str:
    """Return the kernel's start time of a process; "" if it is gone or a zombie.

    Raises OSError where that cannot be read, as by a process that may open no more files.
    """
    try:
        fields = _fields(Path(f"/proc/{pid}/stat").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return fields[START_TIME] if fields and fields[STATE] not in ("Z", "X") else ""


class ProcessFacts(NamedTuple):
    """The session of a process, and its start in ticks since boot."""

    session: int
    started: int


def process_facts(pid: int) -> ProcessFacts | None:
    """Return the facts of a process, None if it is gone."""
    fields = _stat(pid)
    return ProcessFacts(int(fields[SESSION]), int(fields[START_TIME])) if fields else None


def ticks_now() -> int:
    """Return the time since boot in ticks, the unit of a process's start time."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def child_processes(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    if not _kernel_lists_children():
        return [other for other in all_processes() if _parent_pid(other) == pid]
    children: list[int] = []
    for thread in process_threads(pid):
        with contextlib.suppress(OSError):
            children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return children


def process_threads(pid: int) -> list[int]:
    """Return the numbers of the threads of a process."""
    return list(map(int, _names_in(f"/proc/{pid}/task")))


def all_processes() -> list[int]:
    """Return the numbers of all visible processes."""
    return [int(name) for name in _names_in("/proc") if name.isdigit()]


def process_user(pid: int) -> int | None:
    """Return the user a process runs as."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def process_environment(pid: int) -> bytes:
    """Return the environment a process was started with, b"" if we may not read it."""
    return _read(pid, "environ")


def has_memory(pid: int) -> bool:
    """Tell whether a process or thread has memory; once it ends, it has none."""
    return _read(pid, "statm").split()[:1] not in ([], [b"0"])


def memory_held(pid: int) -> int:
    """Return the kilobytes of memory a process holds without files; shared memory counts in full."""
    return _memory(pid, "status", HELD)


def memory_share(pid: int) -> int:
    """Return the kilobytes of memory a process holds, with its part of shared memory."""
    return _memory(pid, "smaps_rollup", OWN_SHARE) or memory_held(pid)


def _memory(pid: int, name: str, sizes: re.Pattern[str]) -> int:
    """Return the sum of the sizes as one thread has them; the first may have ended before the others."""
    for thread in process_threads(pid):
        if found := sizes.findall(_read(thread, name).decode(errors="replace")):
            return sum(map(int, found))
    return 0


def user_task_count(user: int) -> int:
    """Return how many processes and threads a user runs on this machine."""
    pids = [pid for pid in all_processes() if process_user(pid) == user]
    return sum(len(process_threads(pid)) for pid in pids)


@cache
def _kernel_lists_children() -> bool:
    return Path("/proc/thread-self/children").exists()


def _parent_pid(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[PARENT]) if fields else 0


def _stat(pid: int) -> list[str]:
    """Return the fields after the name; [] if the process is gone."""
    return _fields(_read(pid, "stat"))


def _fields(stat: bytes) -> list[str]:
    """Return the fields after the name, which is in brackets and may contain anything, even brackets."""
    return stat.decode(errors="replace").rpartition(")")[2].split()


def _names_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
