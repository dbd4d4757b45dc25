"""Every outcome a result has had: what it is now, and what each earlier attempt came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Count

from runs.models import Attempt, Result, Retry
from runs.reports.result_neighbours import mark_of
from runs.summary import total_of

# Which try of which generation.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One outcome: what it came to, what it cost, and who asked for it.

    `cost_usd` is None where nothing is known; `retry` is the request it answers, None of the first.
    """

    name: str
    is_current: bool
    state: str
    score: float | None
    reason: str
    cost_usd: Decimal | None
    calls: int
    at: datetime | None
    retry: Retry | None


def result_attempts(result: Result) -> tuple[AttemptRow, ...]:
    """Return all outcomes of a result, newest first; empty when there was only one."""
    earlier = list(result.attempts.select_related("retry"))
    if not earlier:
        return ()
    calls = _calls(result)
    # What made way for a retry was its generation's last; the retry asked for the next one.
    asked = {one.generation + 1: one.retry for one in earlier if one.retry}
    rows = [_earlier(one, calls, asked) for one in earlier]
    return (_current(result, earlier, calls, asked), *reversed(rows))


def name_of_try(generation: int, attempt: int) -> str:
    """Name a try the way pages and lists of calls do: `first run`, `retry 2, attempt 3`."""
    name = f"retry {generation - 1}" if generation > 1 else "first run"
    return f"{name}, attempt {attempt}" if attempt > 1 else name


def _calls(result: Result) -> Mapping[Place, int]:
    rows = result.model_calls.order_by().values_list("generation", "attempt")
    return {(row[0], row[1]): row[2] for row in rows.annotate(total=Count("pk"))}


def _earlier(
    one: Attempt, calls: Mapping[Place, int], asked: Mapping[int, Retry | None]
) -> AttemptRow:
    states = {"skipped": "cancelled"}
    return AttemptRow(
        name=name_of_try(one.generation, one.attempt),
        is_current=False,
        state=one.verdict or states.get(one.status, one.status),
        score=one.score,
        reason=one.reason,
        cost_usd=total_of((one.run_cost_usd, one.evaluation_cost_usd)),
        calls=calls.get((one.generation, one.attempt), 0),
        at=one.ended_at,
        retry=asked.get(one.generation),
    )


def _current(
    result: Result,
    earlier: Sequence[Attempt],
    calls: Mapping[Place, int],
    asked: Mapping[int, Retry | None],
) -> AttemptRow:
    spent = total_of((result.run_cost_usd, result.evaluation_cost_usd))
    before = total_of(
        cost for one in earlier for cost in (one.run_cost_usd, one.evaluation_cost_usd)
    )
    return AttemptRow(
        name=name_of_try(result.generation, result.attempt),
        is_current=True,
        state=mark_of(result),
        score=result.score,
        reason=result.error or result.decided_by,
        cost_usd=None if spent is None else spent - (before or Decimal(0)),
        calls=calls.get((result.generation, result.attempt), 0),
        at=result.finished_at,
        retry=asked.get(result.generation),
    )
