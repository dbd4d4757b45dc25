"""Write down how executions ended, many in one short transaction, each only while its lease holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import F

from runs.execution.claiming import held_results
from runs.execution.ended_rows import TARGET_STAGE, Ended, write_outputs, write_results
from runs.execution.ledger import Entry, add_costs, missing_entries, write_calls
from runs.execution.loading import RunWork
from runs.models import Result, ResultStatus, Run
from runs.models.clock import database_now

STATE_FIELDS = (
    *("status", "started_at", "execution_count", "done_count", "error_count"),
    *("run_cost_usd", "evaluation_cost_usd"),
)
COUNTERS = ("pass", "borderline", "fail", "error")
NUMBER = re.compile(r"(?<![\w.])(?P<status>[45]\d\d)\b|\d+")
BREAKER = 8


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run is, as its hands need to know it.

    `stale` are the results whose records were refused; `broken_target` is the error in which the
    first executions all ended.
    """

    status: str
    started_at: datetime | None
    execution_count: int
    done_count: int
    error_count: int
    run_cost_usd: Decimal
    evaluation_cost_usd: Decimal
    stale: tuple[int, ...] = ()
    broken_target: str = ""


def write_down(
    work: RunWork,
    token: str,
    *,
    entries: Sequence[Entry],
    ended: Sequence[Ended],
    is_repeated: bool = False,
) -> RunState:
    """Write calls and results in one transaction, and move the run's counters with them.

    The calls are written whatever became of their results: they are paid. A result whose lease is
    not the token's any more, or of another attempt, is refused. `is_repeated` tells that the same
    was tried before without learning whether it was written.
    """
    with transaction.atomic():
        run = Run.objects.hold(work.run_id)
        write_calls(work, missing_entries(entries) if is_repeated else entries)
        if entries and not run.is_active:
            # Calls that were under way when the run ended: its figures come anew with their cost.
            Run.objects.filter(id=run.pk).update(summary=None)
        accepted = _still_held(work, token, ended)
        write_results(accepted, now=database_now())
        write_outputs(accepted)
        _count(work, accepted)
        run.refresh_from_db(fields=STATE_FIELDS)
        broken = "" if work.target.replays else broken_target(run)
    held = {one.claim.result_id for one in accepted}
    stale = [one.claim.result_id for one in ended if one.claim.result_id not in held]
    return replace(_state_of(run), stale=tuple(stale), broken_target=broken)


def broken_target(run: Run) -> str:
    """Return the error in which the first executions of a run all ended; "" when they did not.

    Numbers in it do not count: they are ports, ids and times. An HTTP status does.
    """
    if run.done_count < BREAKER or run.error_count < run.done_count:
        return ""
    done = Result.objects.filter(run=run, status=ResultStatus.ERROR).order_by("finished_at", "id")
    first = list(done.values_list("error_stage", "error")[:BREAKER])
    alike = {_without_numbers(error) for stage, error in first if stage == TARGET_STAGE}
    is_broken = len(alike) == 1 and all(stage == TARGET_STAGE for stage, _ in first)
    return first[0][1] if is_broken else ""


def _without_numbers(error: str) -> str:
    return NUMBER.sub(lambda found: found["status"] or "0", error)


def read_state(run_id: int) -> RunState:
    """Return how far the run is."""
    return _state_of(Run.objects.only(*STATE_FIELDS).get(id=run_id))


def _state_of(run: Run) -> RunState:
    return RunState(
        status=run.status,
        started_at=run.started_at,
        execution_count=run.execution_count,
        done_count=run.done_count,
        error_count=run.error_count,
        run_cost_usd=run.run_cost_usd,
        evaluation_cost_usd=run.evaluation_cost_usd,
    )


def _still_held(work: RunWork, token: str, ended: Sequence[Ended]) -> list[Ended]:
    if not ended:
        return []
    held = held_results(work.run_id, token).filter(id__in=[one.claim.result_id for one in ended])
    facts = set(held.select_for_update(no_key=True).values_list("id", "attempt", "generation"))
    return [
        one
        for one in ended
        if (one.claim.result_id, one.claim.attempt, one.claim.generation) in facts
    ]


def _count(work: RunWork, ended: Sequence[Ended]) -> None:
    """Move the run's counters by the results just written."""
    words: Counter[str] = Counter()
    score_sum, score_count = 0.0, 0
    for one in ended:
        decision = one.outcome.decision
        if decision is None or decision.status != "scored":
            words["error"] += 1
            continue
        if decision.verdict is not None:
            words[decision.verdict.value] += 1
        if decision.score is not None:
            score_sum, score_count = score_sum + decision.score, score_count + 1
    if ended:
        moved: dict[str, Any] = {
            f"{word}_count": F(f"{word}_count") + words[word] for word in COUNTERS
        }
        Run.objects.filter(id=work.run_id).update(
            done_count=F("done_count") + len(ended),
            score_sum=F("score_sum") + score_sum,
            score_count=F("score_count") + score_count,
            **moved,
        )
    _count_reported_costs(work, ended)


def _count_reported_costs(work: RunWork, ended: Sequence[Ended]) -> None:
    """Add what targets say they cost without a call in our ledger; a replayed output costs once."""
    reported = {
        one.claim.result_id: one.outcome.output.usage.cost_usd
        for one in ended
        if one.outcome.output is not None
        and one.outcome.output.usage.cost_usd is not None
        and not one.claim.keeps_output
    }
    if work.target.uses_model or work.target.uses_agent or not reported:
        return
    if work.target.replays:
        paid = Result.objects.filter(id__in=reported, run_cost_usd__isnull=False)
        for result_id in paid.values_list("id", flat=True):
            del reported[result_id]
    add_costs(work.run_id, "run_cost_usd", reported)
