"""Queue work by name: nothing above the tasks knows what carries them out."""

from __future__ import annotations

import logging

from celery import current_app
from kombu.exceptions import OperationalError

from runs.models import Run, WorkerProcess
from runs.models.clock import database_now

logger = logging.getLogger(__name__)

WORK_ON_RUN = "runs.work_on_run"
SUMMARISE_RUN = "runs.summarise_run"
RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1}


def queue_hands(run: Run) -> None:
    """Ask for as many hands as there are workers, and no more than the run can occupy."""
    alive = WorkerProcess.objects.alive(now=database_now()).count()
    useful = -(-run.execution_count // max(1, run.concurrency))
    for _ in range(max(1, min(alive, useful))):
        queue(WORK_ON_RUN, run.pk)


def queue(task: str, run_id: int) -> None:
    """Queue a task; a broker that is away is no harm, the next sweep finds the work."""
    try:
        current_app.send_task(task, kwargs={"run_id": run_id}, retry_policy=RETRY_POLICY)
    except OperationalError as error:
        logger.warning("%s for run %s waits for the next sweep: %s", task, run_id, error)
