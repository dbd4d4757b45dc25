"""Which Python a script gets when it says python or python3."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAMES = ("python", "python3")
SYSTEM_PYTHON = "/usr/bin/python3"
ASK_S = 10.0
ASKED = "import sys; print(sys.prefix, sys.base_prefix, sys.base_exec_prefix, sep='\\n')"
# What every program sees anyway.
MACHINE = ("/usr", "/bin", "/sbin", "/lib")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python: its program and the folders it needs besides those of the machine."""

    program: str
    folders: tuple[str, ...]

    @property
    def missing_names(self) -> tuple[str, ...]:
        """Return which of python and python3 its own folder does not hold."""
        folder = Path(self.program).parent
        return tuple(name for name in NAMES if not (folder / name).exists())


@cache
def interpreter(named: str = "", *, for_everybody: bool = False) -> Interpreter:
    """Return the Python named; without a name the one this installation is built on.

    That comes without the packages of this installation, which are none of a script's business. One
    that has to work `for_everybody`, but lies in somebody's closed folder, makes way for the machine's.
    """
    program = named or _own_program()
    if for_everybody and not named and not is_open_to_all(program) and Path(SYSTEM_PYTHON).exists():
        program = SYSTEM_PYTHON
    folders = _asked_folders(program)
    needed = dict.fromkeys(folder for folder in folders if not _is_of_machine(folder))
    return Interpreter(program, tuple(needed))


def is_open_to_all(path: str) -> bool:
    """Tell whether every user of the machine can reach and read a file or folder."""
    place = Path(os.path.realpath(path))
    try:
        reachable = all(parent.stat().st_mode & 0o001 for parent in place.parents)
        return reachable and place.stat().st_mode & 0o005 == 0o005
    except OSError:
        return False


def _own_program() -> str:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(sys.base_prefix, "bin")
    found = (folder / name for name in (version, *NAMES) if (folder / name).exists())
    return str(next(found, sys.executable))


def _asked_folders(program: str) -> list[str]:
    """Return the folders an interpreter says it lives in, and where it really lies."""
    real = str(Path(os.path.realpath(program)).parent.parent)
    try:
        told = subprocess.run(  # noqa: S603 - the program the administrator named
            [program, "-I", "-c", ASKED],
            capture_output=True,
            text=True,
            timeout=ASK_S,
            env={},
            check=False,
        ).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        told = []
    return [folder for folder in (*told, real) if folder and folder != "/"]


def _is_of_machine(folder: str) -> bool:
    return any(folder == top or folder.startswith(f"{top}/") for top in MACHINE)
