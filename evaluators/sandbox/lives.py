"""Tell from this machine, for certain, that a process is dead; its number alone may be another's by now."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from pathlib import Path

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
