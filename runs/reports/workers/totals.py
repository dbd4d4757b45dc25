"""The four figures at the top of the page: workers, what is under way, what waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from runs.reports.workers.crews import Crew
from runs.reports.workers.work_queue import QueuedRun


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all rows, those too that the page does not list."""

    alive: int
    silent: int
    at_work: int
    is_embedded: bool
    hands: int
    runs_at_work: int
    under_way: int
    held: int
    lease_left_ms: float | None
    waiting: int
    waiting_runs: int
    oldest: datetime | None


def totals_of(crews: Sequence[Crew], queue: Sequence[QueuedRun]) -> Totals:
    """Return the sums."""
    workers = [crew for crew in crews if crew.is_worker]
    alive = [crew for crew in workers if crew.is_alive]
    hands = [hand for crew in crews for hand in crew.hands if hand.is_alive]
    leases = [hand.lease_left_ms for hand in hands if hand.lease_left_ms is not None]
    waiting = [run for run in queue if run.waiting]
    return Totals(
        alive=len(alive),
        silent=len(workers) - len(alive),
        at_work=sum(bool(crew.hands) for crew in alive),
        is_embedded=any(crew.kind == "embedded" for crew in alive),
        hands=len(hands),
        runs_at_work=sum(bool(run.hands) for run in queue),
        under_way=sum(hand.under_way or 0 for hand in hands),
        held=sum(run.held for run in queue),
        lease_left_ms=min(leases, default=None),
        waiting=sum(run.waiting for run in waiting),
        waiting_runs=len(waiting),
        oldest=min((run.since for run in waiting), default=None),
    )
