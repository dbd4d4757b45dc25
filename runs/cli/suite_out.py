"""Write a suite to the file, files or folder that a path asks for."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cli.options import PROMPTFOO
from runs.formats import suite_files
from runs.formats.suite_files import pack_suite, suite_file_name
from runs.formats.tools import promptfoo_writing
from runs.formats.tools.promptfoo_writing import promptfoo_config
from runs.specs.suites import SuiteWithCases

ZIP = ".zip"
ENDINGS = (*suite_files.SUITE_SUFFIXES, *suite_files.CASE_LINES_SUFFIXES, ZIP)


class UnwritableFormatError(DomainError):
    """A path does not say how a suite is to be written, or the suite cannot be written so."""

    code = "unwritable_format"


class UnwritablePathError(DomainError):
    """A suite cannot be written where it was asked for."""

    code = "unwritable_path"


def write_out(
    content: SuiteWithCases, slug: str, out: str, format: str, *, note: Callable[[str], object]
) -> list[Path]:
    """Write a suite to a path, "" for the usual name, or to standard output for -; return the written files.

    `note` gets what another tool's format leaves out. Raises UnwritableFormatError and UnwritablePathError.
    """
    if format == PROMPTFOO:
        config = promptfoo_config(content)
        for problem in config.notes:
            note(f"Note: {problem}")
        name, parts = promptfoo_writing.FILE, iter([config.write()])
    else:
        packed = pack_suite(content, slug)
        name, parts = packed.name, packed.parts
    if out == "-":
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return []
    out = out or name
    try:
        if format == PROMPTFOO:
            return [_write_file(Path(out), parts)]
        return _write(content, Path(out), is_folder=out.endswith(("/", os.sep)))
    except OSError as error:
        file = str(error.filename or out)
        where = "" if Path(file) == Path(out) else f", at {file}"
        raise UnwritablePathError(f"{out} cannot be written: {error.strerror}{where}.") from error


def _write(content: SuiteWithCases, out: Path, *, is_folder: bool) -> list[Path]:
    """Write the format that the path asks for, and return the written files."""
    if is_folder or out.is_dir():
        suite_file = {suite_file_name(content): suite_files.write_suite(content)}
        return _write_all(out, {**suite_file, **content.files})
    suffix = out.suffix.lower()
    if suffix not in ENDINGS:
        raise UnwritableFormatError(
            f"The ending of {out} names no format. End it in "
            f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, or in / for a folder."
        )
    if suffix == ZIP:
        return [_write_file(out, pack_suite(content, "suite", always_zip=True).parts)]
    if content.files:
        raise UnwritableFormatError(
            f"The suite refers to {counted(len(content.files), 'file')}, which cannot be part of "
            f"{out.name}. Name a zip or a folder with --out, such as {out.stem}.zip or {out.stem}/."
        )
    if suffix in suite_files.CASE_LINES_SUFFIXES:
        lines, head = suite_files.write_case_lines(content)
        return _write_all(out.parent, {out.name: lines, f"{out.stem}.yaml": head})
    return [_write_file(out, suite_files.write_suite_parts(content))]


def _write_all(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    written: list[Path] = []
    for name, part in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        written.append(_write_file(path, [part]))
    return written


def _write_file(path: Path, parts: Iterable[bytes]) -> Path:
    """Write a file completely or not at all; raises OSError with the requested path."""
    try:
        _replace_file(path, parts)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return path


def _replace_file(path: Path, parts: Iterable[bytes]) -> None:
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(parts)
        Path(draft).chmod(0o666 & ~_umask())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
