"""What processes have cost so far, as the system counts it."""

from __future__ import annotations

import os
import re
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Return the CPU time a process has taken, all its threads together, without its children."""
    # The name in parentheses may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """Return the most memory a process has held."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
