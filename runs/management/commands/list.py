"""List suites, runs, results of a run, targets or language models."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from evaluators.templatetags.figures import GAPS
from runs.cli.command import SiteCommand
from runs.cli.listing import LISTED, table
from runs.cli.terminal import print_line

EPILOG = """\
exit codes:
  0  they are listed, also if there are none
  2  wrong usage
  3  nothing is listed, with the reason

examples:
  evalsite list suites
  evalsite list runs --suite support-agent
  evalsite list results --run support-agent:latest --filter 'verdict = fail'
  evalsite list targets --json | jq -r .name
"""


class Command(SiteCommand):
    """Print a table, or the API's documents one a line."""

    help = "List the suites, runs, targets or language models of the site, or the results of a run."
    epilog = EPILOG
    action = "The listing"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the kind and the filters."""
        parser.add_argument("kind", choices=tuple(LISTED), metavar="KIND", help=", ".join(LISTED))
        parser.add_argument("--suite", metavar="NAME", help="Only runs of this suite.")
        parser.add_argument("--run", metavar="RUN", help="The run of the results: SUITE#N …")
        parser.add_argument(
            "--filter", default="", metavar="FILTER", help="Only results of cases that match this."
        )
        parser.add_argument(
            "--limit", type=int, default=100, metavar="N", help="At most so many (100)."
        )
        parser.add_argument(
            "--json", action="store_true", help="One JSON object a line, as the API gives them."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """List them."""
        kind = options["kind"]
        found = [document.as_json() for document in LISTED[kind].find(options)]
        if options["json"]:
            for facts in found:
                print_line(self.stdout, json.dumps(facts, ensure_ascii=False))
            return
        if not found:
            print_line(self.stderr, f"There are no {kind}.")
            return
        for line in table(kind, found):
            print_line(self.stdout, line.translate(GAPS))
        if len(found) == options["limit"]:
            print_line(
                self.stderr, f"There may be more: --limit sets how many are listed ({len(found)})."
            )
