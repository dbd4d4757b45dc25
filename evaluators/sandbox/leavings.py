"""Take along the files that a program left, without being led elsewhere by what it made of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from evaluators.sandbox.limits import KEPT_BYTES, KEPT_FILES

DEEPEST = 30
LONGEST_PATH = 300


class KeptFilesError(Exception):
    """What a program left cannot be kept; says why."""


def collect(folder: int) -> dict[str, bytes]:
    """Return the regular files below an open folder by path; links and devices are left out.

    Raises KeptFilesError when they are too many, too large, too deep or not named in text.
    """
    found: dict[str, bytes] = {}
    for path, size, handle in _regular_files(folder, "", DEEPEST):
        kept = sum(map(len, found.values()))
        if len(found) >= KEPT_FILES:
            raise KeptFilesError(f"it left more than {KEPT_FILES} files in its workspace")
        if kept + size > KEPT_BYTES:
            raise KeptFilesError(f"it left more than {KEPT_BYTES // 1_000_000} MB in its workspace")
        found[path] = _content(handle, KEPT_BYTES - kept)
    return dict(sorted(found.items()))


def _regular_files(folder: int, above: str, depth: int) -> Iterator[tuple[str, int, int]]:
    """Give path, size and an open file of each; never follows a link, not even one made just now."""
    if not depth:
        raise KeptFilesError(f"folders of its workspace are more than {DEEPEST} deep")
    for name in os.listdir(folder):
        path = f"{above}{name}"
        _check_name(path)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                continue
            handle = os.open(name, flags, dir_fd=folder)
        except OSError as error:
            raise KeptFilesError(f"{path} cannot be read: {error.strerror}") from error
        try:
            facts = os.fstat(handle)
            if stat.S_ISDIR(facts.st_mode):
                yield from _regular_files(handle, f"{path}/", depth - 1)
            elif stat.S_ISREG(facts.st_mode):
                yield path, facts.st_size, handle
        finally:
            os.close(handle)


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise KeptFilesError(
            "a file in its workspace has a name that is no text in UTF-8"
        ) from error
    if len(path) > LONGEST_PATH:
        raise KeptFilesError(f"a path in its workspace is longer than {LONGEST_PATH} characters")


def _content(handle: int, most: int) -> bytes:
    with os.fdopen(os.dup(handle), "rb") as file:
        return file.read(most)
