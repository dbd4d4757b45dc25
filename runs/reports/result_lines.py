"""Every execution of a run, as files of results tell it: read in pieces, however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evaluators.kinds import UnknownKindError, spelled_as
from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.numbers import rounded
from evaluators.scoring.tree import Node, below
from evaluators.scoring.types import Finding, OutcomeResult, Usage
from runs.formats.results import EvaluatorLine, ResultLine
from runs.models import Result, ResultOutput, ResultStatus, Run, Score, ScoreState
from runs.plan import (
    DELIBERATION_KIND,
    METRICS_KIND,
    OUTCOMES_KIND,
    OUTCOMES_PATH,
    Plan,
    read_plan,
    tree_of_case,
)

CHUNK = 500
METRIC_PARTS = ("key", "name", "tier", "weight", "binary", "score", "label", "justification")

Rows = Mapping[str, Score]


def result_lines(run: Run) -> Iterator[ResultLine]:
    """Return the executions of a run in the order of its suite.

    One query finds them, three more read each 500, and nothing is held longer than that. Raises
    UnreadableSnapshotError at once for a run of another version.
    """
    return _lines(run, read_plan(run.snapshot))


def _lines(run: Run, plan: Plan) -> Iterator[ResultLine]:
    in_order = run.results.order_by("position", "repetition", "id")
    ids = list(in_order.values_list("pk", flat=True))
    for start in range(0, len(ids), CHUNK):
        yield from _some(run, plan, ids[start : start + CHUNK])


def _some(run: Run, plan: Plan, ids: Sequence[int]) -> Iterator[ResultLine]:
    results = Result.objects.select_related("case").in_bulk(ids)
    outputs = ResultOutput.objects.only("text", "outcomes").in_bulk(ids)
    rows: dict[int, dict[str, Score]] = {}
    for row in Score.objects.filter(result_id__in=ids).order_by():
        rows.setdefault(row.result_id, {})[row.path] = row
    for pk in ids:
        # A run that is deleted meanwhile loses its results.
        if pk in results:
            yield _line(run, plan, results[pk], outputs.get(pk), rows.get(pk, {}))


def _line(
    run: Run, plan: Plan, result: Result, output: ResultOutput | None, rows: Rows
) -> ResultLine:
    case = result.case
    root = tree_of_case(plan.root, case.evaluators, append=case.evaluators_append)
    is_scored = result.status == ResultStatus.SCORED
    return ResultLine(
        suite=run.suite.slug,
        run=run.number,
        target=run.target_name,
        eval_id=case.key,
        repetition=result.repetition,
        status=result.status,
        score=_score(result.score) if is_scored else None,
        verdict=result.verdict,
        reviewed_verdict=result.reviewed_verdict,
        decided_by=result.decided_by,
        evaluators=(*_evaluators(root, rows), *_beside(rows)) if rows else (),
        outcomes=_outcomes(output),
        error=result.error,
        error_stage=result.error_stage,
        warnings=tuple(result.warnings),
        output=_answer(run, output),
        usage=Usage(
            input_tokens=result.input_tokens,
            output_tokens=result.output_tokens,
            latency_ms=result.latency_ms,
        ),
        run_cost_usd=result.run_cost_usd,
        evaluation_cost_usd=result.evaluation_cost_usd,
        finished_at=result.finished_at.isoformat() if result.finished_at else None,
        scale=plan.policy.scale,
    )


def _answer(run: Run, output: ResultOutput | None) -> str | None:
    """Return the answer; of an imported result that has none, what its evaluators said is kept alone."""
    if output is None or (not output.text and run.imported_from):
        return None
    return output.text


def _evaluators(node: Node, rows: Rows, path: str = "") -> tuple[EvaluatorLine, ...]:
    return tuple(_evaluator(child, rows, below(path, child.name)) for child in node.children)


def _evaluator(node: Node, rows: Rows, path: str) -> EvaluatorLine:
    row = rows.get(path) or Score(path=path, state=ScoreState.UNSCORED, weight=node.weight)
    # Rows of leaves hold what the evaluator said; those of composites what they came to.
    is_as_said = node.aggregator is None or node.aggregator.is_judging
    score = row.score
    if score is not None and node.negate and is_as_said:
        score = 1.0 - score
    return EvaluatorLine(
        name=node.name,
        type=node.kind,
        status=row.state,
        score=_score(score) if row.state == ScoreState.SCORED else None,
        weight=row.weight,
        is_negated=node.negate,
        findings=_findings(row),
        reasoning=row.reasoning,
        usage=_usage(row),
        aggregator=None if node.aggregator is None else node.aggregator.as_json(),
        children=_evaluators(node, rows, path),
        raw_score=row.raw_score,
        scale=row.scale,
        metrics=_metrics(row),
        final_evaluation=row.details.get("final_evaluation") if row.kind == HYBRID_KIND else None,
        rounds=tuple(row.details.get("rounds") or ()) if row.kind == DELIBERATION_KIND else (),
        spelling=_spelling(node),
    )


def _spelling(node: Node) -> str:
    """Return the type as a suite file spells it; kinds that there are no more stay what they were."""
    try:
        return spelled_as(node.kind, node.config)[0]
    except UnknownKindError:
        return ""


def _beside(rows: Rows) -> tuple[EvaluatorLine, ...]:
    """Return the judge of the expected outcomes, where one was asked beside the tree."""
    row = rows.get(OUTCOMES_PATH)
    if row is None:
        return ()
    said = EvaluatorLine(
        name=OUTCOMES_PATH,
        type=OUTCOMES_KIND,
        status=row.state,
        score=_score(row.score),
        weight=0.0,
        findings=_findings(row),
        reasoning=row.reasoning,
        usage=_usage(row),
    )
    return (said,)


def _metrics(row: Score) -> tuple[Mapping[str, Any], ...]:
    """Return what a metrics judge said of each metric, in the order it is shown."""
    if row.kind != METRICS_KIND:
        return ()
    return tuple(
        {name: metric[name] for name in METRIC_PARTS if name in metric}
        for metric in row.details.get("metrics", ())
    )


def _findings(row: Score) -> tuple[Finding, ...]:
    return tuple(
        Finding(found["text"], bool(found["passed"]), found.get("evidence", ""))
        for found in row.findings
    )


def _usage(row: Score) -> Usage:
    return Usage(
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_usd=row.cost_usd,
        latency_ms=row.latency_ms,
    )


def _outcomes(output: ResultOutput | None) -> tuple[OutcomeResult, ...]:
    found = (output.outcomes if output else None) or ()
    return tuple(
        OutcomeResult(one["text"], bool(one["passed"]), one.get("justification", ""))
        for one in found
    )


def _score(score: float | None) -> float | None:
    return None if score is None else rounded(score)
