"""What a site keeps in its data folder beside the database: the keys it made for itself, and where it is served."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from cryptography.fernet import Fernet


def new_secret_key() -> str:
    """Return a new random key for signing sessions and links."""
    return secrets.token_urlsafe(48)


def new_encryption_key() -> str:
    """Return a new random key for encrypting what is stored."""
    return Fernet.generate_key().decode("ascii")


def kept_key(path: Path, make: Callable[[], str]) -> str:
    """Return the key kept in a file; the first caller of all processes makes and writes it.

    Raises:
        OSError: the file can neither be read nor written.

    """
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(make())
        # A link appears complete or not at all, and only one of two processes makes it.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        Path(draft).unlink()
    return path.read_text(encoding="ascii").strip()


ROOT = Path(__file__).resolve().parent.parent


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
