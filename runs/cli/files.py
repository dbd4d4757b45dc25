"""The files a command writes: results, summary and JUnit."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from evaluators.scoring.types import DomainError

OUT, SUMMARY, CASES, JUNIT = "--out", "--summary", "--cases", "--junit"
CAMEL_CASE = "--camel-case"
STANDARD_OUTPUT = Path("-")


class UnwritableFileError(DomainError):
    """A file cannot be written."""

    code = "unwritable_file"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The files to write for a run; None for those not requested."""

    out: Path | None
    summary: Path | None
    cases: Path | None
    junit: Path | None
    is_camel: bool = False

    @staticmethod
    def add_to(parser: ArgumentParser) -> None:
        """Add the options."""
        for option, text in (
            (OUT, "Write one JSON line for each result: scores, verdict, costs."),
            (SUMMARY, "Write every figure of the run to this file as JSON."),
            (CASES, "Write one JSON line for each case over its repetitions."),
            (
                JUNIT,
                "Write a JUnit file for a build server: only the verdict pass counts as passed.",
            ),
        ):
            parser.add_argument(
                option, type=Path, metavar="FILE", help=f"{text} - is standard output."
            )
        parser.add_argument(
            CAMEL_CASE, action="store_true", help="Write the keys of --out in camelCase."
        )

    @classmethod
    def read(cls, options: dict[str, Any]) -> Self:
        """Return the requested files; raises UnwritableFileError before any work is done."""
        names = (OUT, SUMMARY, CASES, JUNIT)
        out, summary, cases, junit = paths = [options[name.removeprefix("--")] for name in names]
        check_writable(zip(names, paths, strict=True))
        return cls(out, summary, cases, junit, is_camel=options["camel_case"])

    @property
    def use_standard_output(self) -> bool:
        """Tell whether a file goes to standard output, so that nothing else may."""
        return STANDARD_OUTPUT in (self.out, self.summary, self.cases, self.junit)


def check_writable(files: Iterable[tuple[str, Path | None]]) -> None:
    """Raise UnwritableFileError unless every file can be written, before any work is done.

    `files` are options with their paths. The check leaves no files behind.
    """
    taken: dict[Path, str] = {}
    for option, path in files:
        if path is None:
            continue
        target = path.resolve()
        if target in taken:
            raise UnwritableFileError(f"{taken[target]} and {option} name the same file, {path}.")
        taken[target] = option
        if path != STANDARD_OUTPUT:
            _check_opens(option, path)


def write_file(option: str, path: Path, parts: Iterable[str]) -> None:
    """Write a text to a file, or to standard output for -; raises UnwritableFileError."""
    try:
        if path == STANDARD_OUTPUT:
            sys.stdout.writelines(parts)
            sys.stdout.flush()
            return
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(parts)
    except OSError as error:
        raise UnwritableFileError(
            f"The results are stored, but {option} {path} could not be written: {error.strerror}."
        ) from error


def _check_opens(option: str, path: Path) -> None:
    is_new = not path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise UnwritableFileError(
            f"{option} {path} cannot be written: {error.strerror}. Name a file in a folder that "
            "exists and that you may write to."
        ) from error
