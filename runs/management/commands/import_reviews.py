"""Import reviews from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from evaluators.templatetags.figures import counted
from runs.cli.command import SiteCommand, read_file
from runs.cli.terminal import print_line
from runs.formats.reviews import rejected_rows
from runs.reviews.files import ReviewsRejectedError, import_reviews, preview_reviews

EPILOG = """\
FILE contains one decision on each line, as JSON Lines or CSV, in the format of the export of
reviews. Each names suite, run, case (and repetition), reviewer and verdict: pass, borderline or fail.
Optional fields: outcomes, metric_labels, tags, note, seconds, created_at, output_sha256,
sampling_rate and more.

A reviewer is the member with that user name; other names are stored as text. Existing reviews are
not added again. A review of an output that has changed since is rejected.

exit codes:
  0  every review is stored, now or before
  2  wrong usage
  3  nothing is stored: each rejected row is printed with its line, column and reason

examples:
  evalsite import_reviews reviews.jsonl
  evalsite import_reviews experts.csv --dry-run
  evalsite import_reviews experts.csv --leave-out-rejected
"""


class Command(SiteCommand):
    """Read everything first, then store it in one transaction."""

    help = "Import human reviews in JSON Lines or CSV."
    epilog = EPILOG
    action = "The import"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the file, and how to treat rejected rows."""
        parser.add_argument("file", type=Path, metavar="FILE", help="The reviews.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Print what would be added; store nothing."
        )
        parser.add_argument(
            "--leave-out-rejected",
            action="store_true",
            help="Store the other rows if some are rejected; rejected rows are printed either way.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Import the reviews and print how many were added."""
        path: Path = options["file"]
        content = read_file(path)
        preview = preview_reviews(content, file=path.name, by=None)
        for row in rejected_rows(preview.rejected):
            print_line(self.stderr, f"{path.name}, {row}")
        if options["dry_run"]:
            new, known = len(preview.matching.new), preview.matching.known
            print_line(
                self.stdout, f"{counted(new, 'review')} would be added, {known} are here already."
            )
            if preview.rejected and not options["leave_out_rejected"]:
                raise ReviewsRejectedError(preview.rejected)
            return
        leaves_out = options["leave_out_rejected"]
        imported = import_reviews(content, file=path.name, by=None, leaves_out=leaves_out)
        print_line(
            self.stdout,
            f"{counted(imported.added, 'review')} added, {imported.known} were here already; "
            f"{counted(imported.changed, 'reviewed verdict')} changed.",
        )
