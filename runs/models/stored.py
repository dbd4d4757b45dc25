"""Outcomes as rows: what is written of a result, and what is read back when only a part is done again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from evaluators.kinds._base import Output
from evaluators.scoring.tree import Node, walk
from evaluators.scoring.types import (
    Finding,
    Outcome,
    OutcomeResult,
    Score,
    Skipped,
    Unscored,
    Usage,
)
from evaluators.scoring.verdict import Decision
from runs.models import ResultOutput, ScoreState
from runs.models import Score as ScoreRow
from runs.plan import OUTCOMES_KIND, OUTCOMES_PATH, is_in_line
from runs.targets._outputs import output_from_columns

SCORE_COLUMNS = (
    *("result_id", "path", "position", "kind", "state", "score", "raw_score", "scale", "weight"),
    *("stage", "input_tokens", "output_tokens", "cost_usd", "latency_ms", "reasoning"),
    *("findings", "failed_required", "warnings", "details"),
)
NO_USAGE = Usage()
NOT_RUN = Unscored("it was not run")


def score_rows(
    result_id: int, root: Node, outcomes: Mapping[str, Outcome], decision: Decision
) -> Iterator[tuple[object, ...]]:
    """Yield a row for every node of the tree, composites too, and one for the expected outcomes."""
    position = 0
    for position, (path, node) in enumerate(walk(root)):
        place = (result_id, path, position, node.kind)
        outcome, found = outcomes.get(path), decision.nodes[path]
        if outcome is not None:
            yield _row(place, outcome, found.weight)
            continue
        yield (
            *(*place, found.state, found.score, None, 1.0, found.weight),
            *("", None, None, None, None, found.note, [], [], [], {}),
        )
    beside = outcomes.get(OUTCOMES_PATH)
    if beside is not None:
        yield _row((result_id, OUTCOMES_PATH, position + 1, OUTCOMES_KIND), beside, 0.0)


def _row(place: tuple[int, str, int, str], outcome: Outcome, weight: float) -> tuple[object, ...]:
    if isinstance(outcome, Score):
        usage = outcome.usage
        findings = [
            {"text": found.text, "passed": found.passed, "evidence": found.evidence}
            for found in outcome.findings
        ]
        return (
            *(*place, ScoreState.SCORED.value, outcome.score, outcome.raw_score, outcome.scale),
            *(weight, "", usage.input_tokens, usage.output_tokens, usage.cost_usd),
            *(usage.latency_ms, outcome.reasoning, findings, list(outcome.failed_required)),
            *(list(outcome.warnings), dict(outcome.details)),
        )
    state, stage, details, usage = ScoreState.SKIPPED.value, "", {}, NO_USAGE
    if isinstance(outcome, Unscored):
        state, stage, usage = ScoreState.UNSCORED.value, outcome.stage, outcome.usage
        details = dict(outcome.details)
    return (
        *(*place, state, None, None, 1.0, weight, stage),
        *(usage.input_tokens, usage.output_tokens, usage.cost_usd, usage.latency_ms),
        *(outcome.reason, [], [], [], details),
    )


def outcome_of(row: ScoreRow, outcomes: tuple[OutcomeResult, ...] | None) -> Outcome:
    """Return what the evaluator said; `outcomes` are the result's expected outcomes as it judged them."""
    usage = Usage(
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_usd=row.cost_usd,
        latency_ms=row.latency_ms,
    )
    if row.state == ScoreState.SKIPPED:
        return Skipped(row.reasoning)
    if row.state == ScoreState.UNSCORED or row.score is None:
        return Unscored(row.reasoning, stage=row.stage, details=row.details, usage=usage)
    return Score(
        score=row.score,
        raw_score=row.raw_score,
        scale=row.scale,
        reasoning=row.reasoning,
        findings=tuple(Finding(**found) for found in row.findings),
        details=row.details,
        failed_required=tuple(row.failed_required),
        outcomes=outcomes,
        usage=usage,
        warnings=tuple(row.warnings),
    )


def kept_outcomes(
    rows: Iterable[ScoreRow], output: ResultOutput, *, again: tuple[str, ...]
) -> dict[str, Outcome]:
    """Return the outcomes that stand when only the evaluators at and below the paths run again.

    What was made of theirs falls with them: the scores of the composites above. What others could
    not score stands too, as nobody asked for their calls; what a gate kept from running does not.
    """
    results = tuple(OutcomeResult(**found) for found in output.outcomes or ())
    kept: dict[str, Outcome] = {}
    for row in rows:
        if row.state == ScoreState.SKIPPED or any(is_in_line(row.path, path) for path in again):
            continue
        supplies = row.path == OUTCOMES_PATH or row.details.get("supplies_outcomes")
        kept[row.path] = outcome_of(row, results if supplies else None)
    return kept


def kept_output(row: ResultOutput, files: Mapping[str, bytes]) -> Output:
    """Return what the target answered before, with the files it left."""
    return output_from_columns(row.text, row.messages, row.trace, row.usage, files)
