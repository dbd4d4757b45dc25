"""Find and end every process that a program started, also those whose parents are gone.

This process is made the one that inherits them (child subreaper). It looks at its children by
number and waits for each by number: waiting for just any child would steal exit codes of others.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from subprocess import Popen

from evaluators.sandbox.processes import (
    children_of,
    environment_of,
    facts_of,
    ticks_now,
    user_of,
)

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
# A killed process that does not end is stuck in the kernel; it is left to it.
PATIENCE_MS = 10_000
MOST_ROUNDS = 10_000


@dataclass(frozen=True, slots=True)
class Brood:
    """The processes of one program: that with number `root`, and all that it brought forth.

    In a process space of their own (`is_boxed`) they die with its first. Where they have none, those
    that left their session are known by their `user`, if that is theirs alone, else by having begun
    after `began` (ticks since boot) without the `mark` of another program in their environment.
    """

    root: int
    mark: bytes
    user: int | None
    began: int
    is_boxed: bool


_lock = threading.Lock()
_broods: dict[int, Brood] = {}


@cache
def inherit_orphans() -> None:
    """Make this process inherit what its descendants leave behind; once is enough."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@cache
def close_to_others() -> None:
    """Let no program of our own user trace this process or read its memory and environment."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def start_brood(
    start: Callable[[], Popen[bytes]], *, mark: bytes, user: int | None, is_boxed: bool
) -> tuple[Popen[bytes], Brood]:
    """Start a program in a session of its own and know what it brings forth until that is ended."""
    inherit_orphans()
    if user is None and not is_boxed:
        close_to_others()
    # Whoever looks for strays must never meet a program that is not known yet.
    with _lock:
        began = ticks_now()
        process = start()
        brood = Brood(process.pid, mark, user, began, is_boxed)
        _broods[brood.root] = brood
    return process, brood


def end_brood(brood: Brood) -> None:
    """Kill all of it that is left and bury it; its root must have been waited for before.

    All are stopped before any is killed: else a fork bomb would bring forth as fast as it dies.
    """
    for _ in range(MOST_ROUNDS):
        strays = _strays(brood)
        if not strays:
            break
        if not brood.is_boxed:
            _stop_all(brood)
        for pid in strays:
            _bury(pid)
    with _lock:
        _broods.pop(brood.root, None)


def members(brood: Brood) -> set[int]:
    """Return the numbers of all its living processes."""
    found: set[int] = set()
    ahead = [brood.root, *_strays(brood)]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead.extend(children_of(pid))
    return found


def _stop_all(brood: Brood) -> None:
    stopped = {brood.root}
    for _ in range(MOST_ROUNDS):
        fresh = members(brood) - stopped
        if not fresh:
            return
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= fresh


def _strays(brood: Brood) -> list[int]:
    """Return the children of this process that belong to the brood, its root apart."""
    with _lock:
        others = [other for other in _broods.values() if other is not brood]
        unknown = [pid for pid in children_of(os.getpid()) if pid not in _broods]
    return [pid for pid in unknown if _belongs(pid, brood, others)]


def _belongs(pid: int, brood: Brood, others: list[Brood]) -> bool:
    facts = facts_of(pid)
    if facts is None:
        return False
    if facts.session == brood.root or brood.is_boxed:
        return facts.session == brood.root
    if brood.user is not None:
        return user_of(pid) == brood.user
    if facts.session == os.getsid(0) or facts.started < brood.began:
        return False
    environment = environment_of(pid)
    return not any(facts.session == other.root or other.mark in environment for other in others)


def _bury(pid: int) -> None:
    """Kill a child of ours and wait for it."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        watch = select.poll()
        watch.register(handle, select.POLLIN)
        if watch.poll(PATIENCE_MS):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, handle, os.WEXITED)
    finally:
        os.close(handle)
