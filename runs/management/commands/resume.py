"""Continue a run that ended early, paying only for what was not answered yet."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandParser

from evaluators.sandbox.processes import process_name
from evaluators.templatetags.figures import counted
from runs.cli.command import SiteCommand, get_run
from runs.cli.files import FileOptions
from runs.cli.single_run import execute_and_conclude, read_budget
from runs.cli.terminal import ProgressLine
from runs.cli.watching import stop_wanted
from runs.execution.reaper import reap
from runs.models.database import database_now
from runs.running.retrying import resume_run

EPILOG = """\
A run can be resumed when it was stopped, reached its budget or failed, at a command line or by workers:
finished results stay, and calls that were answered are not made again. The run keeps its suite
version, target, cases and limits. A run whose command line was killed on this machine can be resumed
at once, one of another machine after two leases (60 seconds).

exit codes:
  0  both gates passed
  1  a gate failed
  2  wrong usage
  3  not evaluated, as by evalsite evaluate, or nothing to resume

examples:
  evalsite resume support-agent#12
  evalsite resume support-agent:latest --junit report.xml
  evalsite resume support-agent#12 --budget 10
"""


class Command(SiteCommand):
    """Take over a run that is over, and execute what is left of it in this process."""

    help = """\
Continue a run that ended early, in this process; calls that were answered are not made again. The
exit code says whether it passed."""
    epilog = EPILOG
    action = "The run"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the run, a new budget, and the files to write."""
        parser.add_argument("run", metavar="RUN", help="SUITE#NUMBER or SUITE:latest.")
        parser.add_argument(
            "--budget",
            metavar="USD",
            help="New budget of the whole run, with what is spent; default: as before.",
        )
        FileOptions.add_to(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Resume the run, execute it, and print the conclusion."""
        budget_usd = read_budget(options["budget"])
        files = FileOptions.read(options)
        # A run whose command line was killed has not ended yet.
        reap(now=database_now())
        with stop_wanted() as stop:
            progress = ProgressLine(sys.stderr)
            run = get_run(options["run"])
            left = resume_run(run, resumed_by=None, budget_usd=budget_usd, owner_id=process_name())
            run.refresh_from_db()
            progress.say(f"{left} of {counted(run.execution_count, 'result')} to go.")
            execute_and_conclude(self, run, files, progress, stop)
