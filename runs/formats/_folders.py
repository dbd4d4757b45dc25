"""Folders on this machine as contents by path, read when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from runs.formats._ignoring import LeftOut
from runs.formats._problems import Problem, UnreadableFileError

MOST_BYTES = 50 * 1024 * 1024
MOST_FILES = 20_000


class FolderFiles(Mapping[str, bytes]):
    """The plain files under a folder by their path in it; nothing outside can be named or linked to.

    Reading one raises UnreadableFileError when it is too large or the system refuses it.
    """

    def __init__(self, root: Path) -> None:
        """Look at nothing yet."""
        self._root = root.resolve()
        self._paths: list[str] | None = None

    def __getitem__(self, path: str) -> bytes:
        """Return the content of a file; raises KeyError."""
        return self.beginning(path, MOST_BYTES)

    def __contains__(self, path: object) -> bool:
        """Tell whether there is such a file, without reading it."""
        return isinstance(path, str) and self._place(path) is not None

    def __iter__(self) -> Iterator[str]:
        """Yield the paths, hidden files and caches left out, as they were when first asked for."""
        if self._paths is None:
            self._paths = listed(self._root, LeftOut())
        return iter(self._paths)

    def __len__(self) -> int:
        """Return how many files there are."""
        return sum(1 for _ in self)

    def beginning(self, path: str, size: int) -> bytes:
        """Return the first bytes of a file; of one that is asked for whole, all."""
        place = self._place(path)
        if place is None:
            raise KeyError(path)
        try:
            if size == MOST_BYTES and place.stat().st_size > MOST_BYTES:
                said = f"the file is larger than {MOST_BYTES // 1024**2} MB"
                raise UnreadableFileError([Problem(said, path)])
            with place.open("rb") as stream:
                return stream.read(size)
        except OSError as error:
            said = f"the file cannot be read: {error.strerror}"
            raise UnreadableFileError([Problem(said, path)]) from error

    def _place(self, path: str) -> Path | None:
        try:
            place = (self._root / path).resolve()
            is_inside = place.is_relative_to(self._root) and place.is_file()
        except (OSError, ValueError):
            return None
        return place if is_inside else None


def listed(root: Path, left_out: LeftOut) -> list[str]:
    """Return the paths of the plain files under a folder, sorted; raises UnreadableFileError for too many."""
    found: list[str] = []
    inside = FolderFiles(root)
    for folder, folders, names in os.walk(root, onerror=_refuse):
        at = Path(folder).relative_to(root)
        folders[:] = sorted(name for name in folders if _is_wanted(root, at / name, left_out))
        paths = [(at / name).as_posix() for name in names]
        found += [
            path
            for path in paths
            if not left_out.takes(path, is_link=(root / path).is_symlink() and path not in inside)
        ]
        if len(found) > MOST_FILES:
            said = f"holds more than {MOST_FILES} files; name the folder of the suites in it"
            raise UnreadableFileError([Problem(said, str(root))])
    unnameable = [path for path in found if not _is_text(path)]
    if unnameable:
        said = f"the name {unnameable[0]!r} is not text in UTF-8; rename the file"
        raise UnreadableFileError([Problem(said, str(root))])
    return sorted(path for path in found if path in inside)


def _refuse(error: OSError) -> NoReturn:
    said = f"the folder cannot be read: {error.strerror}"
    raise UnreadableFileError([Problem(said, str(error.filename))]) from error


def _is_text(path: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in path)


def _is_wanted(root: Path, path: Path, left_out: LeftOut) -> bool:
    # Links to folders are never followed: they may lead out, or round in a circle.
    inside = f"{path.as_posix()}/"
    return not left_out.takes(inside + "x", is_link=(root / path).is_symlink())
