"""Check suite files and store nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from evaluators.templatetags.figures import counted
from runs.cli.command import SiteCommand
from runs.cli.terminal import print_line
from runs.formats.bundles import bundles_at
from runs.formats.finding import read_suites
from runs.scripts import prompt_programs

EPILOG = """\
It reads what import reads, and needs no site. What only a site knows, such as whether a language model
of that name exists, is checked when a suite is imported.

exit codes:
  0  every suite can be read; what would be ignored is printed on standard error
  2  wrong usage
  3  something cannot be read: every problem is printed with its file, line, case and key

examples:
  evalsite validate evals/
  evalsite validate cases.jsonl --profile metrics
"""


class Command(SiteCommand):
    """Read every file and print what it holds."""

    help = "Check suite files: read them as import does, and store nothing."
    epilog = EPILOG
    action = "The check"
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the paths."""
        parser.add_argument(
            "paths", nargs="+", type=Path, metavar="PATH", help="A folder, a zip or a suite file."
        )
        parser.add_argument(
            "--profile",
            default="",
            metavar="NAME",
            help="Defaults for files that name no profile: verdicts, metrics, tasks or hybrid.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Read them all; raises UnreadableFileError with every problem."""
        run = prompt_programs(None, command="validate")
        found = read_suites(bundles_at(options["paths"]), profile=options["profile"], run=run)
        for note in found.notes:
            print_line(self.stderr, str(note))
        for suite in found.suites:
            for warning in suite.content.warnings:
                print_line(self.stderr, str(warning))
            cases = counted(len(suite.content.cases), "case")
            print_line(self.stdout, f"{suite.content.slug}: {cases}, nothing is wrong")
