"""Write calls and results in batches and short transactions, each result only while its lease holds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import chain
from typing import Protocol

from django.db import transaction

from evaluators.kinds._base import Output
from evaluators.model_calls.calls import CallRecord
from evaluators.models import ZERO_USD
from evaluators.scoring.decision import Decision
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Unscored, Usage, Verdict
from runs.costs import dearest_usd
from runs.engine.plan import OUTCOMES_PATH
from runs.engine.ports import UNASKED, Cause, ExecutionOutcome, TargetFailure
from runs.execution.claims import RENEW_EVERY_S, Claim, Leases, held_results, note_return
from runs.execution.database import DatabaseThread, is_temporary
from runs.execution.ledger import (
    Budget,
    LedgerEntry,
    add_costs,
    missing_entries,
    spent_usd,
    unpriced_model,
    write_calls,
)
from runs.execution.loading import RunWork
from runs.models.database import among, database_now, insert_rows, update_rows
from runs.models.results import (
    TARGET_STAGE,
    Artifact,
    PushedOutput,
    Result,
    ResultOutput,
    ResultStatus,
)
from runs.models.results import EvaluatorScore as ScoreRow
from runs.models.run_cases import RunCase
from runs.models.runs import ACTIVE_RUN_STATUSES, Run
from runs.models.search import ResultText
from runs.models.stored import SCORE_COLUMNS, metrics_score, score_rows
from runs.models.suites import FileContent
from runs.target_kinds._outputs import messages_as_json, trace_as_json, usage_as_json

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 0.05
# A killed worker pays again for the calls in flight and for those it has not written. While this many,
# or this share of the run's concurrency, are unwritten, no call is started.
MAX_UNWRITTEN_CALLS = 10
UNWRITTEN_SHARE = 0.2
BATCH = 250
MAX_UNWRITTEN_RESULTS = 500
LOOK_EVERY_S = min(1.0, RENEW_EVERY_S)
RENEW_EVERY_LOOKS = round(RENEW_EVERY_S / LOOK_EVERY_S)
BREAKER = 8
MAX_REASON_LENGTH = 300
MAX_CELL_LENGTH = 300
MAX_MARKS = 200
RECORDING_STAGE = "recording"
NUMBER = re.compile(r"(?<![\w.])(?P<status>[45]\d\d)\b|\d+")
STATE_FIELDS = (
    *("status", "started_at", "execution_count", "done_count", "error_count"),
    *("run_cost_usd", "evaluation_cost_usd", "budget_usd", "is_short_of_money"),
)
COUNTERS = (
    *("pass_count", "borderline_count", "fail_count", "error_count", "done_count"),
    *("score_sum", "score_count", "run_cost_usd", "evaluation_cost_usd", "dearest_usd"),
)
RESULT_COLUMNS = (
    *("status", "verdict", "score", "metrics_score", "decided_by", "is_forced", "error"),
    *("error_stage", "outcome_marks", "warnings", "keeps_output", "retry_paths", "lease_token"),
    *("lease_until", "finished_at", "latency_ms", "input_tokens", "output_tokens"),
)
OUTPUT_COLUMNS = ("result_id", "text", "messages", "trace", "usage", "outcomes", "decision")
ARTIFACT_COLUMNS = ("result_id", "path", "content_id")
REASONING = SCORE_COLUMNS.index("reasoning")


@dataclass(frozen=True, slots=True)
class EndedExecution:
    """An execution that ended under a claim, scored by the tree under `root`."""

    claim: Claim
    root: EvaluatorSpec
    outcome: ExecutionOutcome


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run is, for its workers.

    With `is_short_of_money` a worker waits for money of the budget that others have reserved.
    `stale` are the results whose records were refused. `broken_target` is the error in which the first
    executions all ended.
    """

    status: str
    started_at: datetime | None
    execution_count: int
    done_count: int
    error_count: int
    run_cost_usd: Decimal
    evaluation_cost_usd: Decimal
    budget_usd: Decimal | None = None
    is_short_of_money: bool = False
    stale: tuple[int, ...] = ()
    broken_target: str = ""


# Its status is none of the active ones, so the run is over for its workers.
DELETED = RunState("", None, 0, 0, 0, ZERO_USD, ZERO_USD)


class ResultWriter:
    """Collects the calls and ended executions of one worker, and writes them in batches.

    Calls are written as soon as the last writing is done; under load batches form by themselves.
    Results can be had again from their calls, so they wait for a full batch, but not longer than
    WRITE_EVERY_S.

    `room` is open while not too much is unwritten. `state` is the last known state of the run. A run that
    is over, or was resumed without this worker, makes the loop `abort`. A target that fails every
    execution alike makes it `drain`.
    """

    def __init__(
        self,
        work: RunWork,
        token: str,
        database: DatabaseThread,
        *,
        leases: Leases,
        drain: Callable[[], None],
        abort: Callable[[], None],
    ) -> None:
        """Start with nothing to write."""
        self.room = asyncio.Event()
        self.room.set()
        self.budget = Budget(work.budget_usd)
        self.state: RunState | None = None
        self._work = work
        self._token = token
        self._database = database
        self._leases = leases
        self._drain = drain
        self._abort = abort
        self._entries: list[LedgerEntry] = []
        self._max_unwritten_calls = max(
            MAX_UNWRITTEN_CALLS, round(work.concurrency * UNWRITTEN_SHARE)
        )
        self._unwritten_calls = 0
        self._ended: list[EndedExecution] = []
        self._is_due = asyncio.Event()
        self._are_results_due = False
        self._ending = asyncio.Event()

    def put_call(self, claim: Claim, record: CallRecord) -> None:
        """Take a call made under a claim."""
        self.budget.spend(claim.result_id, record.cost_usd or ZERO_USD)
        self.budget.unpriced = self.budget.unpriced or unpriced_model(record, self._work.models)
        if self._work.clock_offset:
            record = replace(record, created_at=record.created_at + self._work.clock_offset)
        self._entries.append(LedgerEntry(claim, record))
        self._unwritten_calls += 1
        self._is_due.set()
        self._open_or_close_room()

    def put(self, ended: EndedExecution) -> None:
        """Take an execution that ended."""
        self._ended.append(ended)
        if len(self._ended) >= BATCH or self._looks_broken():
            self._are_results_due = True
            self._is_due.set()
        self._open_or_close_room()

    def _open_or_close_room(self) -> None:
        has_room = self._unwritten_calls < self._max_unwritten_calls
        if has_room and len(self._ended) < MAX_UNWRITTEN_RESULTS and not self._looks_broken():
            self.room.set()
        else:
            self.room.clear()

    def _looks_broken(self) -> bool:
        """Tell whether so far nothing but target errors came in, enough of them to end the run."""
        is_first = self.state is None or self.state.done_count == self.state.error_count
        return (
            is_first
            and not self._work.is_replayed
            and len(self._ended) >= BREAKER
            and all(execution.outcome.failure is not None for execution in self._ended)
        )

    def end(self) -> None:
        """End the regular writing."""
        self._ending.set()
        self._is_due.set()

    async def write_batches(self) -> None:
        """Write calls as soon as there are any, and results when a batch is full or every WRITE_EVERY_S."""
        clock = asyncio.get_running_loop().time
        results_at = clock() + WRITE_EVERY_S
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(results_at):
                    await self._is_due.wait()
            if self._are_results_due or clock() >= results_at:
                await self.write_now()
                results_at = clock() + WRITE_EVERY_S
            else:
                await self._write([])

    async def write_now(self) -> None:
        """Write everything collected so far."""
        ended, self._ended = self._ended, []
        self._are_results_due = False
        await self._write(ended)

    async def _write(self, ended: Sequence[EndedExecution]) -> None:
        """Write the calls collected so far, and these executions."""
        if not self._ending.is_set():
            self._is_due.clear()
        entries, self._entries = self._entries, []
        if not (entries or ended):
            return

        def write(is_repeated: bool) -> RunState:
            return write_singly(
                write_batch,
                self._work,
                self._token,
                entries=entries,
                ended=ended,
                is_repeated=is_repeated,
            )

        state = await self._database.do_repeatable(write)
        self._leases.release(execution.claim.result_id for execution in ended)
        self._unwritten_calls -= len(entries)
        if state.stale:
            # After the end of the run this is normal.
            logger.log(
                logging.WARNING if state.status in ACTIVE_RUN_STATUSES else logging.DEBUG,
                "Run %s: records of results %s came too late and were refused",
                self._work.run_id,
                state.stale,
            )
        self._update(state, spent=spent_usd(entry.record for entry in entries))
        self._open_or_close_room()

    async def watch_run(
        self, renew_slots: Callable[[], Awaitable[None]], give_back: Callable[[], Awaitable[None]]
    ) -> None:
        """Check every second whether the run is still active; every few seconds renew leases and slots.

        Money that is not needed is given back when the run is short of it.
        """
        looks = 0
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._ending.wait()
                    return
            looks += 1
            state = await self._database.do(read_state, self._work.run_id)
            self._update(state)
            if state.is_short_of_money:
                await give_back()
            if looks % RENEW_EVERY_LOOKS == 0:
                await self._leases.renew()
                await renew_slots()

    def _update(self, state: RunState, *, spent: Decimal = ZERO_USD) -> None:
        """Act on the state of the run and remember a broken target, which is reported once."""
        earlier = self.state.broken_target if self.state is not None else ""
        self.state = replace(state, broken_target=state.broken_target or earlier)
        self.budget.book(spent)
        # Replayed outputs cost nothing now.
        target_usd = ZERO_USD if self._work.is_replayed else state.run_cost_usd
        self.budget.booked = state.evaluation_cost_usd + target_usd
        self.budget.change_cap(state.budget_usd)
        is_ours = state.started_at == self._work.started_at
        if state.status not in ACTIVE_RUN_STATUSES or not is_ours:
            self._abort()
        elif self.state.broken_target:
            self._drain()


class WriteBatch(Protocol):
    """Writes calls and results in one transaction (`write_batch`)."""

    def __call__(
        self,
        work: RunWork,
        token: str,
        *,
        entries: Sequence[LedgerEntry],
        ended: Sequence[EndedExecution],
        is_repeated: bool,
    ) -> RunState:
        """Return how far the run is; nothing is written when it raises."""
        ...


def write_singly(
    write_batch: WriteBatch,
    work: RunWork,
    token: str,
    *,
    entries: Sequence[LedgerEntry],
    ended: Sequence[EndedExecution],
    is_repeated: bool,
) -> RunState:
    """Write all at once, or else result by result; a result that cannot be written ends as an error.

    Its calls are paid, so they are written without their content. When the database is away, no
    result is to blame, and the error is raised.
    """
    try:
        return write_batch(work, token, entries=entries, ended=ended, is_repeated=is_repeated)
    except Exception as error:
        if is_temporary(error):
            raise
        logger.exception(
            "Run %s: a batch cannot be written; writing its results one by one", work.run_id
        )
    states = [
        _write_one(write_batch, work, token, *part, is_repeated=is_repeated)
        for part in _by_result(entries, ended)
    ]
    stale = tuple(result_id for state in states for result_id in state.stale)
    return replace(states[-1], stale=stale)


def _by_result(
    entries: Sequence[LedgerEntry], ended: Sequence[EndedExecution]
) -> list[tuple[list[LedgerEntry], list[EndedExecution]]]:
    """Return calls and ended executions by result."""
    parts: dict[int, tuple[list[LedgerEntry], list[EndedExecution]]] = {}
    for entry in entries:
        parts.setdefault(entry.claim.result_id, ([], []))[0].append(entry)
    for execution in ended:
        parts.setdefault(execution.claim.result_id, ([], []))[1].append(execution)
    return list(parts.values())


def _write_one(
    write_batch: WriteBatch,
    work: RunWork,
    token: str,
    entries: list[LedgerEntry],
    ended: list[EndedExecution],
    *,
    is_repeated: bool,
) -> RunState:
    try:
        return write_batch(work, token, entries=entries, ended=ended, is_repeated=is_repeated)
    except Exception as error:
        if is_temporary(error):
            raise
        logger.exception("Run %s: a result cannot be written", work.run_id)
        bare = [replace(entry, record=_without_content(entry.record)) for entry in entries]
        errors = [_as_error(execution, error) for execution in ended]
    return write_batch(work, token, entries=bare, ended=errors, is_repeated=is_repeated)


def _without_content(record: CallRecord) -> CallRecord:
    return replace(record, request={}, reply=None, error="Its content could not be stored")


def _as_error(ended: EndedExecution, error: Exception) -> EndedExecution:
    """Return the execution with the error of the database as its outcome."""
    message = f"{type(error).__name__}: {error}"[:MAX_REASON_LENGTH]
    reason = message.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return replace(ended, outcome=ExecutionOutcome(failure=TargetFailure(reason, Cause.UNSTORABLE)))


def write_batch(
    work: RunWork,
    token: str,
    *,
    entries: Sequence[LedgerEntry],
    ended: Sequence[EndedExecution],
    is_repeated: bool = False,
) -> RunState:
    """Write calls and results in one transaction, and move the run's counters with them.

    The calls are written in any case because they are paid. A result is refused when its lease
    belongs to another token or attempt. `is_repeated` means that an earlier attempt may have written
    the same. Of a deleted run nothing is written.
    """
    with transaction.atomic():
        run = Run.objects.hold_if_there(work.run_id)
        if run is None:
            return DELETED
        write_calls(run, work, missing_entries(entries) if is_repeated else entries)
        if entries and not run.is_active:
            # Calls were under way when the run ended: its figures must include their cost.
            Run.objects.filter(id=run.pk).update(summary=None)
        accepted = _still_held(work, token, ended)
        write_results(accepted, now=database_now())
        write_outputs(work.run_id, accepted)
        if work.target.awaits:
            stored = PushedOutput.objects.filter(
                result_id__in=[execution.claim.result_id for execution in accepted]
            )
            stored.update(output=None)
        _count(run, accepted)
        _count_reported_costs(run, work, accepted)
        if run.budget_usd is not None:
            _note_dearest(run, work, accepted)
        # Nobody else changes them while this transaction holds the run.
        run.save(update_fields=COUNTERS)
        _refresh_cases(work, entries, accepted)
        broken = "" if work.is_replayed else broken_target(run)
        held = {execution.claim.result_id for execution in accepted}
        stale = [execution.claim for execution in ended if execution.claim.result_id not in held]
        if stale:
            note_return(stale)
    late = tuple(claim.result_id for claim in stale)
    return replace(_run_state(run), stale=late, broken_target=broken)


def _still_held(work: RunWork, token: str, ended: Sequence[EndedExecution]) -> list[EndedExecution]:
    if not ended:
        return []
    held = held_results(work.run_id, token).filter(
        id__in=among(execution.claim.result_id for execution in ended)
    )
    facts = set(held.select_for_update(no_key=True).values_list("id", "attempt", "generation"))
    return [
        execution
        for execution in ended
        if (execution.claim.result_id, execution.claim.attempt, execution.claim.generation) in facts
    ]


def write_results(ended: Sequence[EndedExecution], *, now: datetime) -> None:
    """Write the outcomes into the rows of the results."""
    update_rows(
        Result,
        RESULT_COLUMNS,
        ((*_result_row(execution, now), execution.claim.result_id) for execution in ended),
        key=("id",),
    )


def _result_row(execution: EndedExecution, now: datetime) -> tuple[object, ...]:
    outcome, decision = execution.outcome, execution.outcome.decision
    usage = outcome.output.usage if outcome.output else Usage()
    if decision is None or decision.status != "scored":
        error, stage = _error_and_stage(outcome)
        head: tuple[object, ...] = (ResultStatus.ERROR.value, "", None, None, "", False)
        head = (*head, error, stage)
    else:
        verdict = decision.verdict.value if decision.verdict else ""
        cell = decision.decided_by[:MAX_CELL_LENGTH]
        metrics = metrics_score(outcome.outcomes)
        head = (ResultStatus.SCORED.value, verdict, decision.score, metrics, cell)
        head = (*head, _is_forced(decision), "", "")
    return (
        *(*head, _marks(decision), list(decision.warnings) if decision else []),
        *(False, None, "", None, now),
        *(usage.latency_ms, usage.input_tokens, usage.output_tokens),
    )


def _error_and_stage(outcome: ExecutionOutcome) -> tuple[str, str]:
    """Return the error and its stage for a result without a verdict."""
    if outcome.failure is not None:
        is_ours = outcome.failure.cause is Cause.UNSTORABLE
        return str(outcome.failure), RECORDING_STAGE if is_ours else TARGET_STAGE
    decision = outcome.decision
    reason = (decision.error if decision else "") or "not scored"
    place = (decision.evaluator if decision else None) or OUTCOMES_PATH
    unscored = {path: leaf for path, leaf in outcome.outcomes.items() if isinstance(leaf, Unscored)}
    # When an evaluator of the tree judges the outcomes, only the reason tells which one.
    cause = unscored.get(place) or next(
        (leaf for leaf in unscored.values() if leaf.reason in reason), None
    )
    return reason, cause.stage if cause else "evaluator"


def _is_forced(decision: Decision) -> bool:
    return decision.verdict == "fail" and decision.is_forced


def _marks(decision: Decision | None) -> str:
    outcomes = decision.outcomes if decision else ()
    return "".join("1" if outcome.passed else "0" for outcome in outcomes)[:MAX_MARKS]


def write_outputs(run_id: int, ended: Sequence[EndedExecution]) -> None:
    """Write outputs, scores, files and what search looks up, replacing those that were kept or of an earlier generation."""
    again = [
        execution.claim.result_id
        for execution in ended
        if execution.claim.generation > 1 or execution.claim.keeps_output
    ]
    if again:
        ScoreRow.objects.filter(result_id__in=again).delete()
        Artifact.objects.filter(result_id__in=again).delete()
        ResultOutput.objects.filter(result_id__in=again).delete()
        ResultText.objects.filter(result_id__in=again).delete()
    answered = [
        (execution, output)
        for execution in ended
        if (output := execution.outcome.output) is not None
    ]
    outputs = (_output_row(execution, output) for execution, output in answered)
    insert_rows(ResultOutput, OUTPUT_COLUMNS, outputs)
    scores = [_score_rows(execution) for execution, _ in answered]
    insert_rows(ScoreRow, SCORE_COLUMNS, chain.from_iterable(scores))
    _write_files(answered)
    searched = (
        (
            *(execution.claim.result_id, execution.claim.case_id, output.text),
            trace_as_json(output),
            [str(row[REASONING]) for row in rows if row[REASONING]],
        )
        for (execution, output), rows in zip(answered, scores, strict=True)
    )
    ResultText.objects.add(run_id, searched)


def _output_row(execution: EndedExecution, output: Output) -> tuple[object, ...]:
    decision = execution.outcome.decision
    if decision is None:
        raise AssertionError("an answered execution has an output and a decision")
    outcomes = [
        {"text": outcome.text, "passed": outcome.passed, "justification": outcome.justification}
        for outcome in decision.outcomes
    ]
    return (
        *(execution.claim.result_id, output.text, messages_as_json(output), trace_as_json(output)),
        *(usage_as_json(output.usage), outcomes or None, decision.as_json()),
    )


def _score_rows(execution: EndedExecution) -> list[tuple[object, ...]]:
    decision = execution.outcome.decision
    if decision is None:
        return []
    return list(
        score_rows(execution.claim.result_id, execution.root, execution.outcome.outcomes, decision)
    )


def _write_files(answered: Sequence[tuple[EndedExecution, Output]]) -> None:
    """Write the files that targets left; equal contents are stored once."""
    left = [
        (execution.claim.result_id, path, content)
        for execution, output in answered
        for path, content in output.files.items()
    ]
    if left:
        hashes = FileContent.objects.store(content for _, _, content in left)
        rows = (
            (result_id, path, sha) for (result_id, path, _), sha in zip(left, hashes, strict=True)
        )
        insert_rows(Artifact, ARTIFACT_COLUMNS, rows)


def _count(run: Run, ended: Sequence[EndedExecution]) -> None:
    """Add the results just written to the run's counters."""
    decisions = [execution.outcome.decision for execution in ended]
    scored = [decision for decision in decisions if decision and decision.status == "scored"]
    verdicts = Counter(decision.verdict for decision in scored)
    scores = [decision.score for decision in scored if decision.score is not None]
    run.done_count += len(ended)
    run.pass_count += verdicts[Verdict.PASS]
    run.borderline_count += verdicts[Verdict.BORDERLINE]
    run.fail_count += verdicts[Verdict.FAIL]
    run.error_count += len(ended) - len(scored)
    run.score_sum += sum(scores)
    run.score_count += len(scores)


def _note_dearest(run: Run, work: RunWork, ended: Sequence[EndedExecution]) -> None:
    """Note the most that one result has cost, which a worker reserves for each execution."""
    among = [execution.claim.result_id for execution in ended]
    dearest = dearest_usd(work.run_id, is_replayed=work.is_replayed, among=among)
    if dearest is not None:
        run.dearest_usd = max(run.dearest_usd or ZERO_USD, dearest)


def _count_reported_costs(run: Run, work: RunWork, ended: Sequence[EndedExecution]) -> None:
    """Add costs that targets report without calls in our ledger; a replayed output costs once.

    A target that failed without having been asked cost nothing; what another failure cost stays unknown.
    """
    if work.target.uses_model:
        return
    reported = {
        execution.claim.result_id: execution.outcome.output.usage.cost_usd
        for execution in ended
        if execution.outcome.output is not None
        and execution.outcome.output.usage.cost_usd is not None
        and not execution.claim.keeps_output
        and not work.target.uses_agent
    }
    if work.target.replays and reported:
        paid = Result.objects.filter(id__in=reported, run_cost_usd__isnull=False)
        for result_id in paid.values_list("id", flat=True):
            del reported[result_id]
    unasked = {
        execution.claim.result_id: ZERO_USD
        for execution in ended
        if execution.outcome.failure is not None and execution.outcome.failure.cause in UNASKED
    }
    add_costs(run, "run_cost_usd", unasked | reported)


def _refresh_cases(
    work: RunWork, entries: Sequence[LedgerEntry], ended: Sequence[EndedExecution]
) -> None:
    """Refresh the cases of results that ended or became more expensive."""
    changed = {execution.claim.case_id for execution in ended}
    changed |= {entry.claim.case_id for entry in entries if entry.record.cost_usd is not None}
    RunCase.objects.refresh(work.run_id, changed, policy=work.plan.policy)


def broken_target(run: Run) -> str:
    """Return the error in which the first executions of a run all ended; "" when they did not.

    Numbers in the error, such as ports and times, make no difference, but an HTTP status does.
    """
    if run.done_count < BREAKER or run.error_count < run.done_count:
        return ""
    done = Result.objects.filter(run=run, status=ResultStatus.ERROR).order_by("finished_at", "id")
    first = list(done.values_list("error_stage", "error")[:BREAKER])
    alike = {_without_numbers(error) for stage, error in first if stage == TARGET_STAGE}
    is_broken = len(alike) == 1 and all(stage == TARGET_STAGE for stage, _ in first)
    return first[0][1] if is_broken else ""


def _without_numbers(error: str) -> str:
    return NUMBER.sub(lambda number: number["status"] or "0", error)


def read_state(run_id: int) -> RunState:
    """Return how far the run is."""
    run = Run.objects.only(*STATE_FIELDS).filter(id=run_id).first()
    return DELETED if run is None else _run_state(run)


def _run_state(run: Run) -> RunState:
    return RunState(
        status=run.status,
        started_at=run.started_at,
        execution_count=run.execution_count,
        done_count=run.done_count,
        error_count=run.error_count,
        run_cost_usd=run.run_cost_usd,
        evaluation_cost_usd=run.evaluation_cost_usd,
        budget_usd=run.budget_usd,
        is_short_of_money=run.is_short_of_money,
    )
