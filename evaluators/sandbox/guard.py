"""Look after a program while it runs: memory of all its processes, and what it has written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from evaluators.sandbox.boxes import Box
from evaluators.sandbox.deleted import BLOCK, deleted_bytes
from evaluators.sandbox.limits import MEGABYTE, Limits
from evaluators.sandbox.orphans import Brood, members
from evaluators.sandbox.processes import memory_held, memory_share


class Guard:
    """Looks again and again whether one program has passed a limit.

    No limit of the kernel covers these: it knows the memory of one process and the size of one file.
    """

    def __init__(self, box: Box, limits: Limits) -> None:
        """Have seen nothing yet."""
        self._box, self._limits = box, limits
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
        return disk_limit_passed(self._box, self._limits, without_name=without_name)


def _hold_too_much(pids: Collection[int], most_kb: int) -> bool:
    # What processes share is counted once only when it matters: that takes longer.
    if sum(map(memory_held, pids)) <= most_kb:
        return False
    return sum(map(memory_share, pids)) > most_kb


def disk_limit_passed(box: Box, limits: Limits, *, without_name: int = 0) -> str:
    """Return in words that a program wrote more than it may, or hides how much it is; "" if not.

    `without_name` are bytes of files that are in no folder any more.
    """
    room = limits.disk_mb * MEGABYTE - without_name
    if room < 0:
        return limits.disk_words
    try:
        for count, size in enumerate(_sizes(box.written), start=1):
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


def _sizes(folders: Iterable[Path]) -> Iterable[int]:
    ahead = [str(folder) for folder in folders]
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
