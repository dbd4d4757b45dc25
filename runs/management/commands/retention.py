"""Show or change after how many days outputs and details of runs are removed."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.template.defaultfilters import filesizeformat

from evaluators.templatetags.figures import counted
from runs.cli.command import MISUSED, SiteCommand, get_suite
from runs.cli.terminal import print_line
from runs.models.database import database_now
from runs.models.removals import Removal
from runs.models.suites import Suite
from runs.retention.forms import MAX_DAYS
from runs.retention.queries import retention_preview, site_rule, suite_rule
from runs.retention.services import (
    apply_retention,
    change_rule,
    drop_rule,
    remove_data,
    retry_removal,
)

NEVER = "never"
EPILOG = """\
Without options the command prints the rule of the site and what would be removed now. With --outputs
or --details it changes the rule of the site, or with --suite that of a suite; what is not named stays
as it is. Days count from the end of a run.

  outputs  answers, traces, files, and the texts of all calls
  details  these, and reasons, findings and notes; only figures stay

Workers apply the rules once an hour; --apply does it now, in this process. What could not be removed in
five tries is listed with its reason; --retry tries it again.

exit codes:
  0  done
  2  wrong usage
  3  nothing was changed

examples:
  evalsite retention
  evalsite retention --outputs 30 --details 365
  evalsite retention --suite support-agent --outputs never
  evalsite retention --suite support-agent --like-site
  evalsite retention --apply
"""


class Command(SiteCommand):
    """Change the rule if asked to, then print it with what it would remove."""

    help = "Show or change after how many days outputs and details of runs are removed."
    epilog = EPILOG
    action = "The retention"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the suite and the days."""
        parser.add_argument("--suite", metavar="SUITE", help="A suite; default: the site.")
        for name in ("outputs", "details"):
            parser.add_argument(
                f"--{name}", type=_days, metavar="DAYS", help=f"Days that {name} stay, or {NEVER}."
            )
        parser.add_argument(
            "--like-site", action="store_true", help="Let the suite follow the rule of the site."
        )
        parser.add_argument("--apply", action="store_true", help="Remove what is old enough now.")
        parser.add_argument("--retry", action="store_true", help="Try failed removals again now.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Change, apply and print."""
        suite = get_suite(options["suite"]) if options["suite"] else None
        if options["like_site"]:
            if suite is None:
                raise CommandError("--like-site needs --suite.", returncode=MISUSED)
            drop_rule(suite, by=None)
        elif options["outputs"] or options["details"]:
            _change(suite, options)
        rule = (suite_rule(suite) if suite else None) or site_rule()
        whose = suite.slug if suite and rule.suite_id else "The site"
        print_line(
            self.stdout,
            f"{whose} keeps outputs {_kept(rule.outputs_days)}, details {_kept(rule.details_days)}.",
        )
        if options["apply"]:
            removals = apply_retention(suite=suite, in_background=False)
            for removal in removals:
                remove_data(removal.pk)
                print_line(self.stdout, f"{removal.name}: {removal.get_part_display()} removed.")
        self._failed(is_retried=options["retry"])
        self._preview(suite)

    def _failed(self, *, is_retried: bool) -> None:
        for removal in Removal.objects.filter(failed_at__isnull=False):
            if is_retried and retry_removal(removal, by=None, in_background=False):
                remove_data(removal.pk)
                print_line(self.stdout, f"{removal.name}: {removal.get_part_display()} removed.")
            else:
                print_line(
                    self.stdout,
                    f"{removal.name}: could not be removed ({removal.error}); --retry tries it again.",
                )

    def _preview(self, suite: Suite | None) -> None:
        preview = retention_preview(now=database_now(), suite=suite)
        if not preview:
            print_line(self.stdout, "Nothing would be removed now.")
        for due in preview:
            size = filesizeformat(due.bytes).replace("\xa0", " ")
            print_line(
                self.stdout,
                f"{due.suite.slug}: {due.part.label} of {counted(len(due.runs), 'run')} would go now, "
                f"{counted(due.results, 'result')}, {size}.",
            )
            for hold in due.holds:
                print_line(self.stdout, f"  kept: {hold.text}")


def _change(suite: Suite | None, options: dict[str, Any]) -> None:
    rule = (suite_rule(suite) if suite else None) or site_rule()
    days = {"outputs": rule.outputs_days, "details": rule.details_days}
    for name in days:
        if options[name]:
            days[name] = None if options[name] == NEVER else int(options[name])
    outputs, details = days["outputs"], days["details"]
    if outputs and details and outputs >= details:
        raise CommandError(
            f"Outputs go with the other details after {details} days; give them fewer days.",
            returncode=MISUSED,
        )
    change_rule(suite, outputs_days=outputs, details_days=details, by=None)


def _days(text: str) -> str:
    if text == NEVER or (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_DAYS):
        return text
    raise ArgumentTypeError(f"{text!r} is not a number of days from 1 to {MAX_DAYS}, nor {NEVER}")


def _kept(days: int | None) -> str:
    return "for good" if days is None else f"for {counted(days, 'day')}"
