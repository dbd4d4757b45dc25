"""Runs that are made of another's stored scores: carried out by a worker, and gone on with where one died."""

from __future__ import annotations

from datetime import datetime

from runs.execution.finishing import summarise_ended
from runs.models import ACTIVE_RUN_STATUSES, Run
from runs.models.clock import LEASE
from runs.rescoring.writing import carry_out

SILENCE = 2 * LEASE


def rescore_run(run_id: int) -> bool:
    """Complete a run that scores another's results again and give it its figures; False when it is over."""
    if not carry_out(run_id):
        return False
    summarise_ended(run_id)
    return True


def abandoned_rescorings(*, now: datetime) -> list[int]:
    """Return the runs in the making at which nobody has been for two leases."""
    silent = Run.objects.filter(heartbeat_at__lt=now - SILENCE)
    return [run_id for run_id in in_the_making() if silent.filter(id=run_id).exists()]


def in_the_making() -> list[int]:
    """Return the active runs that do not have all their results yet; a started run has them at once."""
    runs = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES, source_run__isnull=False)
    return [
        run.pk for run in runs.only("execution_count") if run.results.count() < run.execution_count
    ]
