"""Where a site's files are, and those besides the database: generated keys, and the settings the site is served with."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
# Templates, static files and examples: a wheel has them in this package, a clone at its root.
BUNDLED = PACKAGE / "bundled"
IS_INSTALLED = BUNDLED.is_dir()
FILES = BUNDLED if IS_INSTALLED else ROOT


def default_data_folder(environment: Mapping[str, str]) -> Path:
    """Return the data folder of a site without EVALSITE_DATA_DIR.

    A clone has its own. An installed Evalsite uses the platform's folder for data of programs: the same from
    every folder it is called in, and none in which keys could be committed by accident.
    """
    if not IS_INSTALLED:
        return ROOT / "data"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "evalsite"
    named = Path(environment.get("XDG_DATA_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".local" / "share") / "evalsite"


def demo_data_folder(environment: Mapping[str, str]) -> Path:
    """Return the data folder of the demo without EVALSITE_DATA_DIR."""
    return default_data_folder(environment) / "demo"


def new_secret_key() -> str:
    """Return a random key for signing sessions and links."""
    return secrets.token_urlsafe(48)


def new_encryption_key() -> str:
    """Return a random key for encrypting stored secrets."""
    # Imported here: a list of the commands needs no cryptography.
    from cryptography.fernet import Fernet

    return Fernet.generate_key().decode("ascii")


def read_or_make_key(path: Path, make: Callable[[], str]) -> str:
    """Return the key in a file; the first process that asks makes it.

    Raises:
        OSError: the file cannot be read or written.

    """
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").strip()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(make())
        # Linking is atomic: the file appears complete, and only one of two processes creates it.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        Path(draft).unlink()
    return path.read_text(encoding="ascii").strip()


FILE = "served.json"
ADDRESS = ("EVALSITE_URL", "PORT")
# These decide how links look and whether and how programs run. None is a secret.
SETTINGS = (
    *("EVALSITE_PLAIN_HTTP", "EVALSITE_TRUST_PROXY"),
    *("EVALSITE_SCRIPTS", "EVALSITE_SCRIPTS_NETWORK", "EVALSITE_AGENTS_DIR"),
    *("EVALSITE_SCRIPT_PYTHON", "EVALSITE_SCRIPT_FOLDERS", "EVALSITE_TARGET_NETWORKS"),
)
ATTEMPTS, PAUSE_S = 5, 0.02


def write_served_settings(folder: Path, environment: Mapping[str, str]) -> None:
    """Record the settings of this process for as long as it serves; the lock on the file outlives `exec`.

    A site that is already served from the folder keeps its record. A folder that cannot be written
    to gets none.
    """
    try:
        descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return
    if not _lock(descriptor):
        os.close(descriptor)
        return
    values = {
        name: environment[name] for name in (*ADDRESS, *SETTINGS) if _is_set(environment, name)
    }
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(values, indent=2).encode())
    os.set_inheritable(descriptor, True)


def read_served_settings(folder: Path) -> dict[str, str]:
    """Return the variables of the site that is served from the folder; none if none is."""
    with contextlib.suppress(OSError, ValueError), (folder / FILE).open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            values = json.load(file)
            return {name: str(values[name]) for name in (*ADDRESS, *SETTINGS) if name in values}
    return {}


def adopt_served_settings(environment: MutableMapping[str, str]) -> None:
    """Fill unset variables from the site that is served from the data folder."""
    folder = environment.get("EVALSITE_DATA_DIR", "").strip()
    values = read_served_settings(
        Path(folder).expanduser() if folder else default_data_folder(environment)
    )
    if not any(_is_set(environment, name) for name in ADDRESS):
        environment.update({name: values[name] for name in ADDRESS if name in values})
    for name in SETTINGS:
        if name in values and not _is_set(environment, name):
            environment[name] = values[name]


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return bool(environment.get(name, "").strip())


def _lock(descriptor: int) -> bool:
    """Lock the file; retries, because a command that reads it holds the lock for a moment."""
    for _ in range(ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE_S)
        else:
            return True
    return False
