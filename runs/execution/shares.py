"""The workers of a run, and the share that each has of the run's concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from evaluators.sandbox.processes import process_name
from runs.models.database import database_now
from runs.models.runs import Run, RunWorker


@dataclass(frozen=True, slots=True)
class Share:
    """How many executions of a run one of its workers may have in flight.

    `even` is its even part of the run's concurrency. `reserved` is what no other worker may use: less
    than `even` until others have finished what they have in flight, more until this worker has.
    """

    even: int
    reserved: int

    @property
    def allowed(self) -> int:
        """Return the number in flight below which the worker may start another execution."""
        return min(self.even, self.reserved)

    @property
    def is_settled(self) -> bool:
        """Tell whether the worker has its even part."""
        return self.even == self.reserved


def even_shares(total: int, wanted: Sequence[int]) -> list[int]:
    """Divide a total evenly, to nobody more than wanted; what is left over goes to the first."""
    shares = [0] * len(wanted)
    while total and (short := [place for place, most in enumerate(wanted) if shares[place] < most]):
        each = max(1, total // len(short))
        for place in short:
            more = min(each, wanted[place] - shares[place], total)
            shares[place] += more
            total -= more
    return shares


def agree_on_share(
    run_id: int, token: str, *, concurrency: int, wanted: int, in_flight: int
) -> Share:
    """Return the worker's share now, and reserve it; list the worker if it is not listed.

    The shares of all workers never exceed the run's concurrency: nobody gets what another has
    reserved, and a worker gives up only what it does not use. `wanted` is less than the concurrency when
    the worker has little left to execute.
    """
    share, is_stored = _share(run_id, token, concurrency, wanted, in_flight)
    if is_stored:
        return share
    with transaction.atomic():
        Run.objects.hold(run_id)
        share, _ = _share(run_id, token, concurrency, wanted, in_flight)
        columns = {"share": share.reserved, "wanted": wanted}
        if not RunWorker.objects.filter(token=token).update(**columns):
            now = database_now()
            register_run_worker(run_id, token, under_way=in_flight, now=now)
            RunWorker.objects.filter(token=token).update(**columns)
    return share


def _share(
    run_id: int, token: str, concurrency: int, wanted: int, in_flight: int
) -> tuple[Share, bool]:
    """Return the worker's share, and whether it is stored already."""
    rows = RunWorker.objects.filter(run_id=run_id).order_by("id")
    listed = {
        name: (share, most) for name, share, most in rows.values_list("token", "share", "wanted")
    }
    stored = listed.get(token)
    wants = {name: most for name, (_, most) in listed.items()} | {token: wanted}
    even = dict(zip(wants, even_shares(concurrency, list(wants.values())), strict=True))[token]
    free = concurrency - sum(share for name, (share, _) in listed.items() if name != token)
    reserved = max(min(even, free), in_flight)
    return Share(even, reserved), stored == (reserved, wanted)


def register_run_worker(run_id: int, token: str, *, under_way: int, now: datetime) -> None:
    """List the worker as alive, again if it was removed as dead in the meantime."""
    RunWorker.objects.update_or_create(
        token=token,
        defaults={"heartbeat_at": now, "in_flight": under_way},
        create_defaults={
            **{"run_id": run_id, "worker": process_name(), "started_at": now},
            **{"heartbeat_at": now, "in_flight": under_way},
        },
    )


def unregister_run_worker(token: str) -> None:
    """Remove the worker from the list, so that others can use its share or replace it."""
    RunWorker.objects.filter(token=token).remove(now=database_now())
