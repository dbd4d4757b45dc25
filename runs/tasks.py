"""What workers are asked to do; every task is a name, an id and one call."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from runs.execution import finishing, running


@shared_task(name="runs.work_on_run")
def work_on_run(run_id: int, **later: Any) -> None:
    """Carry out results of a run until none is left to claim."""
    running.work_on_run(run_id)


@shared_task(name="runs.summarise_run")
def summarise_run(run_id: int, **later: Any) -> None:
    """Give a run that ended early the figures it has so far."""
    finishing.summarise_ended(run_id)
