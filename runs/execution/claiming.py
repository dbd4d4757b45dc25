"""Take results to work on, keep them while working, and give them back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, QuerySet

from runs.execution.processes import process_name
from runs.models import ACTIVE_RUN_STATUSES, Case, Hand, Result, ResultStatus, Run, RunStatus
from runs.models.clock import LEASE, database_now


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


def claim_results(
    run_id: int, *, token: str, most: int, now: datetime, owner_id: str = ""
) -> list[Claim]:
    """Lease up to `most` waiting results of a run to the holder of the token, in suite order.

    None of them when the run is over or belongs to another owner; the workers' id is "".
    """
    owned = Run.objects.filter(id=run_id, status__in=ACTIVE_RUN_STATUSES, owner_id=owner_id)
    with transaction.atomic():
        rows = _lease_rows(run_id, owned, token=token, most=most, now=now)
    cases = Case.objects.in_bulk({row["case_id"] for row in rows})
    return [_claim(row, cases[row["case_id"]]) for row in rows]


def _lease_rows(
    run_id: int, owned: QuerySet[Run], *, token: str, most: int, now: datetime
) -> list[dict[str, Any]]:
    rows = list(
        Result.objects.filter(Exists(owned), run_id=run_id, status=ResultStatus.PENDING)
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
    run_id: int, token: str, result_ids: Collection[int], *, under_way: int | None
) -> set[int]:
    """Push the end of those leases the hands still hold and return them; show that the hands are alive.

    Hands that carry nothing out any more are not shown: `under_way` is None.
    """
    now = database_now()
    with transaction.atomic():
        Run.objects.hold(run_id)
        held = held_results(run_id, token).filter(id__in=result_ids)
        still = set(held.values_list("id", flat=True))
        held.update(lease_until=now + LEASE)
        if under_way is not None:
            show_hand(run_id, token, under_way=under_way, now=now)
    return still


def show_hand(run_id: int, token: str, *, under_way: int, now: datetime) -> None:
    """Show the pair of hands to everybody, again if somebody took it for dead meanwhile."""
    Hand.objects.update_or_create(
        token=token,
        defaults={"heartbeat_at": now, "in_flight": under_way},
        create_defaults={
            **{"run_id": run_id, "worker": process_name(), "started_at": now},
            **{"heartbeat_at": now, "in_flight": under_way},
        },
    )


def hide_hand(token: str) -> None:
    """Show the pair of hands no more, so that others are called in its place."""
    Hand.objects.filter(token=token).delete()


def release_held(run_id: int, token: str, *, but: Collection[int] = ()) -> None:
    """Give back what is leased under the token and was not carried out, for other hands to claim."""
    with transaction.atomic():
        Run.objects.hold(run_id)
        held_results(run_id, token).exclude(id__in=but).update(**RELEASED)
