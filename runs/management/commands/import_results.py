"""Bring the results of another tool, or of another Evalsite, in as finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.cli.answering import AnsweringCommand
from runs.cli.names import COULD_NOT, run_url, suite_named
from runs.cli.printing import summary_table, tell
from runs.files.importing_results import import_results
from runs.finishing import summarise_run

EPILOG = """\
FILE holds one JSON object a line, as `evaluate --out` and AgentV write them, in snake_case or
camelCase: an id (eval_id, test_id), a score from 0 to 1 or an error, and what else is known: verdict,
evaluator_results (or scores) nested as they were scored, output, usage and costs.

Each target that the lines name becomes a run of its own, completed and marked as imported. Scores
are taken over; a verdict the file does not tell is made by the bands of the suite. An errored
execution has no score. What was never carried out is left out, and told.

exit codes:
  0  every result is stored
  2  the command line was not understood
  3  nothing is stored: every problem is told with its line, or the suite lacks a case

examples:
  evalsite import_results results.jsonl --suite support-agent
  evalsite import_results agentv-results.jsonl --target "agent 1.5.0"
"""


class Command(AnsweringCommand):
    """Read everything first, then store it in one transaction."""

    help = "Import results in JSON Lines as finished runs of a suite."
    epilog = EPILOG
    action = "The import"
    begins_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the file, and what its lines may not tell."""
        parser.add_argument("file", type=Path, metavar="FILE", help="The results.")
        parser.add_argument(
            "--suite",
            metavar="NAME",
            help="Suite of this site the results are of; it must exist and have their cases. Default: "
            "the one the lines or the file name, and where there is none, a new one made of their cases.",
        )
        parser.add_argument(
            "--target",
            default="",
            metavar="NAME",
            help="What answered, where the lines do not tell; default: the file's name.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Import, and tell how each run went."""
        path: Path = options["file"]
        try:
            content = path.read_bytes()
        except OSError as error:
            said = f"{path} cannot be read: {error.strerror}."
            raise CommandError(said, returncode=COULD_NOT) from error
        suite = suite_named(options["suite"]) if options["suite"] else None
        done = import_results(
            content, file=path.name, suite=suite, imported_by=None, target_name=options["target"]
        )
        for note in done.notes:
            tell(self.stderr, f"Note: {note}")
        for run in done.runs:
            summarise_run(run.pk)
            run.refresh_from_db()
            tell(self.stdout, f"{done.suite.slug}{run} against {run.target_name}: {run_url(run)}")
            tell(self.stdout, f"{summary_table(run)}\n")
