"""The words that make a program give up the machine's files and network by itself, before it starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from evaluators.sandbox.calls import call_filter
from evaluators.sandbox.interpreter import interpreter
from evaluators.sandbox.places import ETC, ETC_OF_NETWORK, TOPS, Place
from evaluators.sandbox.public import SHARED_MEMORY

# What a program may use of the devices, where it sees the machine's own.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")


def restraining(python: str) -> list[str]:
    """Return the words that run restraint.py, whoever may read it where it lies."""
    return [python, "-I", "-S", "-c", _restraint()]


@cache
def _restraint() -> str:
    return Path(__file__).with_name("restraint.py").read_text()


def giving_up(place: Place) -> list[str]:
    """Return what makes a program give up the machine's files and its network before it starts.

    Whether it has the network or not, it gives up the calls that lead out of a sandbox.
    """
    calls = ""
    if "network" in place.closed:
        calls = call_filter(cuts_network=not place.has_network).hex()
    if not place.closed:
        return []
    box = place.box
    etc = (*ETC, *ETC_OF_NETWORK, "passwd", "group", "nsswitch.conf")
    shown = ("/usr", *(f"/{top}" for top in TOPS), *place.python.folders, *place.folders)
    readable = (
        *("/proc", "/sys", str(box.names), str(box.environment)),
        *(os.path.realpath(f"/etc/{name}") for name in etc),
        *(
            path
            for top in (*shown, *filter(None, [place.folder]))
            for path in without(top, place.hidden)
        ),
    )
    writable = (*map(str, box.written), *(f"/dev/{name}" for name in DEVICES))
    if place.user is not None:
        # What is left there by a user who is nobody else is counted and removed.
        writable += (SHARED_MEMORY,)
    python = interpreter(for_everybody=place.user is not None).program
    kept = ("\n".join(writable), "\n".join(readable)) if "files" in place.closed else ("", "")
    return [*restraining(python), calls, *kept]


def without(folder: str, hidden: Iterable[str]) -> Iterator[str]:
    """Give what of a folder may be read when some below it may not: itself when there is none.

    A right to a folder holds for all in it, so one above a hidden folder gives way to what lies beside.
    """
    real = os.path.realpath(folder)
    inside = [path for path in hidden if PurePosixPath(path).is_relative_to(real)]
    if not inside:
        yield folder
    elif real not in inside:
        with contextlib.suppress(OSError), os.scandir(real) as entries:
            # Where links lead to has rights of its own.
            beside = [entry.path for entry in entries if not entry.is_symlink()]
            for path in beside:
                yield from without(path, inside)
