"""Take results to work on, keep them while working, and give them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, QuerySet

from runs.models import ACTIVE_RUN_STATUSES, Case, Hand, Result, ResultStatus, Run, RunStatus

# A hand renews its leases every few seconds; one that has not for so long is taken for dead.
LEASE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Claim:
    """One result held under a lease: `attempt` and `generation` are what a record must still match."""

    result_id: int
    case_id: int
    attempt: int
    generation: int
    keeps_output: bool
    retry_paths: tuple[str, ...] | None
    case: Case


RELEASED: dict[str, Any] = {
    "status": ResultStatus.PENDING,
    "lease_token": "",
    "lease_until": None,
    "started_at": None,
}
CLAIM_COLUMNS = ("id", "case_id", "attempt", "generation", "keeps_output", "retry_paths")


def begin_run(run_id: int, *, now: datetime) -> None:
    """Move a queued run to running; changes nothing when another hand was first."""
    Run.objects.filter(id=run_id, status=RunStatus.QUEUED).update(
        status=RunStatus.RUNNING, started_at=now
    )


def claim_results(run_id: int, *, token: str, most: int, now: datetime) -> list[Claim]:
    """Lease up to `most` waiting results of a run to the holder of the token, in suite order."""
    with transaction.atomic():
        rows = _lease_rows(run_id, token=token, most=most, now=now)
    cases = Case.objects.in_bulk({row["case_id"] for row in rows})
    return [_claim(row, cases[row["case_id"]]) for row in rows]


def _lease_rows(run_id: int, *, token: str, most: int, now: datetime) -> list[dict[str, Any]]:
    active = Run.objects.filter(id=run_id, status__in=ACTIVE_RUN_STATUSES)
    rows = list(
        Result.objects.filter(Exists(active), run_id=run_id, status=ResultStatus.PENDING)
        .select_for_update(skip_locked=True)
        .order_by("position", "id")
        .values(*CLAIM_COLUMNS)[:most]
    )
    Result.objects.filter(id__in=[row["id"] for row in rows], status=ResultStatus.PENDING).update(
        status=ResultStatus.RUNNING,
        attempt=F("attempt") + 1,
        lease_token=token,
        lease_until=now + LEASE,
        started_at=now,
    )
    return rows


def _claim(row: dict[str, Any], case: Case) -> Claim:
    paths = row["retry_paths"]
    return Claim(
        result_id=row["id"],
        case_id=row["case_id"],
        attempt=row["attempt"] + 1,
        generation=row["generation"],
        keeps_output=row["keeps_output"],
        retry_paths=None if paths is None else tuple(paths),
        case=case,
    )


def held_results(run_id: int, token: str) -> QuerySet[Result]:
    """Return the results of a run that are leased to the holder of the token."""
    return Result.objects.filter(run_id=run_id, status=ResultStatus.RUNNING, lease_token=token)


def renew_leases(
    run_id: int, token: str, result_ids: Sequence[int], *, in_flight: int, now: datetime
) -> None:
    """Push the end of the leases on what the hand knows it holds, and show that the hand is alive."""
    with transaction.atomic():
        Run.objects.hold(run_id)
        held_results(run_id, token).filter(id__in=result_ids).update(lease_until=now + LEASE)
        Hand.objects.filter(token=token).update(heartbeat_at=now, in_flight=in_flight)


def release_results(run_id: int, token: str, result_ids: Sequence[int]) -> None:
    """Give back results that were not carried out, for other hands to claim."""
    with transaction.atomic():
        Run.objects.hold(run_id)
        held_results(run_id, token).filter(id__in=result_ids).update(**RELEASED)
