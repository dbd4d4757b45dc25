"""Delete runs, campaigns, suites, recorded outputs, or the personal data of a member."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser
from django.template.defaultfilters import filesizeformat

from evalsite.access.members import erase_member, personal_data
from evaluators.templatetags.figures import counted
from runs.cli.command import FAILED, SiteCommand, UnknownNameError, get_run, get_suite, get_target
from runs.cli.terminal import print_line
from runs.models.database import database_now
from runs.models.removals import RemovalPart
from runs.models.runs import Campaign
from runs.retention.queries import Selection, find_holds, select_runs, stored_data
from runs.retention.services import (
    DataHeldError,
    begin_removal,
    delete_recorded_outputs,
    remove_data,
)

EPILOG = """\
WHAT is one of

  run       a run, as SUITE#NUMBER
  outputs   only the answers, traces, files and texts of calls of a run, as SUITE#NUMBER
  campaign  a campaign by its number, with its runs
  suite     a suite by its short name, with all its runs
  recorded  the recorded outputs of a target, by the name of the target
  member    the personal data of a member, by user name; what the member did stays without the name

The command prints what will go and asks at the terminal; --yes answers. Nothing that is the baseline
of a suite, shown by an open share link or waiting for reviewers is deleted: revoke or change that
first. --undecided gives up the waiting results. The audit keeps who deleted what, and how much.

exit codes:
  0  it is deleted; with --dry-run it could be
  2  wrong usage
  3  nothing is deleted: something keeps it, it does not exist, or it was not confirmed

examples:
  evalsite delete run support-agent#3
  evalsite delete outputs support-agent#3 --yes
  evalsite delete suite old-suite --dry-run
  evalsite delete member ada
"""


class Command(SiteCommand):
    """Say what will go, ask, and delete it in this process."""

    help = "Delete runs, campaigns, suites, recorded outputs, or the personal data of a member."
    epilog = EPILOG
    action = "Deleting"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the kind of thing, its name, and the answer to the question."""
        parser.add_argument("what", metavar="WHAT", choices=sorted(self.deletions))
        parser.add_argument("name", metavar="NAME", help="What is deleted.")
        parser.add_argument("--yes", action="store_true", help="Do not ask.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Print what would be deleted; delete nothing."
        )
        parser.add_argument(
            "--undecided",
            action="store_true",
            help="Take waiting results out of the review queue without a decision.",
        )

    @property
    def deletions(self) -> dict[str, Callable[..., None]]:
        """Return what can be deleted."""
        return {
            "run": self._delete_run,
            "outputs": self._delete_outputs,
            "campaign": self._delete_campaign,
            "suite": self._delete_suite,
            "recorded": self._delete_recorded,
            "member": self._delete_member,
        }

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete what is named."""
        self.deletions[options["what"]](options["name"], options)

    def _delete_run(self, name: str, options: dict[str, Any]) -> None:
        self._delete_selection(_selection_of_run(name, RemovalPart.RUN), options)

    def _delete_outputs(self, name: str, options: dict[str, Any]) -> None:
        self._delete_selection(_selection_of_run(name, RemovalPart.OUTPUTS), options)

    def _delete_campaign(self, name: str, options: dict[str, Any]) -> None:
        number = int(name) if name.isascii() and name.isdecimal() else 0
        campaign = Campaign.objects.select_related("suite").filter(pk=min(number, 2**31)).first()
        if campaign is None:
            raise UnknownNameError(f"There is no campaign {name}. Its page has the number.")
        runs = select_runs(campaign.suite, campaign=campaign)
        self._delete_selection(Selection(RemovalPart.RUN, campaign.suite, runs, campaign), options)

    def _delete_suite(self, name: str, options: dict[str, Any]) -> None:
        suite = get_suite(name)
        runs = select_runs(suite)
        self._delete_selection(
            Selection(RemovalPart.RUN, suite, runs, is_whole_suite=True), options
        )

    def _delete_selection(self, selection: Selection, options: dict[str, Any]) -> None:
        stored = stored_data(selection.runs)
        holds = [
            hold
            for hold in find_holds(
                selection.runs,
                selection.part,
                now=database_now(),
                is_whole_suite=selection.is_whole_suite,
            )
            if not (hold.is_review and options["undecided"])
        ]
        parts = [
            counted(stored.runs, "run"),
            counted(stored.results, "result"),
            counted(stored.calls, "call"),
            counted(stored.reviews, "decision"),
            filesizeformat(stored.total_bytes).replace("\xa0", " ") + " of texts and files",
        ]
        what = "Outputs of " if selection.part == RemovalPart.OUTPUTS else ""
        print_line(self.stdout, f"{what}{selection.name}: {', '.join(parts)}.")
        if holds:
            raise DataHeldError(holds)
        if not self._agrees(options):
            return
        removal = begin_removal(
            selection, by=None, releases_reviews=options["undecided"], in_background=False
        )
        is_done = remove_data(removal.pk)
        print_line(self.stderr, "Deleted." if is_done else "A worker of the site deletes it now.")

    def _delete_recorded(self, name: str, options: dict[str, Any]) -> None:
        target = get_target(name)
        count = counted(target.recorded_outputs.count(), "recorded output")
        print_line(self.stdout, f"{target.name}: {count}.")
        if self._agrees(options):
            delete_recorded_outputs(target, by=None)
            print_line(self.stderr, "Deleted.")

    def _delete_member(self, name: str, options: dict[str, Any]) -> None:
        member = User.objects.filter(username=name).first()
        if member is None:
            raise UnknownNameError(f"There is no member named {name}.")
        data = personal_data(member)
        print_line(
            self.stdout,
            f"{name}: name, email, password, role, {counted(data.tokens, 'API token')}, "
            f"{counted(data.drafts, 'draft')}, {counted(data.views, 'own view')}, {counted(data.uploads, 'upload')}. What stays without "
            f"the name: {counted(data.reviews, 'decision')}, {counted(data.runs, 'run')}, "
            f"{counted(data.entries, 'entry,entries')} of the audit.",
        )
        if self._agrees(options):
            print_line(self.stderr, f"{name} is {erase_member(member, actor=None)} now.")

    def _agrees(self, options: dict[str, Any]) -> bool:
        """Tell whether to go on; raises CommandError without a yes."""
        if options["dry_run"]:
            return False
        if options["yes"]:
            return True
        if sys.stdin.isatty():
            self.stderr.write("Delete this for good? Type yes: ", ending="")
            if sys.stdin.readline().strip() == "yes":
                return True
        raise CommandError("Nothing was deleted. Add --yes to delete it.", returncode=FAILED)


def _selection_of_run(name: str, part: RemovalPart) -> Selection:
    run = get_run(name)
    return Selection(part, run.suite, select_runs(run.suite, pk=run.pk))
