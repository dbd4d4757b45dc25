"""What the kernel tells of processes, and how every process that a program started is found and ended."""

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

# Fields of /proc/PID/stat, counted behind the name.
PARENT, SESSION, START_TIME = 1, 3, 19
HELD = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)
OWN_SHARE = re.compile(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)


class ProcessFacts(NamedTuple):
    """The session of a process, and when it began in ticks since boot."""

    session: int
    started: int


def process_facts(pid: int) -> ProcessFacts | None:
    """Return what is known of a process, None when it is gone."""
    told = _stat(pid)
    return ProcessFacts(int(told[SESSION]), int(told[START_TIME])) if told else None


def ticks_now() -> int:
    """Return the time since boot in the unit in which the kernel tells when a process began."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def child_processes(pid: int) -> list[int]:
    """Return the children of a process, those of all its threads."""
    if not _kernel_lists_children():
        return [other for other in all_processes() if _parent_of(other) == pid]
    found: list[int] = []
    for task in _names_in(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def process_user(pid: int) -> int | None:
    """Return the user a process runs as."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def process_environment(pid: int) -> bytes:
    """Return the environment a process was started with, b"" when it is not ours to read."""
    return _read(pid, "environ")


def memory_held(pid: int) -> int:
    """Return the kilobytes a process holds besides files; what it shares with others counts in full."""
    return sum(map(int, HELD.findall(_read(pid, "status").decode(errors="replace"))))


def memory_share(pid: int) -> int:
    """Return the kilobytes a process holds; of what several share, each holds its part."""
    found = OWN_SHARE.findall(_read(pid, "smaps_rollup").decode(errors="replace"))
    return sum(map(int, found)) if found else memory_held(pid)


def tasks_of_user(user: int) -> int:
    """Return how many processes and threads a user runs on this machine."""
    pids = [pid for pid in all_processes() if process_user(pid) == user]
    return sum(len(_names_in(f"/proc/{pid}/task")) for pid in pids)


@cache
def _kernel_lists_children() -> bool:
    return Path("/proc/thread-self/children").exists()


def all_processes() -> list[int]:
    """Return the numbers of all processes that are seen from here."""
    return [int(name) for name in _names_in("/proc") if name.isdigit()]


def _parent_of(pid: int) -> int:
    told = _stat(pid)
    return int(told[PARENT]) if told else 0


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name, which may hold anything; none of a process that is gone."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


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


PROC = Path("/proc")
START_TIME_FIELD = 19


@cache
def place_of_processes() -> str:
    """Return what all processes that share numbers with this one have in common; "" when unknown.

    Those are processes of the same boot of the same kernel and the same pid namespace.
    """
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]


def started(pid: int) -> str:
    """Return the kernel's start time of a process; "" for one that is gone or only a zombie."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return ""
    # The command's name stands in brackets and may hold anything, brackets too.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[START_TIME_FIELD]


def own_life() -> tuple[str, int, str]:
    """Return place, number and start of this process; fresh after a fork."""
    pid = os.getpid()
    return place_of_processes(), pid, started(pid)


def is_over(place: str, pid: int, start: str) -> bool:
    """Tell whether that life has ended; False whenever that cannot be known from here."""
    return bool(place) and place == place_of_processes() and started(pid) != start


def process_name() -> str:
    """Return host, place, pid and start of this process, "/" between them; fresh after a fork."""
    place, pid, start = own_life()
    return "/".join((platform.node() or "host", place, str(pid), start))


def is_dead(name: str) -> bool:
    """Tell whether the process of that name is gone; False whenever that cannot be known from here.

    Only processes of the same boot of the same kernel and the same pid namespace can be judged: a
    host's name says little, containers share it.
    """
    parts = name.rsplit("/", 3)
    return len(parts) == 4 and is_over(parts[1], int(parts[2]), parts[3])


PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
# A killed process that does not end is stuck in the kernel; it is left to it.
PATIENCE_MS = 10_000
MAX_ROUNDS = 10_000


@dataclass(frozen=True, slots=True)
class Brood:
    """The processes of one program: that with number `root`, and all that it brought forth.

    In a process space of their own (`is_boxed`) they die with its first. Where they have none, those
    that left their session are known by their `user`, if that is theirs alone, else by having begun
    after `began` (ticks since boot) without the `mark` of another program in their environment.
    """

    root: int
    mark: bytes
    user: int | None
    began: int
    is_boxed: bool


_lock = threading.Lock()
_broods: dict[int, Brood] = {}


@cache
def inherit_orphans() -> None:
    """Make this process inherit what its descendants leave behind; once is enough."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@cache
def close_to_others() -> None:
    """Let no program of our own user trace this process or read its memory and environment."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def start_brood(
    start: Callable[[], Popen[bytes]], *, mark: bytes, user: int | None, is_boxed: bool
) -> tuple[Popen[bytes], Brood]:
    """Start a program in a session of its own and know what it brings forth until that is ended."""
    inherit_orphans()
    if user is None and not is_boxed:
        close_to_others()
    # Whoever looks for strays must never meet a program that is not known yet.
    with _lock:
        began = ticks_now()
        process = start()
        brood = Brood(process.pid, mark, user, began, is_boxed)
        _broods[brood.root] = brood
    return process, brood


def end_brood(brood: Brood) -> None:
    """Kill all of it that is left and bury it; its root must have been waited for before.

    All are stopped before any is killed: else a fork bomb would bring forth as fast as it dies.
    """
    for _ in range(MAX_ROUNDS):
        strays = _strays(brood)
        if not strays:
            break
        if not brood.is_boxed:
            _stop_all(brood)
        for pid in strays:
            _remove_dead(pid)
    with _lock:
        _broods.pop(brood.root, None)


def members(brood: Brood) -> set[int]:
    """Return the numbers of all its living processes."""
    found: set[int] = set()
    ahead = [brood.root, *_strays(brood)]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead.extend(child_processes(pid))
    return found


def _stop_all(brood: Brood) -> None:
    stopped = {brood.root}
    for _ in range(MAX_ROUNDS):
        fresh = members(brood) - stopped
        if not fresh:
            return
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= fresh


def _strays(brood: Brood) -> list[int]:
    """Return the children of this process that belong to the brood, its root apart."""
    with _lock:
        others = [other for other in _broods.values() if other is not brood]
        unknown = [pid for pid in child_processes(os.getpid()) if pid not in _broods]
    return [pid for pid in unknown if _belongs(pid, brood, others)]


def _belongs(pid: int, brood: Brood, others: list[Brood]) -> bool:
    facts = process_facts(pid)
    if facts is None:
        return False
    if facts.session == brood.root or brood.is_boxed:
        return facts.session == brood.root
    if brood.user is not None:
        return process_user(pid) == brood.user
    if facts.session == os.getsid(0) or facts.started < brood.began:
        return False
    environment = process_environment(pid)
    return not any(facts.session == other.root or other.mark in environment for other in others)


def _remove_dead(pid: int) -> None:
    """Kill a child of ours and wait for it."""
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
