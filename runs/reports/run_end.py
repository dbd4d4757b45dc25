"""How a run ended that ended early: why, what is kept, what is left, and how it can go on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Count, Q

from evaluators.templatetags.figures import thousands
from runs.models import ALL_ALIKE, RESUMABLE_RUN_STATUSES, ResultStatus, Run, RunStatus
from runs.models.clock import LEASE
from runs.reports.purses import budget_words, counted_usd
from runs.reports.run_blame import Blame, blame_of

CANCELLED = Q(status=ResultStatus.CANCELLED)
OF_TARGET = Q(status=ResultStatus.ERROR, error_stage="target")


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a run that did not come to its own.

    `kept` of `executions` are finished; a resume carries out those `left`, and `broken` again, which
    the broken target gave. `earlier` of those left had come to something before a retry that was
    stopped. `needs_budget` tells that a higher cap is needed first, `is_settling` that calls
    which were under way may still be booked.
    """

    status: str
    reason: str
    kept: int
    executions: int
    left: int
    earlier: int
    broken: int
    needs_budget: bool
    is_settling: bool
    budget_usd: Decimal | None
    spent_usd: Decimal
    blame: Blame | None

    @property
    def to_go(self) -> int:
        """Return how many results a resume would carry out."""
        return self.left + self.broken

    @property
    def action(self) -> str:
        """Say what a resume would do."""
        left = f"Run the {thousands(self.left)} left" if self.left else ""
        again = f"retry {thousands(self.broken)}" if self.broken else ""
        text = " and ".join(part for part in (left, again) if part)
        return text[:1].upper() + text[1:]

    @property
    def spent_words(self) -> str:
        """Say how much of the budget is spent."""
        return budget_words(self.spent_usd, self.budget_usd) if self.budget_usd is not None else ""


def run_end(run: Run, *, now: datetime) -> RunEnd | None:
    """Return how the run ended early; None while it is on and when it is completed."""
    if run.status not in RESUMABLE_RUN_STATUSES:
        return None
    counted = run.results.order_by().aggregate(
        left=Count("pk", filter=CANCELLED),
        earlier=Count("pk", filter=CANCELLED & Q(generation__gt=1)),
        broken=Count("pk", filter=OF_TARGET),
    )
    broken = counted["broken"] if run.status == RunStatus.FAILED else 0
    spent = counted_usd(run, snapshot=run.snapshot)
    return RunEnd(
        status=run.status,
        reason=run.status_reason,
        kept=run.done_count,
        executions=run.execution_count,
        left=counted["left"],
        earlier=counted["earlier"],
        broken=broken,
        needs_budget=run.budget_usd is not None and spent >= run.budget_usd,
        is_settling=run.hands.filter(heartbeat_at__gte=now - LEASE).exists(),
        budget_usd=run.budget_usd,
        spent_usd=spent,
        blame=blame_of(run, run.status_reason) if run.status_reason.startswith(ALL_ALIKE) else None,
    )
