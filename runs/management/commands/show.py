"""Show a suite, run, result, target or language model in full."""

from __future__ import annotations

import json
from typing import Any

import yaml
from django.core.management.base import CommandParser

from runs.cli.command import SiteCommand
from runs.cli.listing import LISTED
from runs.cli.terminal import print_line

KINDS = {kind.removesuffix("s"): listed for kind, listed in LISTED.items()}
EPILOG = """\
exit codes:
  0  it is shown
  2  wrong usage
  3  it does not exist: the message names what does

examples:
  evalsite show suite support-agent
  evalsite show run support-agent:latest
  evalsite show result support-agent#12 CS-011 2
  evalsite show target "returns desk" --json | jq .config
"""


class Command(SiteCommand):
    """Print the API's document as YAML or JSON."""

    help = "Show a suite, run, result, target or language model in full, as the API describes it."
    epilog = EPILOG
    action = "Showing it"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take what it is and its name."""
        parser.add_argument("kind", choices=tuple(KINDS), metavar="KIND", help=", ".join(KINDS))
        parser.add_argument(
            "name",
            nargs="+",
            metavar="NAME",
            help="Its name; of a result the run, the case and, unless it is 1, the repetition.",
        )
        parser.add_argument("--json", action="store_true", help="As JSON instead of YAML.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Show it."""
        facts = KINDS[options["kind"]].show(options["name"]).as_json()
        if options["json"]:
            print_line(self.stdout, json.dumps(facts, indent=2, ensure_ascii=False))
            return
        shown = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=100)
        for line in shown.splitlines():
            print_line(self.stdout, line)
