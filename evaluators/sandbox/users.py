"""As which user a program runs: ourselves, or one that is nobody's where we are root."""

from __future__ import annotations

import os
from pathlib import Path

# Far above the users of any machine; a block for every worker process, a user for every slot.
FIRST = 2**30
BLOCK = 1024
BLOCKS = 2**20


def user_of_slot(slot: int) -> int | None:
    """Return the user for the program in a slot, None where only root could change users.

    It is nobody else's: its processes are counted apart and no other program may touch them.
    """
    if os.geteuid() != 0:
        return None
    user = FIRST + (os.getpid() % BLOCKS) * BLOCK + slot % BLOCK
    end = _end_of_users()
    return user if user < end else end - 2 - slot % (end // 2)


def _end_of_users() -> int:
    """Return the number behind the last user there is; containers may have few."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return 2**16
    return max(int(first) + int(count) for first, _, count in map(str.split, lines))
