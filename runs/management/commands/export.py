"""Write a suite to a file, as it is or as it was."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.cli.answering import AnsweringCommand
from runs.cli.names import COULD_NOT, suite_named
from runs.formats import suite_files
from runs.formats.suite_files import packed, suite_file_name
from runs.specs.suites import SuiteWithCases
from runs.suites.services import suite_with_cases

EPILOG = """\
What is written is a suite file that other readers of the AgentEvals family understand too; importing
it again changes nothing. PATH decides the form:

  suite.yaml     the suite file alone, for a suite that names no prompts or scripts in files
  suite.jsonl    one case a line, the rest in suite.yaml beside it
  suite.zip      the suite file with the files it names
  evals/         the same unpacked in this folder, the suite file as SUITE.yaml
  -              the YAML, or the zip when the suite names files, on standard output

Without --out it becomes SUITE.yaml or SUITE.zip in the current folder. Files that are there already
are replaced.

exit codes:
  0  everything is written
  2  the command line was not understood
  3  nothing could be written, and why

examples:
  evalsite export support-agent
  evalsite export support-agent --out evals/support-agent/
  evalsite export support-agent --version 3 --out - | less
"""

ZIP = ".zip"
ENDINGS = (*suite_files.SUITE_SUFFIXES, *suite_files.CASE_LINES_SUFFIXES, ZIP)


class Command(AnsweringCommand):
    """Look the version up, write it out part by part."""

    help = "Write a suite of this site to a file: its cases, evaluators, policy and the files it names."
    epilog = EPILOG
    action = "The export"

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        """Let --version mean the suite's, not Django's."""
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **options)

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the suite and where it goes."""
        parser.add_argument("suite", metavar="SUITE", help="Short name of the suite.")
        parser.add_argument("--out", metavar="PATH", help="Where it goes; - is standard output.")
        parser.add_argument(
            "--version", type=int, metavar="N", help="As it was at this version; default: as it is."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the suite and say where it is."""
        suite = suite_named(options["suite"])
        content = suite_with_cases(suite, version=options["version"])
        if options["out"] == "-":
            for part in packed(content, suite.slug).parts:
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
            return
        out = options["out"] or packed(content, suite.slug).name
        try:
            written = _write(content, Path(out), is_folder=out.endswith(("/", os.sep)))
        except OSError as error:
            at = str(error.filename or out)
            where = "" if Path(at) == Path(out) else f", at {at}"
            said = f"{out} cannot be written: {error.strerror}{where}."
            raise CommandError(said, returncode=COULD_NOT) from error
        version = options["version"] or suite.version
        names = ", ".join(map(str, written))
        self.stderr.write(f"{suite.slug}, version {version}, is written to {names}")


def _write(content: SuiteWithCases, out: Path, *, is_folder: bool) -> list[Path]:
    """Write the form that the path asks for and return the files it became."""
    if is_folder or out.is_dir():
        suite_file = {suite_file_name(content): suite_files.write_suite(content)}
        return _write_all(out, {**suite_file, **content.files})
    suffix = out.suffix.lower()
    if suffix not in ENDINGS:
        raise CommandError(
            f"{out} does not say by its ending which form to write. End it in "
            f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, or in / for a folder.",
            returncode=COULD_NOT,
        )
    if suffix == ZIP:
        return [_written(out, packed(content, "suite", always_zip=True).parts)]
    if content.files:
        count = len(content.files)
        raise CommandError(
            f"The suite names {count} {'file' if count == 1 else 'files'}, which cannot stand in "
            f"{out.name}. Name a zip or a folder with --out, such as {out.stem}.zip or {out.stem}/.",
            returncode=COULD_NOT,
        )
    if suffix in suite_files.CASE_LINES_SUFFIXES:
        lines, head = suite_files.write_case_lines(content)
        return _write_all(out.parent, {out.name: lines, f"{out.stem}.yaml": head})
    return [_written(out, suite_files.write_suite_parts(content))]


def _write_all(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    written: list[Path] = []
    for name, part in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        written.append(_written(path, [part]))
    return written


def _written(path: Path, parts: Iterable[bytes]) -> Path:
    """Write a file whole or not at all; raises OSError that names the file as it was asked for."""
    try:
        _put(path, parts)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return path


def _put(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file beside its place first: nobody finds half of one there."""
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(parts)
        Path(beside).chmod(0o666 & ~_umask())
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
