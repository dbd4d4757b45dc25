"""Set, drop or name the baseline of a suite: the run that others are compared with."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from runs.cli.command import SiteCommand, UnknownNameError, get_run, get_suite
from runs.cli.terminal import print_line
from runs.suites.services import drop_baseline, make_baseline

EPILOG = """\
exit codes:
  0  done
  2  wrong usage
  3  nothing was changed, with the reason: the run does not exist or has not completed

examples:
  evalsite baseline set support-agent:latest
  evalsite baseline drop support-agent
  evalsite baseline show support-agent
"""


class Command(SiteCommand):
    """Change the baseline as the page of a run does."""

    help = "Set, drop or show the baseline of a suite, the run that others are compared with."
    epilog = EPILOG
    action = "The change"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the action and what it is about."""
        parser.add_argument(
            "do", choices=("set", "drop", "show"), metavar="ACTION", help="set, drop or show"
        )
        parser.add_argument("name", metavar="NAME", help="The run to set, SUITE#N; else the suite.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it and say what the baseline is now."""
        if options["do"] == "set":
            run = get_run(options["name"])
            make_baseline(run, by=None)
            print_line(self.stdout, f"The baseline of {run.suite.slug} is {run}.")
            return
        suite = get_suite(options["name"])
        if suite.baseline_run is None:
            raise UnknownNameError(f"{suite.slug} has no baseline.")
        if options["do"] == "drop":
            drop_baseline(suite.baseline_run, by=None)
            print_line(self.stdout, f"{suite.slug} has no baseline any more.")
        else:
            print_line(self.stdout, f"{suite.slug}{suite.baseline_run}")
