"""Look after a program while it runs: memory of all its processes, and what it has written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from evaluators.sandbox.boxes import Box
from evaluators.sandbox.limits import MEGABYTE, Limits
from evaluators.sandbox.orphans import Brood, members
from evaluators.sandbox.processes import memory_held, memory_share

# Each entry takes room on the disk too, whatever its length.
BLOCK = 512


def limit_passed(brood: Brood, box: Box, limits: Limits) -> str:
    """Return the limit that a running program has passed, in words; "" for none.

    No limit of the kernel covers these: it knows the memory of one process and the size of one file.
    """
    if _holds_too_much(brood, limits.memory_mb * 1024):
        return limits.memory_words
    return limits.disk_words if wrote_too_much(box, limits) else ""


def _holds_too_much(brood: Brood, most_kb: int) -> bool:
    pids = members(brood)
    # What processes share is counted once only when it matters: that takes longer.
    if sum(map(memory_held, pids)) <= most_kb:
        return False
    return sum(map(memory_share, pids)) > most_kb


def wrote_too_much(box: Box, limits: Limits) -> bool:
    """Tell whether what is in the box is more than a program may write."""
    room = limits.disk_mb * MEGABYTE
    try:
        for count, size in enumerate(_sizes(box.written), start=1):
            room -= size
            if count > limits.files or room < 0:
                return True
    except OSError:
        # A path that has become too long to be looked at.
        return True
    return False


def _sizes(folders: Iterable[Path]) -> Iterable[int]:
    ahead = [str(folder) for folder in folders]
    while ahead:
        folder = ahead.pop()
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        for entry in entries:
            try:
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield facts.st_blocks * BLOCK
            if entry.is_dir(follow_symlinks=False):
                ahead.append(entry.path)
