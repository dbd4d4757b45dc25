"""Bring suites and recorded outputs in from files of this machine."""  # noqa: N999 - what people type

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from runs.cli.answering import AnsweringCommand
from runs.cli.evaluating import told
from runs.cli.files import add_table_arguments, check_table_options, import_table
from runs.cli.names import COULD_NOT, model_named
from runs.cli.printing import written_for
from runs.files.importing import import_recorded_outputs, import_suites
from runs.formats.bundles import bundles_at
from runs.formats.finding import FoundSuites, read_suites
from runs.models.suites import Target
from runs.specs.problems import Problem

EPILOG = """\
PATH is a folder, a zip or a suite file; a file may refer to others in its folder. Suite files end in
.yaml or .yml and list their cases under tests, or name a file of them there, or end in .jsonl with
one case a line and the rest in a YAML file of the same name beside it. Of a folder or zip every suite
is imported; other YAML files and JSON Lines are named and left out, hidden files and caches (.git,
node_modules) are not read.

A line such as profile: metrics gives a suite the policy and evaluators it does not write itself:
verdicts, metrics, tasks or hybrid. --profile does the same for files without such a line, a file
of cases alone among them; where both name one, the file's own goes before, and a note says so. What
is stored, and exported, are the values.

With --suite, PATH is a table whose rows are cases of that suite: CSV as spreadsheets save it, JSON
Lines or a JSON list of any fields. What its columns hold is told by their names, or by --map. Rows
that are no case are told with line and column, and nothing is stored unless they are left out. With --profile a suite
that is not there begins with them; without --suite it is named after the file (.csv or .tsv).

A suite of the same name gets a new version; runs keep the version they ran with. All of it is
stored, or nothing.

exit codes:
  0  everything is stored; what was kept without being used is told on standard error
  2  the command line was not understood
  3  nothing is stored: every problem is told with its file, line, case and key

examples:
  evalsite import evals/
  evalsite import refunds.yaml --slug refunds-2 --judge gpt-4.1-mini --note "stricter tone"
  evalsite import cases.jsonl --profile metrics --judge gpt-4.1-mini
  evalsite import support.zip --outputs answers.jsonl --target "agent 1.5.0"
  evalsite import --outputs answers.jsonl --target "agent 1.6.0"
  evalsite import questions.csv --profile verdicts --judge gpt-4.1-mini
  evalsite import cases.csv --suite refunds --map input=question --map expected_output=answer
"""


class Command(AnsweringCommand):
    """Read everything first, then store it in one transaction."""

    help = """\
Import suites from a folder, a zip, one file or several, and outputs that a target gave before."""
    epilog = EPILOG
    action = "The import"
    begins_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take what the import page takes."""
        parser.add_argument(
            "paths", nargs="*", type=Path, metavar="PATH", help="A folder, a zip or a suite file."
        )
        parser.add_argument(
            "--slug", metavar="NAME", help="Short name of the suite; default: as its file says."
        )
        parser.add_argument(
            "--judge",
            metavar="SLUG",
            help='Language model that judges, "" for none; default: as the file says, else the one the '
            "suite has.",
        )
        parser.add_argument(
            "--profile",
            default="",
            metavar="NAME",
            help="What files start from where they say nothing: verdicts, metrics, tasks or hybrid.",
        )
        parser.add_argument(
            "--note", default="", metavar="TEXT", help="What the new versions are to be noted with."
        )
        parser.add_argument(
            "--outputs",
            type=Path,
            metavar="FILE",
            help='Recorded outputs, one a line: {"id": "CS-001", "output": "…"}.',
        )
        parser.add_argument(
            "--target",
            metavar="NAME",
            help="Name of the target that gave them; default: the file's own name.",
        )
        add_table_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Import all of it and tell what came of each part."""
        check_table_options(options)
        if options["suite"] is not None:
            self._import_table(options)
            return
        paths, outputs = options["paths"], options["outputs"]
        if not paths and outputs is None:
            raise CommandError("Name a folder, a zip or a suite file, or --outputs.", returncode=2)
        if options["target"] and outputs is None:
            said = "--target names what gave recorded outputs; name their file with --outputs."
            raise CommandError(said, returncode=2)
        if options["profile"] and not paths:
            said = "--profile says what suite files start from; name them."
            raise CommandError(said, returncode=2)
        profile = options["profile"]
        found = read_suites(bundles_at(paths), profile=profile) if paths else FoundSuites(())
        with transaction.atomic():
            done = _import_suites(found, options)
            target = _import_outputs(outputs, options["target"]) if outputs else None
        for warning in (*found.warnings, *(note for one in done for note in one.notes)):
            self._warn(warning)
        for one in done:
            self._tell(f"{told(one.imported)} From {one.path}")
        if target:
            count = target.recorded_outputs.count()
            recorded = f"{count} recorded {'output' if count == 1 else 'outputs'}"
            self._tell(f"Target {target.name}: {recorded}, from {outputs}")

    def _import_table(self, options: dict[str, Any]) -> None:
        with transaction.atomic():
            told, left_out = import_table(options)
        for problem in left_out:
            self._warn(problem)
        for sentence in told:
            self._tell(sentence)

    def _tell(self, sentence: str) -> None:
        self.stdout.write(written_for(sys.stdout, sentence))

    def _warn(self, warning: Problem) -> None:
        self.stderr.write(written_for(sys.stderr, f"Note: {warning}"), self.style.WARNING)


def _import_suites(found: FoundSuites, options: dict[str, Any]) -> tuple[Any, ...]:
    if not found.suites:
        return ()
    judge = model_named(options["judge"]).slug if options["judge"] else options["judge"]
    return import_suites(
        found.suites, imported_by=None, slug=options["slug"], judge=judge, note=options["note"]
    )


def _import_outputs(path: Path, name: str | None) -> Target:
    try:
        lines = path.read_bytes()
    except OSError as error:
        said = f"--outputs {path} cannot be read: {error.strerror}."
        raise CommandError(said, returncode=COULD_NOT) from error
    return import_recorded_outputs(
        target_name=name or path.stem, lines=lines, imported_by=None, file=str(path)
    )
