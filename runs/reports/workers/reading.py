"""What the database says at one moment of workers, their hands, what they hold and what is to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.urls import reverse

from runs.models import (
    ACTIVE_RUN_STATUSES,
    Hand,
    Result,
    ResultStatus,
    Run,
    RunEvent,
    WorkerProcess,
)
from runs.models.clock import LEASE

RUN_COLUMNS = (
    *("number", "status", "owner", "heartbeat_at", "created_at", "target_name"),
    *("execution_count", "done_count", "concurrency", "suite__slug", "suite__title"),
)
HAND_COLUMNS = (
    *("token", "worker", "started_at", "heartbeat_at", "in_flight"),
    *("run__number", "run__owner", "run__suite__slug", "run__suite__title"),
)
QUEUED_AGAIN = ("resume", "retry")
LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+@")


@dataclass(frozen=True, slots=True)
class RunLink:
    """A run as this page names it."""

    number: int
    suite_title: str
    url: str


@dataclass(frozen=True, slots=True)
class Held:
    """Results under the lease of one pair of hands, and when the first of those leases ends."""

    token: str
    run_id: int
    count: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything read at `now`; `runs` are the active ones, oldest first.

    `waiting` counts the results nobody holds, by run, as `links` are.
    """

    now: datetime
    workers: tuple[WorkerProcess, ...]
    hands: tuple[Hand, ...]
    held: tuple[Held, ...]
    waiting: Mapping[int, int]
    runs: tuple[Run, ...]
    links: Mapping[int, RunLink]

    def is_alive(self, heartbeat_at: datetime | None) -> bool:
        """Tell whether a sign of life is young."""
        return heartbeat_at is not None and heartbeat_at >= self.now - LEASE

    def since_ms(self, then: datetime) -> float:
        """Return how long ago a time is; 0 for the future."""
        return max(0.0, (self.now - then).total_seconds() * 1000)

    def until_ms(self, then: datetime) -> float:
        """Return how far off a time is; 0 for the past."""
        return max(0.0, (then - self.now).total_seconds() * 1000)


def read(now: datetime) -> Readings:
    """Return the readings in five queries, however many rows there are."""
    hands, runs = _hands(), _runs()
    named = {run.pk: run for run in (*runs, *(hand.run for hand in hands))}
    return Readings(
        now=now,
        workers=tuple(WorkerProcess.objects.order_by("host", "pid", "id")),
        hands=tuple(hands),
        held=tuple(_held()),
        waiting=_waiting(run.pk for run in runs),
        runs=tuple(runs),
        links={pk: link_to(run) for pk, run in named.items()},
    )


def link_to(run: Run) -> RunLink:
    """Return how a run is named, and where it is."""
    place = {"slug": run.suite.slug, "number": run.number}
    return RunLink(run.number, run.suite.title, reverse("runs:run", kwargs=place))


def without_passwords(text: str) -> str:
    """Return the text without what stands before the host in addresses."""
    return LOGIN_IN_ADDRESS.sub("…@", text)


def _hands() -> list[Hand]:
    hands = Hand.objects.select_related("run__suite").only(*HAND_COLUMNS)
    return list(hands.order_by("run_id", "started_at", "id"))


def _held() -> list[Held]:
    running = Result.objects.filter(status=ResultStatus.RUNNING, lease_until__isnull=False)
    rows = running.order_by().values_list("lease_token", "run_id")
    found = rows.annotate(total=Count("id"), first=Min("lease_until"))
    return [Held(*row) for row in found]


def _waiting(run_ids: Iterable[int]) -> Mapping[int, int]:
    # Not by the run's counters: what was cancelled before a retry waits for nobody.
    pending = Result.objects.filter(run_id__in=run_ids, status=ResultStatus.PENDING).order_by()
    return dict(pending.values_list("run_id").annotate(total=Count("id")))


def _runs() -> list[Run]:
    """Return active runs; `queued_at` is when they were started, or last resumed or retried."""
    again = RunEvent.objects.filter(run=OuterRef("pk"), kind__in=QUEUED_AGAIN).order_by("-id")
    queued_at = Coalesce(Subquery(again.values("at")[:1]), "created_at")
    active = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES).select_related("suite")
    light = active.only(*RUN_COLUMNS).annotate(queued_at=queued_at)
    return list(light.order_by("queued_at", "pk"))
