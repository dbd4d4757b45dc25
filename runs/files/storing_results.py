"""Store the runs of a file of results in many short transactions, so that others can write in between.

Nobody sees a run before all are whole: until then it counts as deleted and names the process that writes it. If
that ends, the reaper has the run removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from evaluators.kinds._base import Output
from evaluators.models import AuditEntry
from evaluators.sandbox.processes import process_name
from evaluators.scoring.numbers import sum_known
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError, Usage, Verdict
from runs.engine.plan import Plan, TargetPlan, cases_hash, content_hash
from runs.files.result_decisions import MAX_CELL_LENGTH, ImportedDecision, is_forced
from runs.finishing import finish_run
from runs.formats.results_reading import ReadResult
from runs.formats.results_writing import ResultLine, walk_lines
from runs.models.database import atomic_batch, database_now, insert_rows
from runs.models.removals import Removal
from runs.models.results import (
    EvaluatorScore,
    ExternalScore,
    Result,
    ResultOutput,
    ResultStatus,
)
from runs.models.run_cases import RunCase
from runs.models.runs import Run, RunStatus
from runs.models.search import ResultText
from runs.models.stored import SCORE_COLUMNS, score_rows
from runs.models.suites import Case, Suite
from runs.target_kinds._outputs import (
    messages_as_json,
    read_conversation,
    trace_as_json,
    usage_as_json,
)

RECORDED = "recorded"
# Each transaction stores this many results, or cases; fewer results where these are long, as words for search take time.
BATCH = 200
MAX_BATCH_LENGTH = 1_000_000
ZERO = Decimal(0)
COPIED = (
    *("title", "tags", "input", "expected_output", "expected_outcomes", "criteria", "metadata"),
    "recorded_output",
)


class ImportCutOffError(DomainError):
    """An import cannot go on, and nothing of its runs is stored."""

    code = "import_cut_off"


@dataclass(frozen=True, slots=True, order=True)
class Revision:
    """A case by its key, with the hash of the tree that scored it; "" for the tree of its current revision."""

    key: str
    tree_hash: str


@dataclass(frozen=True, slots=True)
class Row:
    """A result of a file, decided; `position` is that of its revision in the run."""

    read: ReadResult
    repetition: int
    scored: ImportedDecision
    revision: Revision
    position: int


@dataclass(frozen=True, slots=True)
class RunContent:
    """The results of one target in the order of the suite, with the tree that scored most of them."""

    target: str
    root: EvaluatorSpec
    policy: PolicySpec
    rows: Sequence[Row]


def store_runs(
    suite: Suite,
    current: Mapping[str, Case],
    decided: Sequence[RunContent],
    *,
    origin: Mapping[str, str],
    by: User | None,
) -> tuple[Run, ...]:
    """Store results as completed runs of the suite, whose current cases are given by key.

    Raises ImportCutOffError when the suite is deleted meanwhile, or when this process stood still for so long
    that it counts as dead.
    """
    with transaction.atomic():
        held = Suite.objects.select_for_update(no_key=True).get(pk=suite.pk)
        runs = tuple(_create_run(held, run, origin=origin, by=by) for run in decided)
    try:
        for run, content in zip(runs, decided, strict=True):
            _store_results(suite, run, runs, current, content, origin)
        with _next_batch(suite, runs):
            for run in runs:
                _publish(suite, run, origin, by)
    except BaseException:
        Removal.objects.remove_cut_off([run.pk for run in runs])
        raise
    return runs


@contextmanager
def _next_batch(suite: Suite, runs: Sequence[Run]) -> Iterator[None]:
    """Hold the suite and the runs for one transaction of the import."""
    with atomic_batch():
        mine = Run.including_deleted.filter(pk__in=[run.pk for run in runs], removal=None)
        if Suite.objects.select_for_update(no_key=True).filter(pk=suite.pk).first() is None:
            raise ImportCutOffError(
                f"The suite {suite.slug} was deleted meanwhile, so nothing was imported."
            )
        if mine.update(heartbeat_at=database_now()) < len(runs):
            raise ImportCutOffError(
                "The import stood still for too long, so what it had stored is removed. Import the file again."
            )
        yield


def _create_run(
    suite: Suite, content: RunContent, *, origin: Mapping[str, str], by: User | None
) -> Run:
    rows, decisions = content.rows, [row.scored.decision for row in content.rows]
    scored = [decision for decision in decisions if decision.status == "scored"]
    scores = [decision.score for decision in scored if decision.score is not None]
    verdicts = Counter(decision.verdict for decision in decisions)
    moments = [row.read.finished_at for row in rows if row.read.finished_at]
    run = Run(
        suite=suite,
        number=suite.next_run_number(),
        status=RunStatus.RUNNING,
        is_deleted=True,
        target_name=content.target,
        suite_version=suite.version,
        note=f"Imported from {origin['file']}"[:300],
        created_by=by,
        # No worker here ever started it.
        started_at=None,
        finished_at=max(moments, default=database_now()),
        repetitions=max(row.repetition for row in rows),
        case_count=len({row.revision.key for row in rows}),
        execution_count=len(rows),
        done_count=len(rows),
        pass_count=verdicts[Verdict.PASS],
        borderline_count=verdicts[Verdict.BORDERLINE],
        fail_count=verdicts[Verdict.FAIL],
        error_count=len(rows) - len(scored),
        score_sum=sum(scores),
        score_count=len(scores),
        run_cost_usd=sum((row.read.result.run_cost_usd or ZERO for row in rows), ZERO),
        evaluation_cost_usd=sum((_judged(row.read.result) or ZERO for row in rows), ZERO),
        external_names=sorted(
            {score.full_name for row in rows for score in row.read.external_scores}
        ),
        snapshot={},
    )
    run.assign_to(process_name(), now=database_now())
    run.save()
    return run


def _store_results(
    suite: Suite,
    run: Run,
    runs: Sequence[Run],
    current: Mapping[str, Case],
    content: RunContent,
    origin: Mapping[str, str],
) -> None:
    """Store the results of a run with everything in their lines, then its cases and its plan."""
    stored: dict[Revision, tuple[int, str]] = {}
    for rows in _batches(content.rows):
        with _next_batch(suite, runs):
            stored |= _revisions(suite, current, rows)
            _store_rows(run, content.policy, rows, stored)
    # Rows, and so revisions, are in the order of positions.
    cases = [(case, position) for position, (case, _) in enumerate(stored.values())]
    for start in range(0, len(cases), BATCH):
        with _next_batch(suite, runs):
            RunCase.objects.add_open(run, cases[start : start + BATCH])
            ids = [case for case, _ in cases[start : start + BATCH]]
            RunCase.objects.refresh(run.pk, ids, policy=content.policy)
    plan = Plan(
        suite={"slug": suite.slug, "title": suite.title, "version": run.suite_version},
        policy=content.policy,
        root=content.root,
        target=TargetPlan(content.target, RECORDED),
        cases_hash=cases_hash([digest for _, digest in stored.values()]),
    )
    run.snapshot = plan.as_json() | {"imported": dict(origin)}
    run.snapshot_hash = content_hash(run.snapshot)


def _batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield the results in parts that one transaction each can store in a moment."""
    batch: list[Row] = []
    length = 0
    for row in rows:
        size = len(repr(row.read))
        if batch and (len(batch) == BATCH or length + size > MAX_BATCH_LENGTH):
            yield batch
            batch, length = [], 0
        batch.append(row)
        length += size
    if batch:
        yield batch


def _publish(suite: Suite, run: Run, origin: Mapping[str, str], by: User | None) -> None:
    """Show a run that is whole, completed; a worker computes its figures."""
    run.assign_to("", now=database_now())
    run.is_deleted = False
    run.save()
    finish_run(run.pk, RunStatus.COMPLETED, finished_at=run.finished_at)
    run.status = RunStatus.COMPLETED
    AuditEntry.objects.record(
        "import",
        by=by,
        object_type="run",
        object_id=run.pk,
        object_name=f"{suite.slug} #{run.number}",
        after={"target": run.target_name, "results": run.execution_count, **origin},
    )


def _revisions(
    suite: Suite, current: Mapping[str, Case], rows: Sequence[Row]
) -> dict[Revision, tuple[int, str]]:
    """Return id and hash of the revisions of cases that the trees of these results score.

    That is the current one if its tree matches; else an earlier one with that tree, which is made if there is
    none. The suite itself does not change.
    """
    found: dict[Revision, tuple[int, str]] = {}
    trees: dict[Revision, EvaluatorSpec] = {}
    for row in rows:
        case = current[row.revision.key]
        found[row.revision] = (case.pk, case.content_hash)
        if row.revision.tree_hash:
            trees[row.revision] = row.scored.tree
    if not trees:
        return found
    cases = Case.objects.in_bulk({current[revision.key].pk for revision in trees})
    new: dict[Revision, Case] = {}
    for revision, tree in trees.items():
        case = cases[current[revision.key].pk]
        columns = {name: getattr(case, name) for name in COPIED}
        columns |= {"evaluators": tree.as_json(), "evaluators_append": False}
        place = {"suite": suite, "key": case.key, "position": case.position, "is_current": False}
        new[revision] = Case(**place, **columns, content_hash=content_hash(columns))
    same_keys = suite.cases.filter(key__in={revision.key for revision in new})
    alike = same_keys.filter(content_hash__in={case.content_hash for case in new.values()})
    places = alike.order_by("revision").values_list("key", "content_hash", "pk")
    earlier = {(key, digest): pk for key, digest, pk in places}
    latest = dict(same_keys.order_by().values_list("key").annotate(last=Max("revision")))
    made = []
    for case in new.values():
        if (case.key, case.content_hash) not in earlier:
            latest[case.key] += 1
            case.revision = latest[case.key]
            made.append(case)
    Case.objects.bulk_create(made)
    for revision, case in new.items():
        pk = earlier.get((case.key, case.content_hash), case.pk)
        found[revision] = (pk, case.content_hash)
    return found


OUTPUT_COLUMNS = ("result_id", "text", "messages", "trace", "usage", "outcomes", "decision")
MAX_STAGE_LENGTH, MAX_MARKS = 30, 200


def _store_rows(
    run: Run,
    policy: PolicySpec,
    rows: Sequence[Row],
    stored: Mapping[Revision, tuple[int, str]],
) -> None:
    results = Result.objects.bulk_create(
        _result(run, policy, row, stored[row.revision][0]) for row in rows
    )
    pairs = list(zip(results, rows, strict=True))
    answered = [pair for pair in pairs if _is_answered(pair[1].read.result)]
    insert_rows(ResultOutput, OUTPUT_COLUMNS, (_output(result, row) for result, row in answered))
    insert_rows(
        EvaluatorScore,
        SCORE_COLUMNS,
        (
            written
            for result, row in pairs
            if row.scored.outcomes
            for written in score_rows(
                result.pk, row.scored.tree, row.scored.outcomes, row.scored.decision
            )
        ),
    )
    now = database_now()
    ExternalScore.objects.bulk_create(
        ExternalScore(result_id=result.pk, pushed_at=now, **score.row)
        for result, row in pairs
        for score in row.read.external_scores
    )
    ResultText.objects.refresh(run.pk, [result.pk for result in results])


def _result(run: Run, policy: PolicySpec, row: Row, case: int) -> Result:
    line, decision = row.read.result, row.scored.decision
    is_scored = decision.status == "scored"
    return Result(
        run=run,
        case_id=case,
        position=row.position,
        repetition=row.repetition,
        status=ResultStatus.SCORED if is_scored else ResultStatus.ERROR,
        verdict=decision.verdict.value if decision.verdict else "",
        score=decision.score if is_scored else None,
        decided_by=decision.decided_by[:MAX_CELL_LENGTH] if is_scored else "",
        is_forced=is_forced(line, decision, policy),
        error=line.error,
        error_stage=_stage(line),
        outcome_marks="".join("01"[outcome.passed] for outcome in line.outcomes)[:MAX_MARKS],
        warnings=list(line.warnings),
        attempt=1,
        finished_at=row.read.finished_at or run.finished_at,
        latency_ms=line.usage.latency_ms,
        input_tokens=line.usage.input_tokens,
        output_tokens=line.usage.output_tokens,
        run_cost_usd=line.run_cost_usd,
        evaluation_cost_usd=_judged(line),
    )


def _stage(line: ResultLine) -> str:
    """Return where an error occurred; without it in the line: an evaluator if there is output, else the target."""
    if line.status != "error":
        return ""
    return line.error_stage[:MAX_STAGE_LENGTH] or ("evaluator" if line.output else "target")


def _is_answered(line: ResultLine) -> bool:
    """Tell whether there is an output, or evaluators that saw one."""
    return line.output is not None or bool(line.evaluators) or line.status != "error"


def _judged(line: ResultLine) -> Decimal | None:
    """Return the judges' cost: the line's, else the sum of its evaluators'."""
    if line.evaluation_cost_usd is not None:
        return line.evaluation_cost_usd
    leaves = [evaluator for _, evaluator in walk_lines(line.evaluators) if not evaluator.children]
    return sum_known(evaluator.usage.cost_usd for evaluator in leaves)


def _output(result: Result, row: Row) -> tuple[Any, ...]:
    line = row.read.result
    usage = Usage(
        input_tokens=line.usage.input_tokens,
        output_tokens=line.usage.output_tokens,
        cost_usd=line.run_cost_usd,
        latency_ms=line.usage.latency_ms,
    )
    outcomes = [
        {"text": outcome.text, "passed": outcome.passed, "justification": outcome.justification}
        for outcome in line.outcomes
    ]
    decision = row.scored.decision.as_json()
    conversation = _conversation(row.read)
    return (
        *(
            result.pk,
            line.output or "",
            messages_as_json(conversation),
            trace_as_json(conversation),
        ),
        *(usage_as_json(usage), outcomes or None, decision),
    )


def _conversation(read: ReadResult) -> Output:
    """Return the turns and tool calls of a line, none where they are not in a form that we know."""
    try:
        conversation = read_conversation(read.messages)
    except ValueError:
        return Output("")
    return Output("", messages=conversation.messages, trace=conversation.steps)
