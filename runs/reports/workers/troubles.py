"""What went wrong last: errors of workers, lost hands, and runs that failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from runs.models import Run, RunEvent, RunStatus
from runs.reports.workers.crews import Crew
from runs.reports.workers.reading import RunLink, link_to, without_passwords

RECENT = timedelta(days=1)
MOST_TROUBLES = 8
LOST_HANDS = ("worker_lost", "hands_crashed")
LONGEST = 400


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that went wrong; `where` is the worker, or "" when it is about a run."""

    at: datetime
    text: str
    run: RunLink | None = None
    where: str = ""


def troubles_of(crews: Iterable[Crew], *, now: datetime) -> tuple[Trouble, ...]:
    """Return the newest troubles of the last day, in two queries."""
    found = [*_of_workers(crews, now), *_of_hands(now), *_of_runs(now)]
    return tuple(sorted(found, key=lambda one: one.at, reverse=True)[:MOST_TROUBLES])


def _of_workers(crews: Iterable[Crew], now: datetime) -> list[Trouble]:
    return [
        Trouble(crew.last_error_at, _cut(crew.last_error), where=f"{crew.host} {crew.pid}")
        for crew in crews
        if crew.last_error and crew.last_error_at and crew.last_error_at >= now - RECENT
    ]


def _of_hands(now: datetime) -> list[Trouble]:
    events = RunEvent.objects.filter(kind__in=LOST_HANDS, at__gte=now - RECENT)
    columns = ("at", "text", "run__number", "run__suite__slug", "run__suite__title")
    newest = events.select_related("run__suite").only(*columns).order_by("-id")
    return [
        Trouble(event.at, _cut(event.text), run=link_to(event.run))
        for event in newest[:MOST_TROUBLES]
    ]


def _of_runs(now: datetime) -> list[Trouble]:
    failed = Run.objects.filter(status=RunStatus.FAILED, finished_at__gte=now - RECENT)
    columns = ("finished_at", "status_reason", "number", "suite__slug", "suite__title")
    newest = failed.select_related("suite").only(*columns).order_by("-finished_at")
    return [
        Trouble(run.finished_at, _cut(f"The run failed. {run.status_reason}"), run=link_to(run))
        for run in newest[:MOST_TROUBLES]
        if run.finished_at
    ]


def _cut(text: str) -> str:
    text = without_passwords(text.strip())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
