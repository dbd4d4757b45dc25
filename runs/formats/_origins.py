"""Where files were given, and what is to be done about one that is missing among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from posixpath import basename

OUTSIDE = "lies outside the folder of the suite; give the folder that holds both"


class Origin(Enum):
    """Where files come from, with what mends a name that leads to none of them."""

    DISK = "there is no file {}; correct the name, or create the file"
    ZIP = "the file {} is not in the zip; add it there"
    UPLOAD = "the file {} is not among the files given; add it to the upload"
    LOOSE = (
        "the file {} is not among the files given; add it, or choose the folder or a zip of it: "
        "browsers send single files without their folders"
    )


class LooseFiles(Mapping[str, bytes]):
    """Files that were given without their folders.

    One that is asked for in a folder is found by its own name. It stands for one path only: two
    files of one name in two folders were never both given.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Hold files by name."""
        self._files = files
        self._stands_for: dict[str, str] = {}

    def __getitem__(self, path: str) -> bytes:
        """Return a content, from now on that of this path; raises KeyError."""
        name = self.given_as(path)
        if name != path:
            self._stands_for[name] = path
        return self._files[name]

    def __contains__(self, path: object) -> bool:
        """Tell whether a file of this name can stand for the path."""
        return isinstance(path, str) and self.given_as(path) in self._files

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._files)

    def __len__(self) -> int:
        """Return how many files there are."""
        return len(self._files)

    def given_as(self, path: str) -> str:
        """Return the name of the file that stands for a path, the path itself where none does."""
        name = basename(path)
        is_free = self._stands_for.get(name, path) == path
        return name if name in self._files and is_free else path


def origin_of(files: Mapping[str, bytes]) -> Origin:
    """Return where files come from, as they say themselves."""
    found = getattr(files, "origin", Origin.UPLOAD)
    return found if isinstance(found, Origin) else Origin.UPLOAD


def absent(reference: str, files: Mapping[str, bytes]) -> str:
    """Say that no file stands where a reference leads, and what mends it."""
    return origin_of(files).value.format(repr(reference.strip()))
