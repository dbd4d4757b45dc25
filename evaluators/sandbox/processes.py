"""What the kernel tells of a process, read from /proc; nothing of one that is gone."""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

# Fields of /proc/PID/stat, counted behind the name.
PARENT, SESSION, START_TIME = 1, 3, 19
HELD = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)
OWN_SHARE = re.compile(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)


class Facts(NamedTuple):
    """The session of a process, and when it began in ticks since boot."""

    session: int
    started: int


def facts_of(pid: int) -> Facts | None:
    """Return what is known of a process, None when it is gone."""
    told = _stat(pid)
    return Facts(int(told[SESSION]), int(told[START_TIME])) if told else None


def ticks_now() -> int:
    """Return the time since boot in the unit in which the kernel tells when a process began."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def children_of(pid: int) -> list[int]:
    """Return the children of a process, those of all its threads."""
    if not _kernel_lists_children():
        return [other for other in all_processes() if _parent_of(other) == pid]
    found: list[int] = []
    for task in _names_in(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def user_of(pid: int) -> int | None:
    """Return the user a process runs as."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def environment_of(pid: int) -> bytes:
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
    pids = [pid for pid in all_processes() if user_of(pid) == user]
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
