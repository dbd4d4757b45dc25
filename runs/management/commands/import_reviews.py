"""Bring people's decisions in from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluators.templatetags.figures import counted
from runs.cli.answering import AnsweringCommand
from runs.cli.names import COULD_NOT
from runs.cli.printing import tell
from runs.formats.reviews import rejected_rows
from runs.reviews.files import ReviewsRejectedError, import_reviews, preview_reviews

EPILOG = """\
FILE holds one decision a line, as JSON Lines or CSV, as the export of reviews writes it. Each names
suite, run, case (and repetition), reviewer and verdict: pass, borderline or fail. What else there is:
outcomes, metric_labels, tags, note, seconds, created_at, output_sha256, sampling_rate and more.

A reviewer is the member of that user name, else the name is kept. What is here already is not added
again. A review of another output than the execution has now is rejected.

exit codes:
  0  every review is stored, or was here already
  2  the command line was not understood
  3  nothing is stored: every rejected row is told with its line, column and reason

examples:
  evalsite import_reviews reviews.jsonl
  evalsite import_reviews experts.csv --dry-run
  evalsite import_reviews experts.csv --leave-out-rejected
"""


class Command(AnsweringCommand):
    """Read everything first, then store it in one transaction."""

    help = "Import people's reviews in JSON Lines or CSV."
    epilog = EPILOG
    action = "The import"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the file, and what becomes of rows that are no review."""
        parser.add_argument("file", type=Path, metavar="FILE", help="The reviews.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Tell what would be added; store nothing."
        )
        parser.add_argument(
            "--leave-out-rejected",
            action="store_true",
            help="Store the others when rows are rejected; the rejected are told either way.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Import, and tell what came of it."""
        path: Path = options["file"]
        try:
            content = path.read_bytes()
        except OSError as error:
            said = f"{path} cannot be read: {error.strerror}."
            raise CommandError(said, returncode=COULD_NOT) from error
        preview = preview_reviews(content, file=path.name)
        for told in rejected_rows(preview.rejected):
            tell(self.stderr, f"{path.name}, {told}")
        if options["dry_run"]:
            new, known = len(preview.matching.new), preview.matching.known
            tell(self.stdout, f"{counted(new, 'review')} would be added, {known} are here already.")
            if preview.rejected and not options["leave_out_rejected"]:
                raise ReviewsRejectedError(preview.rejected)
            return
        leaves_out = options["leave_out_rejected"]
        done = import_reviews(content, file=path.name, by=None, leaves_out=leaves_out)
        tell(
            self.stdout,
            f"{counted(done.added, 'review')} added, {done.known} were here already; "
            f"{counted(done.changed, 'reviewed verdict')} changed.",
        )
