"""Import the results of another tool, or of another Evalsite, as finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.cli.command import MISUSED, SiteCommand, get_suite, read_file, run_url
from runs.cli.terminal import print_line
from runs.files.importing_results import import_results
from runs.finishing import summarise_run
from runs.results.report import summary_table

EPILOG = """\
FILE contains one JSON object on each line, as `evaluate --out` and AgentV write them, in snake_case
or camelCase: an id (eval_id, test_id), a score from 0 to 1 or an error, and optionally verdict,
nested evaluator_results (or scores), output, usage and costs. It may also be one JSON document, a
result or a list of results, and a result a final evaluation with final_score from 0 to 10.

Results that another tool wrote are recognised by what they hold; the README says which.

Each target in the file becomes a completed run, marked as imported. Scores are kept as they are; a
missing verdict follows from the thresholds of the suite. A result with an error has no score.
Results that never ran are left out, with a note.

exit codes:
  0  every result is stored
  2  wrong usage
  3  nothing is stored: each problem is printed with its line, or the suite lacks a case

examples:
  evalsite import_results results.jsonl --suite support-agent
  evalsite import_results dataset.results.jsonl --slug composite
  evalsite import_results agentv-results.jsonl --target "agent 1.5.0"
"""


class Command(SiteCommand):
    """Read everything first, then store it in one transaction."""

    help = "Import results in JSON Lines as finished runs of a suite."
    epilog = EPILOG
    action = "The import"
    creates_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the file, and the names that may be missing from it."""
        parser.add_argument("file", type=Path, metavar="FILE", help="The results.")
        parser.add_argument(
            "--suite",
            metavar="NAME",
            help="Existing suite with the cases of the results. Default: the suite that the lines or "
            "the file name, or a new one made from the cases.",
        )
        parser.add_argument(
            "--slug",
            default="",
            metavar="NAME",
            help="Short name of a new suite, made from the cases of the results.",
        )
        parser.add_argument(
            "--target",
            default="",
            metavar="NAME",
            help="Target of lines that name none; default: the file's name.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Import the results and print the figures of each run."""
        path: Path = options["file"]
        if options["suite"] and options["slug"]:
            raise CommandError(
                "--suite names an existing suite and --slug a new one; write one of them.",
                returncode=MISUSED,
            )
        content = read_file(path)
        suite = get_suite(options["suite"]) if options["suite"] else None
        imported = import_results(
            content,
            file=path.name,
            suite=suite,
            imported_by=None,
            target_name=options["target"],
            slug=options["slug"],
        )
        for note in imported.notes:
            print_line(self.stderr, f"Note: {note}")
        for run in imported.runs:
            summarise_run(run.pk)
            run.refresh_from_db()
            name = f"{imported.suite.slug}{run}"
            print_line(self.stdout, f"{name} against {run.target_name}: {run_url(run)}")
            print_line(self.stdout, f"{summary_table(run)}\n")
