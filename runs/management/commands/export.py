"""Write a suite to a file, in its current or an earlier version."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluators.templatetags.figures import counted
from runs.cli.command import FAILED, SiteCommand, get_suite
from runs.formats import suite_files
from runs.formats.suite_files import pack_suite, suite_file_name
from runs.specs.suites import SuiteWithCases
from runs.suites.files import suite_with_cases

EPILOG = """\
The command writes a suite file that other tools of the AgentEvals family can read too; importing it
again changes nothing. PATH decides the format:

  suite.yaml     only the suite file, for a suite that refers to no prompt or script files
  suite.jsonl    one case on each line, everything else in suite.yaml in the same folder
  suite.zip      the suite file with the files it refers to
  evals/         the same, unpacked in this folder, with the suite file as SUITE.yaml
  -              the YAML, or the zip if the suite refers to files, on standard output

Without --out the file is SUITE.yaml or SUITE.zip in the current folder. Existing files are replaced.

exit codes:
  0  everything is written
  2  wrong usage
  3  nothing is written, with the reason

examples:
  evalsite export support-agent
  evalsite export support-agent --out evals/support-agent/
  evalsite export support-agent --version 3 --out - | less
"""

ZIP = ".zip"
ENDINGS = (*suite_files.SUITE_SUFFIXES, *suite_files.CASE_LINES_SUFFIXES, ZIP)


class Command(SiteCommand):
    """Find the version and write it part by part."""

    help = "Write a suite of this site to a file: its cases, evaluators, policy and the files it refers to."
    epilog = EPILOG
    action = "The export"

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        """Let --version mean the version of the suite, not of Django."""
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **options)

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the suite, its version and the path."""
        parser.add_argument("suite", metavar="SUITE", help="Short name of the suite.")
        parser.add_argument("--out", metavar="PATH", help="Path to write to; - is standard output.")
        parser.add_argument(
            "--version", type=int, metavar="N", help="Version to write; default: the current one."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the suite and print the paths."""
        suite = get_suite(options["suite"])
        content = suite_with_cases(suite, version=options["version"])
        if options["out"] == "-":
            for part in pack_suite(content, suite.slug).parts:
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
            return
        out = options["out"] or pack_suite(content, suite.slug).name
        try:
            written = _write(content, Path(out), is_folder=out.endswith(("/", os.sep)))
        except OSError as error:
            file = str(error.filename or out)
            where = "" if Path(file) == Path(out) else f", at {file}"
            reason = f"{out} cannot be written: {error.strerror}{where}."
            raise CommandError(reason, returncode=FAILED) from error
        version = options["version"] or suite.version
        names = ", ".join(map(str, written))
        self.stderr.write(f"{suite.slug}, version {version}, is written to {names}")


def _write(content: SuiteWithCases, out: Path, *, is_folder: bool) -> list[Path]:
    """Write the format that the path asks for, and return the written files."""
    if is_folder or out.is_dir():
        suite_file = {suite_file_name(content): suite_files.write_suite(content)}
        return _write_all(out, {**suite_file, **content.files})
    suffix = out.suffix.lower()
    if suffix not in ENDINGS:
        raise CommandError(
            f"The ending of {out} names no format. End it in "
            f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, or in / for a folder.",
            returncode=FAILED,
        )
    if suffix == ZIP:
        return [_write_file(out, pack_suite(content, "suite", always_zip=True).parts)]
    if content.files:
        raise CommandError(
            f"The suite refers to {counted(len(content.files), 'file')}, which cannot be part of "
            f"{out.name}. Name a zip or a folder with --out, such as {out.stem}.zip or {out.stem}/.",
            returncode=FAILED,
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
