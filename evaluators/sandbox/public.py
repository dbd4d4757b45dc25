"""What a program's own user leaves in places of the machine that everybody may write to."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from evaluators.sandbox.boxes import remove

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - cleared here, not written to
FOLDERS = (SHARED_MEMORY, "/tmp", "/var/tmp")  # noqa: S108 - as above
IPC_REMOVE = 0
IPC_NUMBER_AT = 1
libc = ctypes.CDLL(None)
IPC_REMOVALS: Mapping[str, Callable[[int], int]] = {
    "shm": lambda number: libc.shmctl(number, IPC_REMOVE, None),
    "msg": lambda number: libc.msgctl(number, IPC_REMOVE, None),
    "sem": lambda number: libc.semctl(number, 0, IPC_REMOVE),
}


def folders_open_to(*, closed: Collection[str]) -> tuple[str, ...]:
    """Return the public folders that a program reaches that has given up what is `closed`."""
    return (SHARED_MEMORY,) if "files" in closed else FOLDERS


def paths_of(user: int, folders: Iterable[str] = FOLDERS) -> Iterator[str]:
    """Give what in public folders is a user's."""
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_uid == user:
                        yield entry.path


def clear_after(user: int, folders: Iterable[str] = FOLDERS) -> None:
    """Remove what a user whose processes have all ended has left for the next of that number."""
    for path in list(paths_of(user, folders)):
        remove(Path(path))
    for kind, remove_by_number in IPC_REMOVALS.items():
        for number in _ipc_of(kind, user):
            remove_by_number(number)


def _ipc_of(kind: str, user: int) -> list[int]:
    """Return the numbers of what a user has made of System V's shared memory, messages and semaphores."""
    try:
        head, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    except (OSError, ValueError):
        return []
    user_at, rows = head.split().index("cuid"), map(str.split, lines)
    return [int(fields[IPC_NUMBER_AT]) for fields in rows if int(fields[user_at]) == user]
