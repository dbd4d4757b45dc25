"""What is going on right now and what it has cost: the cells at the top of the home page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Count, Min, Q, Sum

from runs.models import ACTIVE_RUN_STATUSES, CallPurpose, ModelCall, Run
from runs.models.review_queue import QueueQuery
from runs.reports.purses import UNPRICED_CALLS
from runs.reports.run_list import RunRow
from runs.reports.suite_rows import has_failed_gate


@dataclass(frozen=True, slots=True)
class Today:
    """The cells above the table. Money comes from the ledger and says what has no price.

    `waiting` results wait for a reviewer, the first since `oldest`.
    """

    runs: int
    done: int
    executions: int
    left_ms: float | None
    failing: int
    judged: int
    errored: int
    errored_suites: int
    month: datetime
    run_usd: Decimal
    evaluation_usd: Decimal
    unpriced: int
    waiting: int
    oldest: datetime | None

    @property
    def share(self) -> float:
        """Return how much of the active runs is done, 0 to 1."""
        return self.done / self.executions if self.executions else 0.0

    @property
    def spent_usd(self) -> Decimal:
        """Return both purses together."""
        return self.run_usd + self.evaluation_usd


def today(latest: Sequence[RunRow], *, now: datetime) -> Today:
    """Return the cells, from the latest completed run of each suite.

    `now` is in the time zone whose month is meant.
    """
    active = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES).values_list(
        "done_count", "execution_count", "started_at", "worked_before_ms"
    )
    errors = [run.counts["error"] for run in latest if run.counts["error"]]
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spent = ModelCall.objects.filter(created_at__gte=month).aggregate(
        run=Sum("cost_usd", filter=Q(purpose=CallPurpose.TARGET)),
        evaluation=Sum("cost_usd", filter=Q(purpose=CallPurpose.EVALUATION)),
        unpriced=Count("pk", filter=UNPRICED_CALLS),
    )
    queue = QueueQuery().items().waiting().aggregate(waiting=Count("pk"), oldest=Min("created_at"))
    return Today(
        runs=len(active),
        done=sum(row[0] for row in active),
        executions=sum(row[1] for row in active),
        left_ms=max(
            (left for row in active if (left := _left(*row, now)) is not None), default=None
        ),
        failing=sum(has_failed_gate(run) for run in latest),
        judged=len(latest),
        errored=sum(errors),
        errored_suites=len(errors),
        month=month,
        run_usd=spent["run"] or Decimal(0),
        evaluation_usd=spent["evaluation"] or Decimal(0),
        unpriced=spent["unpriced"],
        **queue,
    )


def _left(
    done: int, total: int, started_at: datetime | None, worked_before_ms: int, now: datetime
) -> float | None:
    """Return how long a run has left at its speed so far, in ms; None before its first result."""
    if started_at is None or not done:
        return None
    worked_ms = worked_before_ms + max((now - started_at).total_seconds() * 1000, 0.0)
    return worked_ms / done * (total - done)
