"""What went wrong in a worker: kept where people look, and counted against a run that brings hands down."""

from __future__ import annotations

from runs.execution.database import is_away
from runs.execution.processes import process_name
from runs.models import Run, RunEvent, WorkerProcess
from runs.models.clock import database_now

CRASHED = "hands_crashed"
GOING_ON = ("resume", "retry")
MOST_CRASHES = 3
LONGEST_REASON = 400


def note_error(error: BaseException) -> str:
    """Keep the error as this worker's last one, unless nothing can be kept now; returns it in words."""
    reason = in_words(error)
    if is_away(first_of(error)):
        return reason
    WorkerProcess.objects.filter(name=process_name()).update(
        last_error=reason, last_error_at=database_now()
    )
    return reason


def note_crash(run_id: int, reason: str) -> bool:
    """Tell the readers of a run that hands broke off.

    True when they did so for the third time at the same place since somebody last let the run go on.
    """
    done = Run.objects.values_list("done_count", flat=True).get(id=run_id)
    place = f"A worker broke off after {done} results: "
    events = RunEvent.objects.filter(run_id=run_id)
    events.create(run_id=run_id, kind=CRASHED, text=place + reason)
    latest = events.filter(kind__in=GOING_ON).order_by("-id").values_list("id", flat=True).first()
    crashes = events.filter(kind=CRASHED, text__startswith=place, id__gt=latest or 0)
    return crashes.count() >= MOST_CRASHES


def in_words(error: BaseException) -> str:
    """Return kind and text of an error."""
    error = first_of(error)
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]


def first_of(error: BaseException) -> BaseException:
    """Return the error itself, or the first of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
