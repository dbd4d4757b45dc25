"""What a served site leaves in its data folder, so that commands beside it speak of the same site.

The file is locked for as long as the site is served: whoever finds it unlocked finds what is left of
a site that is gone, and passes over it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from evalsite.commands import ROOT

FILE = "served.json"
ADDRESS = ("EVALSITE_URL", "PORT")
# What decides how links read and whether and how programs run; never a secret.
SETTINGS = (
    *("EVALSITE_PLAIN_HTTP", "EVALSITE_TRUST_PROXY"),
    *("EVALSITE_SCRIPTS", "EVALSITE_SCRIPTS_NETWORK", "EVALSITE_AGENTS_DIR"),
    *("EVALSITE_SCRIPT_PYTHON", "EVALSITE_SCRIPT_FOLDERS"),
)
ATTEMPTS, PAUSE_S = 5, 0.02


def keep_served(folder: Path, environment: Mapping[str, str]) -> None:
    """Leave what this process serves with, until it ends; the program it turns into keeps it too.

    A site that is served from the folder already stays the one that is told. A folder that cannot be
    written to keeps nothing.
    """
    try:
        descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return
    if not _is_locked_by_us(descriptor):
        os.close(descriptor)
        return
    kept = {name: environment[name] for name in (*ADDRESS, *SETTINGS) if _is_set(environment, name)}
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(kept, indent=2).encode())
    os.set_inheritable(descriptor, True)


def served(folder: Path) -> dict[str, str]:
    """Return the variables of the site that is served from the folder, none when none is."""
    with contextlib.suppress(OSError, ValueError), (folder / FILE).open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found = json.load(file)
            return {name: str(found[name]) for name in (*ADDRESS, *SETTINGS) if name in found}
    return {}


def follow_served(environment: MutableMapping[str, str]) -> None:
    """Have a command take what it was not told from the site that is served from its data folder."""
    chosen = environment.get("EVALSITE_DATA_DIR", "").strip()
    found = served(Path(chosen).expanduser() if chosen else ROOT / "data")
    if not any(_is_set(environment, name) for name in ADDRESS):
        environment.update({name: found[name] for name in ADDRESS if name in found})
    for name in SETTINGS:
        if name in found and not _is_set(environment, name):
            environment[name] = found[name]


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return bool(environment.get(name, "").strip())


def _is_locked_by_us(descriptor: int) -> bool:
    """Lock the file; a command that looks at it this moment holds it for a moment only."""
    for _ in range(ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE_S)
        else:
            return True
    return False
