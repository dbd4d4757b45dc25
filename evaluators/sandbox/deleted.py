"""Room on the disk that no folder shows: files that are deleted and still open, or still mapped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

BLOCK = 512
# A mapping of a file without a name; memory that processes share looks like one and is counted as such.
MAPPED = re.compile(
    r"^(\w+)-(\w+) \S+ (\w+) (\w+):(\w+) (\d+) +/(?!dev/zero \(|SYSV|memfd:).* \(deleted\)$",
    re.MULTILINE,
)
libc = ctypes.CDLL(None)

File = tuple[int, int]


def deleted_bytes(pids: Iterable[int], user: int | None) -> tuple[int, set[int]]:
    """Return what deleted files of the processes take, and which processes cannot be looked into.

    Those of another user are looked at as that user: root in a container may not otherwise.
    """
    open_ones: dict[File, int] = {}
    mapped: dict[File, int] = {}
    closed = set()
    with _as_user(user):
        for pid in pids:
            try:
                open_ones.update(_open_files(pid))
                for file, size in _mapped_files(pid):
                    mapped[file] = max(size, mapped.get(file, 0))
            except PermissionError:
                closed.add(pid)
    # Of a mapping only its end is known, of an open file what it really takes.
    return sum({**mapped, **open_ones}.values()), closed


def _open_files(pid: int) -> Iterator[tuple[File, int]]:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            names = [entry.name for entry in entries]
    except (FileNotFoundError, ProcessLookupError):
        return
    for name in names:
        try:
            facts = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116 - thousands of times
        except (FileNotFoundError, ProcessLookupError):
            continue
        if not facts.st_nlink and stat.S_ISREG(facts.st_mode):
            yield (facts.st_dev, facts.st_ino), facts.st_blocks * BLOCK


def _mapped_files(pid: int) -> Iterator[tuple[File, int]]:
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return
    for start, end, offset, major, minor, inode in MAPPED.findall(text):
        device = os.makedev(int(major, 16), int(minor, 16))
        yield (device, int(inode)), int(offset, 16) + int(end, 16) - int(start, 16)


@contextlib.contextmanager
def _as_user(user: int | None) -> Iterator[None]:
    """Look at files as a user, in this thread alone."""
    if user is None:
        yield
        return
    group_before, before = libc.setfsgid(user), libc.setfsuid(user)
    try:
        yield
    finally:
        libc.setfsuid(before)
        libc.setfsgid(group_before)
