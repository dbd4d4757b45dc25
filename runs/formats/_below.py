"""The files around a suite, seen from a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from runs.formats._origins import Origin
from runs.formats._problems import UnreadableFileError

UPWARDS = re.compile(rb"(?:\.\./)+")
STEP = len(b"../")


class Below(Mapping[str, bytes]):
    """The files under one folder of others, by their path from there."""

    def __init__(
        self, files: Mapping[str, bytes], folder: str, origin: Origin = Origin.UPLOAD
    ) -> None:
        """Look from a folder; "" is the top."""
        self.origin = origin
        self._files = files
        self._before = f"{folder}/" if folder else ""

    def __getitem__(self, path: str) -> bytes:
        """Return a content; raises KeyError, or UnreadableFileError that names the path from here."""
        try:
            return self._files[f"{self._before}{path}"]
        except UnreadableFileError as error:
            raise UnreadableFileError(
                [replace(problem, file=path) for problem in error.problems]
            ) from error

    def __contains__(self, path: object) -> bool:
        """Tell whether there is such a file, without reading it."""
        return f"{self._before}{path}" in self._files

    def __iter__(self) -> Iterator[str]:
        """Yield the paths."""
        inside = (path for path in self._files if path.startswith(self._before))
        return (path.removeprefix(self._before) for path in inside)

    def __len__(self) -> int:
        """Return how many files there are."""
        return sum(1 for _ in self)


def folder_for(path: str, *contents: bytes) -> str:
    """Return the folder that everything a suite may refer to lies under; "" is the top.

    It is the suite's own unless the files say `../`. So a suite is the same whether it comes alone, in
    a zip of its folder, or with the folders around it.
    """
    ups = max((len(m) // STEP for part in contents for m in UPWARDS.findall(part)), default=0)
    parts = PurePosixPath(path).parent.parts
    return "/".join(parts[: max(0, len(parts) - ups)])
