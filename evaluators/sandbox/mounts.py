"""The words by which bubblewrap lays out what a program sees of the machine."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath


class Mounts:
    """A view of the machine, in which nothing is but what is added."""

    def __init__(self) -> None:
        """Show nothing."""
        self.words: list[str] = []
        self._shown: list[tuple[PurePosixPath, PurePosixPath]] = []
        self._folders = {"/"}
        self._hidden: list[str] = []

    def copy(self) -> Mounts:
        """Return a view that shows the same and may come to show more."""
        view = Mounts()
        view.words, view._shown, view._folders = [*self.words], [*self._shown], {*self._folders}
        return view

    def add(self, *words: str) -> None:
        """Add words as they are."""
        self.words += words

    def below(self, folder: str) -> None:
        """Make a folder and those above it, open to all: bubblewrap's own are root's alone."""
        for part in (*reversed(PurePosixPath(folder).parents), PurePosixPath(folder)):
            if str(part) not in self._folders:
                self._folders.add(str(part))
                self.add("--perms", "0755", "--dir", str(part))

    def read_only(self, source: str, place: str) -> None:
        """Show a file or folder of the machine, where there is one."""
        if Path(source).exists():
            self.below(str(PurePosixPath(place).parent))
            self.add("--ro-bind-try", source, place)
            self._folders.add(place)
            self._shown.append((PurePosixPath(os.path.realpath(source)), PurePosixPath(place)))

    def writable(self, source: Path, place: str) -> None:
        """Show a folder of the box."""
        self.add("--bind", str(source), place)

    def hide(self, folder: str) -> None:
        """Put an empty folder over one of the machine wherever it would be seen.

        What is shown after that may lie in it; `seal` makes it read-only.
        """
        for source, place in self._shown:
            if PurePosixPath(folder).is_relative_to(source) and Path(folder).is_dir():
                seen = str(place / PurePosixPath(folder).relative_to(source))
                self.add("--perms", "0755", "--tmpfs", seen)
                self._hidden.append(seen)

    def seal(self) -> None:
        """Let nobody write into what stands in the place of hidden folders."""
        for place in self._hidden:
            self.add("--remount-ro", place)

    def as_on_machine(self, place: str) -> None:
        """Show a top folder as the machine has it: itself, or a link into /usr."""
        if Path(place).is_symlink():
            self.add("--symlink", str(Path(place).readlink()), place)
        else:
            self.read_only(place, place)
