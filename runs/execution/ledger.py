"""The ledger: whether the next call is allowed, the record of every call, and its cost."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from evaluators.model_calls.calls import CallRecord, reply_version
from evaluators.model_calls.models import ModelSpec
from evaluators.models import ZERO_USD, LanguageModel
from runs.execution.claims import Claim, Leases
from runs.execution.database import DatabaseThread
from runs.execution.loading import RunWork
from runs.models.database import add_to_rows, insert_rows
from runs.models.jobs import ModelJob
from runs.models.results import ANSWERED, MAX_VERSION_LENGTH, CallPurpose, ModelCall, Result
from runs.models.runs import Run

CALL_COLUMNS = (
    *("purpose", "evaluator_path", "sample", "round", "repair", "model_id", "model_name"),
    *("status", "http_status", "error", "request_hash", "input_tokens", "output_tokens"),
    *("cached_tokens", "price_version", "cost_usd", "latency_ms", "is_cached", "version"),
    *("created_at", "request", "reply"),
)
COLUMNS = ("run_id", "result_id", "generation", "attempt", *CALL_COLUMNS)
COST_COLUMNS = {
    CallPurpose.TARGET.value: "run_cost_usd",
    CallPurpose.EVALUATION.value: "evaluation_cost_usd",
}


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One call, and the claim that it belongs to."""

    claim: Claim
    record: CallRecord


def write_calls(run: Run, work: RunWork, entries: Sequence[LedgerEntry]) -> None:
    """Insert the calls and add their cost to their results and to the run, even for lost results.

    The caller holds the run's row in a transaction and saves it.
    """
    if not entries:
        return
    present = _present_models(work)
    insert_rows(ModelCall, COLUMNS, (_row(work, entry, present) for entry in entries))
    for purpose, column in COST_COLUMNS.items():
        costs: dict[int, Decimal] = defaultdict(Decimal)
        for entry in entries:
            if entry.record.key.purpose == purpose and entry.record.cost_usd is not None:
                costs[entry.claim.result_id] += entry.record.cost_usd
        add_costs(run, column, costs)


def add_costs(run: Run, column: str, costs: Mapping[int, Decimal]) -> None:
    """Add what results cost to one of their two cost columns, and the sum to that of the run, unsaved."""
    add_to_rows(Result, column, ((usd, result_id) for result_id, usd in costs.items()))
    setattr(run, column, sum(costs.values(), getattr(run, column)))


def missing_entries(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Return the entries that the ledger lacks: a commit may have worked although its answer was lost."""
    stored = set(
        ModelCall.objects.filter(
            result_id__in={entry.claim.result_id for entry in entries}
        ).values_list("result_id", "request_hash", "created_at")
    )
    return [
        entry
        for entry in entries
        if (entry.claim.result_id, entry.record.request_hash, entry.record.created_at) not in stored
    ]


def spent_usd(records: Iterable[CallRecord]) -> Decimal:
    """Return the known cost of the calls."""
    return sum((record.cost_usd or ZERO_USD for record in records), ZERO_USD)


def unpriced_model(record: CallRecord, models: Mapping[str, ModelSpec]) -> str:
    """Return the name of the model that gave an answer of unknown cost, "" where there is none.

    Such a call spends money that no budget counts. Agents say themselves what they cost, if anything.
    """
    spec = models.get(record.model)
    is_counted = record.cost_usd is not None or record.status.value not in ANSWERED
    if spec is None or is_counted or (spec.prices and spec.prices.is_free):
        return ""
    return spec.name or spec.slug


def unlimited_reason(model: str) -> str:
    """Return why a budget cannot limit what a model costs."""
    return (
        f"What a call of {model} costs is not known, as its server reported no tokens or it has no prices, so the "
        "budget cannot limit it. Correct that, or start without a budget."
    )


def write_job_calls(job: ModelJob, work: RunWork, calls: Sequence[tuple[int, CallRecord]]) -> None:
    """Insert calls of a job, each with its step."""
    present = _present_models(work)
    insert_rows(
        ModelCall,
        ("job_id", "generation", "attempt", *CALL_COLUMNS),
        (
            (job.pk, step, 1, *_call_columns(work, record, job.purpose, present))
            for step, record in calls
        ),
    )


def _present_models(work: RunWork) -> Mapping[str, int]:
    """Return the ids of the models of the work by slug, without those that were deleted since it was loaded."""
    there = set(
        LanguageModel.objects.filter(pk__in=work.model_ids.values()).values_list("pk", flat=True)
    )
    return {slug: pk for slug, pk in work.model_ids.items() if pk in there}


def _row(work: RunWork, entry: LedgerEntry, present: Mapping[str, int]) -> tuple[object, ...]:
    claim, record, key = entry.claim, entry.record, entry.record.key
    is_measuring = work.measures_judge and key.purpose == CallPurpose.EVALUATION
    purpose = CallPurpose.MEASUREMENT.value if is_measuring else key.purpose
    return (
        *(work.run_id, claim.result_id, claim.generation, claim.attempt),
        *_call_columns(work, record, purpose, present),
    )


def _call_columns(
    work: RunWork, record: CallRecord, purpose: str, present: Mapping[str, int]
) -> tuple[object, ...]:
    key, spec = record.key, work.models.get(record.model)
    is_target = key.purpose == CallPurpose.TARGET
    return (
        *(purpose, key.evaluator_path, key.sample, key.round, key.repair),
        *(present.get(record.model), (spec.name if spec else "") or record.model),
        *(record.status.value, record.http_status, record.error, record.request_hash),
        *(record.input_tokens, record.output_tokens, record.cached_tokens, record.price_version),
        *(record.cost_usd, record.latency_ms, record.is_cached),
        "" if is_target else reply_version(record.reply)[:MAX_VERSION_LENGTH],
        *(record.created_at, record.request, record.reply),
    )


@dataclass(slots=True)
class Budget:
    """The budget of a run, its spending, and what this worker has reserved for executions in flight.

    `booked` is the sum of all workers in the ledger when it was last read. `unbooked` is what this worker
    has spent since and not written yet, `written` all that it has booked. `granted` is what it may spend
    beyond `booked`: no other worker spends that (see `agree_on_money`). `unpriced` names a model of which an answer
    had no known cost: the budget ends with it, because it could not be kept.

    An execution begins only when the grant covers the `dearest` one so far, so that those in flight together
    stay within the budget. Nobody knows what the first costs, so it has the whole grant to itself.
    """

    cap: Decimal | None
    booked: Decimal = ZERO_USD
    unbooked: Decimal = ZERO_USD
    granted: Decimal = ZERO_USD
    written: Decimal = ZERO_USD
    dearest: Decimal | None = None
    was_reached: bool = False
    unpriced: str = ""
    # What each execution in flight may still cost, and has cost, by result.
    reserved: dict[int, Decimal] = field(default_factory=dict)
    costs: dict[int, Decimal] = field(default_factory=dict)

    @property
    def used(self) -> Decimal:
        """Return the part of the grant that is spent or reserved."""
        return self.unbooked + sum(self.reserved.values())

    def reserve(self, result_id: int) -> bool:
        """Reserve money for an execution; False where the grant does not cover it."""
        left = self.granted - self.used
        if self.cap is not None and self.dearest is None:
            has_room, amount = left > 0 and not self.reserved, left
        else:
            amount = self.dearest or ZERO_USD
            has_room = self.cap is None or amount <= left
        if has_room:
            self.reserved[result_id] = amount
        return has_room

    def spend(self, result_id: int, usd: Decimal) -> None:
        """Note a cost that is not booked yet, out of what its execution reserved."""
        self.unbooked += usd
        self.costs[result_id] = self.costs.get(result_id, ZERO_USD) + usd
        if result_id in self.reserved:
            self.reserved[result_id] = max(self.reserved[result_id] - usd, ZERO_USD)

    def change_cap(self, cap: Decimal | None) -> None:
        """Follow a budget that was changed while the run is running: what may begin has to be granted anew."""
        if cap != self.cap:
            self.cap, self.granted = cap, self.used

    def book(self, usd: Decimal) -> None:
        """Note that a cost is written; it is no longer a part of the grant."""
        self.unbooked -= usd
        self.granted -= usd
        self.written += usd

    def release(self, result_id: int, *, is_example: bool) -> None:
        """Give back what an execution did not spend; its cost may be an example of what others cost."""
        self.reserved.pop(result_id, None)
        cost = self.costs.pop(result_id, ZERO_USD)
        if is_example:
            self.dearest = max(self.dearest or ZERO_USD, cost)

    @property
    def is_used_up(self) -> bool:
        """Tell whether the budget leaves no money for another call."""
        if self.cap is None:
            return False
        return bool(self.unpriced) or self.booked + self.unbooked >= self.cap

    def is_spent(self) -> bool:
        """Tell whether a call must be refused, and remember the refusal."""
        self.was_reached = self.was_reached or self.is_used_up
        return self.was_reached

    @property
    def covers_another(self) -> bool:
        """Tell whether one more result as dear as any so far stays within the budget."""
        more = self.dearest or ZERO_USD
        return self.cap is None or not (self.is_used_up or self.booked + more > self.cap)

    def describe(self) -> str:
        """Return cap and spending in words, or why nobody knows the spending."""
        if self.unpriced:
            return unlimited_reason(self.unpriced)
        cap = f"${self.cap.normalize():f}" if self.cap is not None else "no limit"
        spent = (self.booked + self.unbooked).normalize()
        words = f"${spent:f} of {cap} is spent"
        if self.dearest and not self.is_used_up:
            return f"{words}, and one more result may cost ${self.dearest.normalize():f}."
        return f"{words}."


class CallRefusedError(Exception):
    """The call was not made; its execution is released without a record."""


class Admission:
    """Allows the calls of one worker while they are useful.

    A call waits while the database is away or too much is unwritten, because its cost could not be
    recorded. It is refused once the run is over for this worker, when another worker has
    taken over its result, and when the budget is spent.
    """

    def __init__(
        self, leases: Leases, budget: Budget, database: DatabaseThread, room: asyncio.Event
    ) -> None:
        """Allow calls."""
        # The calls in flight by result.
        self.in_flight: Counter[int] = Counter()
        self.idle = asyncio.Event()
        self.idle.set()
        self._leases = leases
        self._budget = budget
        self._database = database
        self._room = room
        self._closed = ""

    def close(self, reason: str) -> None:
        """Refuse every call from now on; those in flight continue."""
        self._closed = reason

    async def admit(self, result_id: int) -> None:
        """Wait until the call is allowed; raises CallRefusedError."""
        await self._database.is_there.wait()
        await self._room.wait()
        is_held = await self._leases.holds(result_id)
        if self._closed:
            raise CallRefusedError(self._closed)
        if not is_held:
            raise CallRefusedError("Another worker has taken the result over.")
        if self._budget.is_spent():
            raise CallRefusedError(self._budget.describe())

    def begin(self, result_id: int) -> None:
        """Count a call as in flight."""
        self.in_flight[result_id] += 1
        self.idle.clear()

    def end(self, result_id: int) -> None:
        """Count a call as over."""
        self.in_flight[result_id] -= 1
        self.in_flight += Counter()
        if not self.in_flight:
            self.idle.set()


async def admit_always() -> None:
    """Allow a call of a trial, which has no run, lease or budget."""


def count_nothing() -> None:
    """Begin a call that is not counted."""
