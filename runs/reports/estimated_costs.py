"""What past runs tell of the next one's cost and time: their mean, the cheapest and the dearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from runs.models import Run

NO_PRICE = "the model has no price"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a purse would hold: None with the reason where past runs do not tell.

    `low` and `high` are what the cheapest and the dearest of these runs would come to.
    """

    usd: Decimal | None
    low: Decimal | None = None
    high: Decimal | None = None
    reason: str = ""


def cost(
    runs: Sequence[Run], purse: str, amounts: Mapping[int, Decimal | int], wanted: Decimal | int
) -> Cost:
    """Return what as much as is wanted costs at the price of past runs, which used these amounts."""
    known = [run for run in runs if _knows_cost(run, purse)]
    if not known:
        return Cost(None, reason=NO_PRICE)
    spent = {run.pk: getattr(run, f"{purse}_cost_usd") for run in known}
    each = [spent[run.pk] * wanted / amounts[run.pk] for run in known]
    mean = sum(spent.values(), Decimal(0)) * wanted / sum(amounts[run.pk] for run in known)
    return Cost(mean, min(each), max(each))


def _knows_cost(run: Run, purse: str) -> bool:
    """Tell whether a run's purse had a price; what costs nothing has one of 0."""
    first = getattr(run, f"first_{purse}_cost")
    return first is not None or getattr(run, f"{purse}_cost_usd") > 0


def duration_of(runs: Sequence[Run], executions: int, concurrency: int) -> float | None:
    """Return milliseconds: the hands' time an execution took, shared by as many hands as asked for."""
    timed = [
        (worked_ms, run)
        for run in runs
        if run.finished_at and (worked_ms := run.worked_ms(now=run.finished_at))
    ]
    if not timed:
        return None
    busy_ms = sum(worked_ms * min(run.concurrency, run.done_count) for worked_ms, run in timed)
    each_ms = busy_ms / sum(run.done_count for _, run in timed)
    hands = max(min(concurrency, executions), 1)
    return each_ms * executions / hands
