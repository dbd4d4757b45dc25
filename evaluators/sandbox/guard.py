"""Look after a program while it runs: memory of all its processes, and what it has written."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from evaluators.sandbox.boxes import Box
from evaluators.sandbox.deleted import BLOCK, deleted_bytes
from evaluators.sandbox.limits import MEGABYTE, Limits
from evaluators.sandbox.orphans import Brood, members
from evaluators.sandbox.processes import memory_held, memory_share
from evaluators.sandbox.public import paths_of


class Guard:
    """Looks again and again whether one program has passed a limit.

    No limit of the kernel covers these: it knows the memory of one process and the size of one file.
    """

    def __init__(self, box: Box, limits: Limits, public: tuple[str, ...] = ()) -> None:
        """Have seen nothing yet; in public folders all that is its user's is the program's."""
        self._box, self._limits, self._public = box, limits, public
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
        elsewhere = () if brood.user is None else paths_of(brood.user, self._public)
        return disk_limit_passed(
            self._box, self._limits, elsewhere=elsewhere, without_name=without_name
        )


def _hold_too_much(pids: Collection[int], most_kb: int) -> bool:
    # What processes share is counted once only when it matters: that takes longer.
    if sum(map(memory_held, pids)) <= most_kb:
        return False
    return sum(map(memory_share, pids)) > most_kb


def disk_limit_passed(
    box: Box, limits: Limits, *, elsewhere: Iterable[str] = (), without_name: int = 0
) -> str:
    """Return in words that a program wrote more than it may, or hides how much it is; "" if not.

    `elsewhere` are its paths outside the box, `without_name` bytes of files in no folder any more.
    """
    room = limits.disk_mb * MEGABYTE - without_name
    if room < 0:
        return limits.disk_words
    try:
        for count, size in enumerate(_sizes(box.written, elsewhere), start=1):
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


def _sizes(folders: Iterable[Path], others: Iterable[str]) -> Iterator[int]:
    """Give the size of each file: those in the folders, and the others with what is in them."""
    ahead = [str(folder) for folder in folders]
    for path in others:
        with contextlib.suppress(FileNotFoundError):
            facts = os.lstat(path)
            yield facts.st_blocks * BLOCK
            if stat.S_ISDIR(facts.st_mode):
                ahead.append(path)
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
