"""Set right once what dead workers left behind."""

from __future__ import annotations

from typing import Any

from runs.cli.answering import AnsweringCommand
from runs.execution.reaper import reap
from runs.models.database import database_now
from runs.queue import WORK_ON_RUN, queue

EPILOG = """\
Every worker does this by itself every 10 seconds: it is of use only where none is alive.

exit codes:
  0  done; how many runs wait for workers is told
  3  the database could not be used

example:
  evalsite reap
"""


class Command(AnsweringCommand):
    """Reap once, as every worker does by itself every 10 seconds."""

    help = "Free results that dead workers held, end runs that are over, queue work that waits."
    epilog = EPILOG
    action = "The reaper"

    def handle(self, *args: Any, **options: Any) -> None:
        """Free what dead workers held and queue what waits."""
        waiting = reap(now=database_now())
        for run_id in waiting:
            queue(WORK_ON_RUN, run_id)
        self.stderr.write(f"{len(waiting)} runs wait for a worker.")
