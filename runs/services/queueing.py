"""Queue work by name: nothing above the tasks knows what carries them out."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from celery import current_app

from runs.models import Run, WorkerProcess
from runs.models.clock import database_now
from runs.services.broker import broker_errors

logger = logging.getLogger(__name__)

WORK_ON_RUN = "runs.work_on_run"
SUMMARISE_RUN = "runs.summarise_run"
RESCORE_RUN = "runs.rescore_run"
# Once: a connection that broke is noticed when it is taken from the pool, and the sweep comes anyway.
RETRY_POLICY = {"max_retries": 0}
ASK_AGAIN_AFTER_S = 5.0


@dataclass(slots=True)
class Broker:
    """Until when the broker is taken to be away: each try may cost a person seconds of waiting."""

    away_until: float = 0.0


BROKER = Broker()


def queue_hands(run: Run) -> None:
    """Ask for as many hands as there are workers, and no more than the run can occupy."""
    alive = WorkerProcess.objects.alive(now=database_now()).count()
    useful = -(-run.execution_count // max(1, run.concurrency))
    for _ in range(max(1, min(alive, useful))):
        queue(WORK_ON_RUN, run.pk)


def queue(task: str, run_id: int, *, expires_s: float | None = None) -> None:
    """Queue a task; a broker that is away is no harm, the next sweep finds the work.

    One that did not answer is not asked again for five seconds. What nobody takes within
    `expires_s` seconds is dropped.
    """
    if time.monotonic() < BROKER.away_until:
        return
    try:
        current_app.send_task(
            task, kwargs={"run_id": run_id}, expires=expires_s, retry_policy=RETRY_POLICY
        )
    except broker_errors() as error:
        BROKER.away_until = time.monotonic() + ASK_AGAIN_AFTER_S
        logger.warning("%s for run %s waits for the next sweep: %s", task, run_id, error)
