"""The workers of a run, and the share that each has of the run's concurrency and budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal

from django.db import transaction
from django.db.models import Sum

from evaluators.models import ZERO_USD
from evaluators.sandbox.processes import process_name
from runs.costs import dearest_usd
from runs.execution.loading import RunWork
from runs.models.database import database_now
from runs.models.runs import Run, RunWorker

NANO_USD = Decimal("0.000000001")


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
    the worker has little left to execute, and 0 when it only awaits replies. Of a deleted run nothing is
    reserved.
    """
    share, is_stored = _share(run_id, token, concurrency, wanted, in_flight)
    if is_stored:
        return share
    with transaction.atomic():
        if Run.objects.hold_if_there(run_id) is None:
            return Share(even=0, reserved=in_flight)
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


@dataclass(frozen=True, slots=True)
class Grant:
    """What a worker may spend of a run's budget, beyond the `booked` spending of all workers.

    `others` is what the other workers may spend. `dearest` is the most that one execution has cost, None if
    none has ended.
    """

    granted: Decimal
    booked: Decimal
    others: Decimal
    dearest: Decimal | None


def grant_money(free: Decimal, *, needed: Decimal, wanted: Decimal) -> Decimal:
    """Return how much of the free money a worker gets: nothing less than it needs, and else up to half.

    The other half is left to other workers.
    """
    if free < needed:
        return ZERO_USD
    return min(free, max(needed, min(wanted, (free / 2).quantize(NANO_USD, ROUND_DOWN))))


def agree_on_money(work: RunWork, token: str, *, used: Decimal, executions: int) -> Grant:
    """Reserve money for what the worker has `used` and for some more executions, and return the grant.

    What all workers have reserved and spent never exceeds the budget, except by executions that cost more
    than any before. While the cost of an execution is unknown, all free money is reserved for one. With
    0 executions the worker gives back what it has not used. A worker that gets nothing notes that the run is
    short of money, and the others give back what they do not need when they look at the run. Nobody reserves
    anything of a deleted run.
    """
    with transaction.atomic():
        run = Run.objects.hold_if_there(work.run_id)
        if run is None:
            return Grant(used, ZERO_USD, ZERO_USD, None)
        dearest = _dearest_usd(run, is_replayed=work.is_replayed)
        booked = run.evaluation_cost_usd + (ZERO_USD if work.is_replayed else run.run_cost_usd)
        workers = RunWorker.objects.filter(run_id=work.run_id)
        others: Decimal = (
            workers.exclude(token=token).aggregate(usd=Sum("reserved_usd"))["usd"] or ZERO_USD
        )
        free = max((run.budget_usd or ZERO_USD) - booked - others - used, ZERO_USD)
        more = ZERO_USD
        if executions and dearest is None:
            more = free
        elif executions and dearest is not None:
            more = grant_money(free, needed=dearest, wanted=dearest * executions)
        workers.filter(token=token).update(reserved_usd=used + more)
        is_short = bool(executions and others) and not more
        if executions and is_short != run.is_short_of_money:
            Run.objects.filter(id=run.pk).update(is_short_of_money=is_short)
    return Grant(used + more, booked, others, dearest)


def _dearest_usd(run: Run, *, is_replayed: bool) -> Decimal | None:
    """Return the most that one result has cost; results that ended before the run was resumed are read once."""
    dearest: Decimal | None = run.dearest_usd
    if dearest is None and run.done_count:
        dearest = dearest_usd(run.pk, is_replayed=is_replayed)
        Run.objects.filter(id=run.pk).update(dearest_usd=dearest)
    return dearest


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
