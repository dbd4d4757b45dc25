"""Set right once what dead workers left behind."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from runs.execution.sweeping import sweep
from runs.models.clock import database_now
from runs.services.queueing import WORK_ON_RUN, queue


class Command(BaseCommand):
    """Sweep once, as every worker does by itself every 10 seconds."""

    help = "Free results that dead workers held, end runs that are over, queue work that waits."

    def handle(self, *args: Any, **options: Any) -> None:
        """Sweep and queue."""
        waiting = sweep(now=database_now())
        for run_id in waiting:
            queue(WORK_ON_RUN, run_id)
        self.stderr.write(f"{len(waiting)} runs wait for hands.")
