"""Queue work by name, and ask for the state of the broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

from evaluators.broker import NotQueuedError, broker_errors, queue_task, task_app
from runs.models.database import database_now
from runs.models.runs import Run, WorkerProcess
from runs.models.temporary import Trial

if TYPE_CHECKING:
    import redis


logger = logging.getLogger(__name__)

WORK_ON_RUN = "runs.work_on_run"
SUMMARISE_RUN = "runs.summarise_run"
RESCORE_RUN = "runs.rescore_run"
REMOVE_DATA = "runs.remove_data"
APPLY_RETENTION = "runs.apply_retention"
WRITE_EXPORTS = "runs.write_exports"
WORK_ON_JOB = "runs.work_on_job"
TRY_TARGET = "runs.try_target"
TRY_EVALUATOR = "runs.try_evaluator"
# No retries: the pool notices broken connections, and the reaper queues the work anyway.
RETRY_POLICY = {"max_retries": 0}
ASK_AGAIN_AFTER_S = 5.0
ANSWER_S = 0.5


@dataclass(slots=True)
class Broker:
    """Until when the broker counts as away. Each attempt to reach it may cost a user seconds."""

    away_until: float = 0.0


BROKER = Broker()


def queue_workers(run: Run) -> None:
    """Queue one task a worker, but no more than the run can occupy."""
    alive = WorkerProcess.objects.alive(now=database_now()).count()
    useful = min(-(-run.execution_count // max(1, run.concurrency)), run.concurrency)
    for _ in range(max(1, min(alive, useful))):
        queue(WORK_ON_RUN, run.pk)


def queue(task: str, run_id: int, *, expires_s: float | None = None) -> None:
    """Queue a task. When the broker is away, the reaper finds the work later.

    A broker that did not answer is not asked again for five seconds. A task that no worker takes within
    `expires_s` seconds expires.
    """
    _send(task, {"run_id": run_id}, expires_s=expires_s)


def queue_removal(removal_id: int, *, expires_s: float | None = None) -> None:
    """Queue the removal of data, as `queue` does."""
    _send(REMOVE_DATA, {"removal_id": removal_id}, expires_s=expires_s)


def queue_retention(*, expires_s: float | None = None) -> None:
    """Queue the removal of data that are old enough, as `queue` does."""
    _send(APPLY_RETENTION, {}, expires_s=expires_s)


def queue_job(job_id: int, *, expires_s: float | None = None) -> None:
    """Queue the work on a job, as `queue` does."""
    _send(WORK_ON_JOB, {"job_id": job_id}, expires_s=expires_s)


def queue_exports(*, expires_s: float | None = None) -> None:
    """Queue the making of the exports that wait, as `queue` does."""
    _send(WRITE_EXPORTS, {}, expires_s=expires_s)


def _send(task: str, kwargs: Mapping[str, int], *, expires_s: float | None) -> None:
    if time.monotonic() < BROKER.away_until:
        return
    try:
        task_app().send_task(
            task, kwargs=dict(kwargs), expires=expires_s, retry_policy=RETRY_POLICY
        )
    except broker_errors() as error:
        BROKER.away_until = time.monotonic() + ASK_AGAIN_AFTER_S
        logger.warning("%s for %s waits for the reaper: %s", task, dict(kwargs), error)


def queue_trial(task: str, trial: Trial) -> None:
    """Queue a trial; without a broker, delete it and raise NotQueuedError."""
    try:
        queue_task(task, "The trial", {"trial_id": trial.pk})
    except NotQueuedError:
        trial.delete()
        raise


@dataclass(frozen=True, slots=True)
class BrokerState:
    """Whether the broker answers, and how many tasks wait for a worker; None if unknown."""

    answers: bool
    waiting: int | None = None


def ask_broker() -> BrokerState:
    """Return the broker's state after at most half a second; raises nothing.

    The embedded broker is in the memory of this process and always answers.
    """
    if settings.IS_EMBEDDED:
        return BrokerState(answers=True)
    unavailable: tuple[type[Exception], ...] = (*broker_errors(), ValueError)
    queue_name = task_app().conf.task_default_queue
    try:
        waiting = _client(settings.CELERY_BROKER_URL).llen(queue_name)
    except unavailable:
        return BrokerState(answers=False)
    return BrokerState(answers=True, waiting=waiting)


@cache
def _client(url: str) -> redis.Redis:
    import redis

    return redis.Redis.from_url(url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S)
