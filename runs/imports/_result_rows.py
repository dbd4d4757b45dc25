"""Rows of results that were brought in from a file, and the counters of their run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Usage
from runs.formats.agentv_results import ReadResult
from runs.formats.results import ResultLine, walk
from runs.imports._result_decisions import LONGEST_CELL, Told, is_forced
from runs.models import Case, Result, ResultOutput, ResultStatus, Run, Score
from runs.models.rows import insert_rows
from runs.models.stored import SCORE_COLUMNS, score_rows
from runs.summary import total_of
from runs.targets._outputs import usage_as_json

OUTPUT_COLUMNS = ("result_id", "text", "messages", "trace", "usage", "outcomes", "decision")
LONGEST_STAGE, MOST_MARKS = 30, 200
BATCH = 1_000
ZERO = Decimal(0)

Row = tuple[ReadResult, int, Told, Case]


def write_results(run: Run, policy: Policy, rows: Sequence[Row]) -> None:
    """Store the results of a run with everything their lines tell, and set its counters."""
    cases = sorted({row[3] for row in rows}, key=lambda case: (case.position, case.pk))
    order = {case.pk: place for place, case in enumerate(cases)}
    results = Result.objects.bulk_create(
        (_result(run, policy, row, order[row[3].pk]) for row in rows), batch_size=BATCH
    )
    pairs = list(zip(results, rows, strict=True))
    answered = [pair for pair in pairs if _is_answered(pair[1][0].result)]
    insert_rows(ResultOutput, OUTPUT_COLUMNS, (_output(result, row) for result, row in answered))
    insert_rows(
        Score,
        SCORE_COLUMNS,
        (
            written
            for result, (_, _, told, _) in pairs
            if told.outcomes
            for written in score_rows(result.pk, told.tree, told.outcomes, told.decision)
        ),
    )
    _count(run, results)


def _result(run: Run, policy: Policy, row: Row, position: int) -> Result:
    read, number, told, case = row
    line, decision = read.result, told.decision
    is_scored = decision.status == "scored"
    return Result(
        run=run,
        case=case,
        position=position,
        repetition=number,
        status=ResultStatus.SCORED if is_scored else ResultStatus.ERROR,
        verdict=decision.verdict.value if decision.verdict else "",
        score=decision.score if is_scored else None,
        decided_by=decision.decided_by[:LONGEST_CELL] if is_scored else "",
        is_forced=is_forced(line, decision, policy),
        error=line.error,
        error_stage=_stage(line),
        outcome_marks="".join("01"[one.passed] for one in line.outcomes)[:MOST_MARKS],
        warnings=list(line.warnings),
        attempt=1,
        finished_at=read.finished_at or run.finished_at,
        latency_ms=line.usage.latency_ms,
        input_tokens=line.usage.input_tokens,
        output_tokens=line.usage.output_tokens,
        run_cost_usd=line.run_cost_usd,
        evaluation_cost_usd=_judged(line),
    )


def _stage(line: ResultLine) -> str:
    """Return where an error arose; a line that does not tell leaves only the target, or a judge."""
    if line.status != "error":
        return ""
    return line.error_stage[:LONGEST_STAGE] or ("evaluator" if line.output else "target")


def _is_answered(line: ResultLine) -> bool:
    """Tell whether there is an output, or evaluators that saw one."""
    return line.output is not None or bool(line.evaluators) or line.status != "error"


def _judged(line: ResultLine) -> Decimal | None:
    """Return what the judges cost: as told, else what the evaluators tell."""
    if line.evaluation_cost_usd is not None:
        return line.evaluation_cost_usd
    leaves = [one for _, one in walk(line.evaluators) if not one.children]
    return total_of(one.usage.cost_usd for one in leaves)


def _output(result: Result, row: Row) -> tuple[Any, ...]:
    read, _, told, _ = row
    line = read.result
    usage = Usage(
        input_tokens=line.usage.input_tokens,
        output_tokens=line.usage.output_tokens,
        cost_usd=line.run_cost_usd,
        latency_ms=line.usage.latency_ms,
    )
    outcomes = [
        {"text": one.text, "passed": one.passed, "justification": one.justification}
        for one in line.outcomes
    ]
    decision = told.decision.as_json()
    return result.pk, line.output or "", [], None, usage_as_json(usage), outcomes or None, decision


def _count(run: Run, results: Sequence[Result]) -> None:
    words = Counter(result.verdict for result in results)
    scores = [result.score for result in results if result.score is not None]
    run.pass_count, run.fail_count = words["pass"], words["fail"]
    run.borderline_count = words["borderline"]
    run.error_count = sum(result.status == ResultStatus.ERROR for result in results)
    run.score_sum, run.score_count = sum(scores), len(scores)
    run.run_cost_usd = sum((result.run_cost_usd or ZERO for result in results), ZERO)
    run.evaluation_cost_usd = sum((result.evaluation_cost_usd or ZERO for result in results), ZERO)
    run.save()
