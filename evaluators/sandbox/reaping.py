"""End and remove what is left of programs whose worker was killed and could not clear up itself."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import time
from pathlib import Path

from evaluators.sandbox.boxes import PREFIX, Box, remove
from evaluators.sandbox.lives import is_over, place_of_processes, started
from evaluators.sandbox.processes import all_processes, environment_of, user_of
from evaluators.sandbox.public import clear_after

NAME = re.compile(rf"{PREFIX}(?P<place>\w*)-(?P<pid>\d+)-(?P<start>\d+)-")
# No program may run longer than an hour: a box so old is over, also one of a container that is gone.
OLDEST_S = 7200
MOST_ROUNDS = 1000


def clear_after_the_dead() -> None:
    """Kill the programs of dead workers of this machine and remove their boxes.

    Any number of workers may do it at once, again and again.
    """
    boxes = _own_boxes()
    dead = [box for box in boxes if _is_over(box)]
    # Containers may have so few users that two workers give programs the same.
    users_of_living = {_user_of(box) for box in boxes if box not in dead}
    for box in dead:
        user = _user_of(box)
        is_own = user not in (None, os.geteuid()) and user not in users_of_living
        _kill_all(box, user if is_own else None)
        remove(box.root)
        if user is not None and is_own:
            clear_after(user)


def _own_boxes() -> list[Box]:
    """Return the boxes that our user laid out: anybody may make a folder of that name."""
    with os.scandir(tempfile.gettempdir()) as entries:
        named = [entry for entry in entries if entry.name.startswith(PREFIX)]
    boxes = []
    for entry in named:
        with contextlib.suppress(FileNotFoundError):
            is_ours = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if is_ours and entry.is_dir(follow_symlinks=False):
                boxes.append(Box(Path(entry.path)))
    return boxes


def _is_over(box: Box) -> bool:
    name = NAME.match(box.root.name)
    if name and name["place"] == place_of_processes():
        return is_over(name["place"], int(name["pid"]), name["start"])
    try:
        return box.root.stat().st_mtime < time.time() - OLDEST_S
    except FileNotFoundError:
        return False


def _user_of(box: Box) -> int | None:
    try:
        return box.start.lstat().st_uid
    except OSError:
        return None


def _kill_all(box: Box, user: int | None) -> None:
    """Kill whoever runs as the user or carries the box in its environment, until nobody does."""
    mark = f"EVAL_WORKSPACE={box.workspace}\0".encode()
    for _ in range(MOST_ROUNDS):
        left = [pid for pid in all_processes() if _belongs(pid, mark, user)]
        if not left:
            return
        # Stopped before any is killed: else a fork bomb would bring forth as fast as it dies.
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                _send(pid, sent, mark, user)


def _belongs(pid: int, mark: bytes, user: int | None) -> bool:
    belongs = (user is not None and user_of(pid) == user) or mark in environment_of(pid)
    return belongs and bool(started(pid))


def _send(pid: int, sent: signal.Signals, mark: bytes, user: int | None) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The number may be another's by now; what the handle holds is not.
        if _belongs(pid, mark, user):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, sent)
    finally:
        os.close(handle)
