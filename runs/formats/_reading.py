"""One suite file being read: where its values stand, the files around it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.kinds._files import path_of
from evaluators.kinds._script_files import placed
from runs.formats._document import Document, Path
from runs.formats._origins import OUTSIDE, absent
from runs.formats._problems import Problem, UnreadableFileError

MOST_PROBLEMS = 500
MOST_SHARED = 200_000_000


@dataclass(slots=True)
class Reading:
    """One file being read: its document and what was found wrong with it so far.

    `kept` holds by case, "" for the suite, what evaluators say that nothing uses, by their paths.
    """

    document: Document
    files: Mapping[str, bytes] = field(default_factory=dict)
    folder: str = ""
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    used_files: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: list[Path] = field(default_factory=list)
    shared_characters: int = 0

    def problem(self, path: Path, message: str, *, case: str = "") -> Problem:
        """Return a problem with the place of a value."""
        key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        place = self.document.file_of(path), self.document.line_of(path)
        return Problem(message, *place, case, key)

    def refuse(self, path: Path, message: str, *, case: str = "") -> None:
        """Note what keeps the file from being used; raises UnreadableFileError once that is plenty."""
        self.problems.append(self.problem(path, message, case=case))
        self.refused.append(path)
        if len(self.problems) >= MOST_PROBLEMS:
            raise UnreadableFileError(self.in_order())

    def in_order(self) -> list[Problem]:
        """Return what was found wrong, in the order of the file."""
        return sorted(self.problems, key=lambda problem: (problem.file, problem.line))

    def warn(self, path: Path, message: str, *, case: str = "") -> None:
        """Note what was kept without being understood."""
        self.warnings.append(self.problem(path, message, case=case))

    def use(self, reference: str, *, is_kept: bool = True) -> str:
        """Return the path of a file named beside the suite file; the suite keeps it unless told not to.

        Raises ValueError saying why it cannot be used.
        """
        path, shown = path_of(reference, self.folder), repr(reference.strip())
        if not path:
            raise ValueError(f"the file {shown} {OUTSIDE}")
        if path not in self.files:
            raise ValueError(absent(reference, self.files))
        if is_kept:
            self.used_files[path] = self.files[path]
        return path

    def weigh(self, text: str, path: Path, *, case: str = "") -> None:
        """Count a text that is given to one case more; raises UnreadableFileError for too much of it.

        A few lines that name a large file again and again would else fill the memory.
        """
        self.shared_characters += len(text)
        if self.shared_characters > MOST_SHARED:
            millions = MOST_SHARED // 1_000_000
            said = f"the cases are given more than {millions} million characters of shared texts"
            self.refuse(path, f"{said}; share shorter ones, or name them in fewer cases", case=case)
            raise UnreadableFileError(self.in_order())

    def keep(self, references: Iterable[str]) -> None:
        """Keep files with the suite that are named by their paths in it."""
        for path in (path_of(reference) for reference in references):
            self.used_files[path] = self.files[path]

    def place_script(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a script's settings as they are stored, and keep the files it may read with the suite.

        Raises ValueError naming a file that it needs and that was not given.
        """
        found = placed(config, self.folder, self.files)
        if found.outside:
            raise ValueError(f"the file {found.outside[0]!r} {OUTSIDE}")
        if found.missing:
            raise ValueError(absent(found.missing[0], self.files))
        self.used_files |= found.files
        return found.config
