"""Write every call of a model down, and move the costs that follow from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import F

from evaluators.judging.calls import CallRecord
from evaluators.models import ZERO_USD
from runs.execution.loading import RunWork
from runs.models import CallPurpose, ModelCall, Result, Run
from runs.models.rows import add_to_rows, insert_rows

COLUMNS = (
    *("run_id", "result_id", "generation", "attempt", "purpose", "evaluator_path", "sample"),
    *("round", "repair", "model_id", "model_name", "status", "http_status", "error"),
    *("request_hash", "input_tokens", "output_tokens", "cached_tokens", "price_version"),
    *("cost_usd", "latency_ms", "is_cached", "created_at", "request", "reply"),
)
COST_COLUMNS = {
    CallPurpose.TARGET.value: "run_cost_usd",
    CallPurpose.EVALUATION.value: "evaluation_cost_usd",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One call, and the try of which result made it."""

    result_id: int
    generation: int
    attempt: int
    record: CallRecord


def write_calls(work: RunWork, entries: Sequence[Entry]) -> None:
    """Insert the calls and add their cost to their results and to the run, whoever holds the results.

    The caller holds the run's row in a transaction.
    """
    insert_rows(ModelCall, COLUMNS, (_row(work, entry) for entry in entries))
    for purpose, column in COST_COLUMNS.items():
        costs: dict[int, Decimal] = defaultdict(Decimal)
        for entry in entries:
            if entry.record.key.purpose == purpose and entry.record.cost_usd is not None:
                costs[entry.result_id] += entry.record.cost_usd
        add_costs(work.run_id, column, costs)


def add_costs(run_id: int, column: str, costs: Mapping[int, Decimal]) -> None:
    """Add what results cost to one of their purses, and the sum to the run's."""
    if not costs:
        return
    add_to_rows(Result, column, ((usd, result_id) for result_id, usd in costs.items()))
    total = sum(costs.values(), ZERO_USD)
    Run.objects.filter(id=run_id).update(**{column: F(column) + total})


def missing_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries the ledger does not hold yet: some may be there when a commit's answer was lost."""
    stored = set(
        ModelCall.objects.filter(result_id__in={entry.result_id for entry in entries}).values_list(
            "result_id", "request_hash", "created_at"
        )
    )
    return [
        entry
        for entry in entries
        if (entry.result_id, entry.record.request_hash, entry.record.created_at) not in stored
    ]


def spent_usd(records: Iterable[CallRecord]) -> Decimal:
    """Return what the calls cost as far as it is known."""
    return sum((record.cost_usd or ZERO_USD for record in records), ZERO_USD)


def _row(work: RunWork, entry: Entry) -> tuple[object, ...]:
    record, key = entry.record, entry.record.key
    spec = work.models.get(record.model)
    return (
        *(work.run_id, entry.result_id, entry.generation, entry.attempt),
        *(key.purpose, key.evaluator_path, key.sample, key.round, key.repair),
        *(work.model_ids.get(record.model), (spec.name if spec else "") or record.model),
        *(record.status.value, record.http_status, record.error, record.request_hash),
        *(record.input_tokens, record.output_tokens, record.cached_tokens, record.price_version),
        *(record.cost_usd, record.latency_ms, record.is_cached, record.created_at),
        *(record.request, record.reply),
    )
