"""Clean up once after dead workers."""

from __future__ import annotations

from typing import Any

from runs.cli.command import SiteCommand
from runs.execution.reaper import reap
from runs.models.database import database_now
from runs.queue import WORK_ON_RUN, queue

EPILOG = """\
Every worker does this every 10 seconds, so the command is useful only if none is running.

exit codes:
  0  done; prints how many runs wait for a worker
  3  the database could not be used

example:
  evalsite reap
"""


class Command(SiteCommand):
    """Run the reaper once."""

    help = "Release the results of dead workers, finish runs, and queue waiting work."
    epilog = EPILOG
    action = "The reaper"

    def handle(self, *args: Any, **options: Any) -> None:
        """Reap and queue waiting runs."""
        waiting = reap(now=database_now())
        for run_id in waiting:
            queue(WORK_ON_RUN, run_id)
        self.stderr.write(f"{len(waiting)} runs wait for a worker.")
