"""Keep the secrets an installation makes for itself at its first start."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable
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
