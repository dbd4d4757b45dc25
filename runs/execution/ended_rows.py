"""What executions that ended come to as rows: results, outputs, scores and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evaluators.scoring.tree import Node
from evaluators.scoring.types import Score, Unscored, Usage
from evaluators.scoring.verdict import Decision
from runs.engine import ExecutionOutcome
from runs.execution.claiming import Claim
from runs.models import Artifact, FileContent, Result, ResultOutput, ResultStatus
from runs.models import Score as ScoreRow
from runs.models.rows import insert_rows, update_rows
from runs.models.stored import SCORE_COLUMNS, score_rows
from runs.plan import OUTCOMES_PATH, Cause
from runs.targets._outputs import messages_as_json, trace_as_json, usage_as_json

RESULT_COLUMNS = (
    *("status", "verdict", "score", "metrics_score", "decided_by", "is_forced", "error"),
    *("error_stage", "outcome_marks", "warnings", "keeps_output", "retry_paths", "lease_token"),
    *("lease_until", "finished_at", "latency_ms", "input_tokens", "output_tokens"),
)
OUTPUT_COLUMNS = ("result_id", "text", "messages", "trace", "usage", "outcomes", "decision")
ARTIFACT_COLUMNS = ("result_id", "path", "content_id")
TARGET_STAGE = "target"
RECORDING_STAGE = "recording"
LONGEST_CELL = 300
MOST_MARKS = 200


@dataclass(frozen=True, slots=True)
class Ended:
    """An execution that ended under a claim, scored by the tree under `root`."""

    claim: Claim
    root: Node
    outcome: ExecutionOutcome


def write_results(ended: Sequence[Ended], *, now: datetime) -> None:
    """Write over the waiting rows of results what they came to."""
    update_rows(
        Result,
        RESULT_COLUMNS,
        ((*_result_row(one, now), one.claim.result_id) for one in ended),
        key="id",
    )


def _result_row(one: Ended, now: datetime) -> tuple[object, ...]:
    outcome, decision = one.outcome, one.outcome.decision
    usage = outcome.output.usage if outcome.output else Usage()
    if decision is None or decision.status != "scored":
        error, stage = _error_of(outcome)
        head: tuple[object, ...] = (ResultStatus.ERROR.value, "", None, None, "", False)
        head = (*head, error, stage)
    else:
        verdict = decision.verdict.value if decision.verdict else ""
        cell = decision.decided_by[:LONGEST_CELL]
        metrics = _metrics_score(outcome)
        head = (ResultStatus.SCORED.value, verdict, decision.score, metrics, cell)
        head = (*head, _is_forced(decision), "", "")
    return (
        *(*head, _marks(decision), list(decision.warnings) if decision else []),
        *(False, None, "", None, now),
        *(usage.latency_ms, usage.input_tokens, usage.output_tokens),
    )


def _error_of(outcome: ExecutionOutcome) -> tuple[str, str]:
    """Return what went wrong and where, for a result without a verdict."""
    if outcome.failure is not None:
        is_ours = outcome.failure.cause is Cause.UNSTORABLE
        return str(outcome.failure), RECORDING_STAGE if is_ours else TARGET_STAGE
    decision = outcome.decision
    reason = (decision.error if decision else "") or "not scored"
    place = (decision.evaluator if decision else None) or OUTCOMES_PATH
    unscored = {path: one for path, one in outcome.outcomes.items() if isinstance(one, Unscored)}
    # Outcomes that an evaluator of the tree was to judge are told of by its reason alone.
    found = unscored.get(place) or next((o for o in unscored.values() if o.reason in reason), None)
    return reason, found.stage if found else "evaluator"


def _metrics_score(outcome: ExecutionOutcome) -> float | None:
    """Return the score of the evaluator that judged metrics and outcomes in one call, if there is one."""
    found = (one for one in outcome.outcomes.values() if isinstance(one, Score))
    return next((one.score for one in found if "metrics" in one.details), None)


def _is_forced(decision: Decision) -> bool:
    return decision.verdict == "fail" and decision.is_forced


def _marks(decision: Decision | None) -> str:
    outcomes = decision.outcomes if decision else ()
    return "".join("1" if found.passed else "0" for found in outcomes)[:MOST_MARKS]


def write_outputs(ended: Sequence[Ended]) -> None:
    """Write what was answered and scored, in place of what an earlier generation left."""
    again = [one.claim.result_id for one in ended if one.claim.generation > 1]
    if again:
        ScoreRow.objects.filter(result_id__in=again).delete()
        Artifact.objects.filter(result_id__in=again).delete()
        ResultOutput.objects.filter(result_id__in=again).delete()
    answered = [one for one in ended if one.outcome.output is not None]
    insert_rows(ResultOutput, OUTPUT_COLUMNS, (_output_row(one) for one in answered))
    rows = (row for one in answered for row in _score_rows(one))
    insert_rows(ScoreRow, SCORE_COLUMNS, rows)
    _write_files(answered)


def _output_row(one: Ended) -> tuple[object, ...]:
    output, decision = one.outcome.output, one.outcome.decision
    if output is None or decision is None:
        raise AssertionError("an answered execution has an output and a decision")
    outcomes = [
        {"text": found.text, "passed": found.passed, "justification": found.justification}
        for found in decision.outcomes
    ]
    return (
        *(one.claim.result_id, output.text, messages_as_json(output), trace_as_json(output)),
        *(usage_as_json(output.usage), outcomes or None, decision.as_json()),
    )


def _score_rows(one: Ended) -> list[tuple[object, ...]]:
    decision = one.outcome.decision
    if decision is None:
        return []
    return list(score_rows(one.claim.result_id, one.root, one.outcome.outcomes, decision))


def _write_files(ended: Sequence[Ended]) -> None:
    """Write the files that targets left; what has the same content is stored once."""
    left = [
        (one.claim.result_id, path, content)
        for one in ended
        for path, content in (one.outcome.output.files if one.outcome.output else {}).items()
    ]
    if left:
        hashes = FileContent.objects.store(content for _, _, content in left)
        rows = (
            (result_id, path, sha) for (result_id, path, _), sha in zip(left, hashes, strict=True)
        )
        insert_rows(Artifact, ARTIFACT_COLUMNS, rows)
