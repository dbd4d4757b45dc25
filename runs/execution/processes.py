"""Name this process so that another on the same machine can tell for certain that it is dead."""

from __future__ import annotations

import os
import platform
from functools import cache
from hashlib import sha256
from pathlib import Path

PROC = Path("/proc")
START_TIME_FIELD = 19


def process_name() -> str:
    """Return host, place, pid and start of this process, "/" between them; fresh after a fork."""
    pid = os.getpid()
    return "/".join((platform.node() or "host", _place(), str(pid), _started(pid)))


def is_dead(name: str) -> bool:
    """Tell whether the process of that name is gone; False whenever that cannot be known from here.

    Only processes of the same boot of the same kernel and the same pid namespace can be judged: a
    host's name says little, containers share it.
    """
    parts = name.rsplit("/", 3)
    if len(parts) != 4 or not parts[1] or parts[1] != _place():
        return False
    pid, started = int(parts[2]), parts[3]
    return _started(pid) != started


@cache
def _place() -> str:
    """Return what every process with which this one shares pids has in common; "" when unknown."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]


def _started(pid: int) -> str:
    """Return the kernel's start time of a process; "" for one that is gone or only a zombie."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return ""
    # The command's name stands in brackets and may hold anything, brackets too.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[START_TIME_FIELD]
