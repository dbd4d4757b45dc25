"""Stored results: outcomes of evaluators as rows, packed scores for what-if, and executions to sum up."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet, Sum

from evaluators.kinds._base import Output
from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.decision import Decision
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import (
    DomainError,
    Finding,
    Outcome,
    OutcomeResult,
    Score,
    Skipped,
    Unscored,
    Usage,
    Verdict,
)
from runs.engine.plan import METRICS_KIND, OUTCOMES_KIND, OUTCOMES_PATH, is_nested
from runs.models.database import among, read_ids
from runs.models.results import (
    CHUNK,
    CallPurpose,
    EvaluatorScore,
    ModelCall,
    Result,
    ResultOutput,
    ScoreState,
    cost_purpose,
)
from runs.models.results import EvaluatorScore as ScoreRow
from runs.models.runs import Run
from runs.summary.cases import ExecutionRecord
from runs.target_kinds._outputs import output_from_columns

SCORE_COLUMNS = (
    *("result_id", "path", "position", "kind", "state", "score", "raw_score", "scale", "weight"),
    *("stage", "input_tokens", "output_tokens", "cost_usd", "latency_ms", "reasoning"),
    *("findings", "failed_required", "warnings", "details"),
)
NO_USAGE = Usage()
NOT_RUN = Unscored("it was not run")


def score_rows(
    result_id: int, root: EvaluatorSpec, outcomes: Mapping[str, Outcome], decision: Decision
) -> Iterator[tuple[object, ...]]:
    """Yield a row for every node of the tree, composites too, and one for the expected outcomes."""
    position = 0
    for position, (path, node) in enumerate(walk(root)):
        place = (result_id, path, position, node.kind)
        outcome, decided = outcomes.get(path), decision.nodes[path]
        if outcome is not None:
            yield _row(place, outcome, decided.weight)
            continue
        yield (
            *(*place, decided.state, decided.score, decided.score, 1.0, decided.weight),
            *("", None, None, None, None, decided.note, [], [], [], {}),
        )
    expected = outcomes.get(OUTCOMES_PATH)
    if expected is not None:
        yield _row((result_id, OUTCOMES_PATH, position + 1, OUTCOMES_KIND), expected, 0.0)


def metrics_score(outcomes: Mapping[str, Outcome]) -> float | None:
    """Return the score of the evaluator that judges metrics, None without one; of several, the first by path."""
    scores = (outcome for _, outcome in sorted(outcomes.items()) if isinstance(outcome, Score))
    return next((score.score for score in scores if "metrics" in score.details), None)


def _row(place: tuple[int, str, int, str], outcome: Outcome, weight: float) -> tuple[object, ...]:
    if isinstance(outcome, Score):
        usage = outcome.usage
        findings = [
            {"text": finding.text, "passed": finding.passed, "evidence": finding.evidence}
            for finding in outcome.findings
        ]
        raw_score = outcome.score if outcome.raw_score is None else outcome.raw_score
        return (
            *(*place, ScoreState.SCORED.value, outcome.score, raw_score, outcome.scale),
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


def read_outcome(row: ScoreRow, outcomes: tuple[OutcomeResult, ...] | None) -> Outcome:
    """Return the outcome of a row; `outcomes` are the expected outcomes if this evaluator judged them."""
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
        findings=tuple(Finding(**finding) for finding in row.findings),
        details=row.details,
        failed_required=tuple(row.failed_required),
        outcomes=outcomes,
        usage=usage,
        warnings=tuple(row.warnings),
    )


def kept_outcomes(
    rows: Iterable[ScoreRow], output: ResultOutput, *, again: tuple[str, ...]
) -> dict[str, Outcome]:
    """Return the outcomes that stay when only the evaluators at and below the paths run again.

    The composites above them are scored anew, and so is what a gate skipped. Evaluators elsewhere that
    could not score stay unscored, because nobody asked for their calls.
    """
    results = tuple(OutcomeResult(**outcome) for outcome in output.outcomes or ())
    kept: dict[str, Outcome] = {}
    for row in rows:
        if row.state == ScoreState.SKIPPED or any(is_nested(row.path, path) for path in again):
            continue
        supplies = row.path == OUTCOMES_PATH or row.details.get("supplies_outcomes")
        kept[row.path] = read_outcome(row, results if supplies else None)
    return kept


def kept_output(row: ResultOutput, files: Mapping[str, bytes]) -> Output:
    """Return the target's earlier answer with its files."""
    return output_from_columns(row.text, row.messages, row.trace, row.usage, files)


VERSION = 2
# 8 bytes each while they are packed. 100,000 results may have 200 evaluators, or 4,000 results one each of their own.
MAX_PACKED_SCORES = 20_000_000


class TooManyEvaluatorsError(DomainError):
    """A run has so many results and different evaluators that their scores do not fit into memory side by side."""

    code = "too_many_evaluators"


@dataclass(frozen=True, slots=True)
class LeafScores:
    """The scores of evaluators: `scores` has by path one for each of `results`.

    A score is None where the evaluator was not run, False where it could not score, and
    [score, required parts missed] where it missed some.
    """

    results: list[int]
    scores: Mapping[str, Sequence[Any]]

    def known(self, path: str) -> Sequence[float | None]:
        """Return the score of each result as the evaluator gave it; None where there is none."""
        return [
            score[0] if score.__class__ is list else None if score is False else score
            for score in self.scores.get(path, ())
        ]


def unpack_leaf_scores(packed: bytes) -> LeafScores | None:
    """Return the packed scores, None where another version packed them or there were too many."""
    if not packed:
        return None
    content = json.loads(zlib.decompress(packed))
    if content.get("version") != VERSION:
        return None
    return LeafScores(results=content["results"], scores=content["scores"])


def decode_leaf_scores(run_id: int, packed: bytes | memoryview[int] | None) -> LeafScores:
    """Return the scores of a run from its column, or from its rows where nothing or another version packed them.

    Raises TooManyEvaluatorsError.
    """
    scores = unpack_leaf_scores(bytes(packed)) if packed is not None else None
    if scores is None and packed != b"":
        scores = unpack_leaf_scores(pack_leaf_scores(run_id))
    if scores is None:
        raise TooManyEvaluatorsError(
            "The results of this run have too many different evaluators, so it cannot be rescored. "
            "Give evaluators that check the same in many cases the same name."
        )
    return scores


def pack_leaf_scores(run_id: int) -> bytes:
    """Return the scores of all evaluators of a run, small enough to be read at once; b"" for too many.

    Compressed JSON: {"version", "results": [id], "scores": {path: [score of each result]}}, with scores as
    `LeafScores` has them.
    """
    ids = read_ids(Result.objects.filter(run_id=run_id).order_by("position", "repetition", "id"))
    places = {result: place for place, result in enumerate(ids)}
    scores: dict[str, list[Any]] = {}
    rows = EvaluatorScore.objects.filter(result__run_id=run_id).order_by()
    for result, path, state, score, missed in rows.values_list(
        "result_id", "path", "state", "score", "failed_required"
    ).iterator(chunk_size=5000):
        packed_score = score if state == "scored" else False if state == "unscored" else None
        if (column := scores.get(path)) is None:
            if (len(scores) + 1) * len(ids) > MAX_PACKED_SCORES:
                return b""
            column = scores[path] = [None] * len(ids)
        column[places[result]] = [packed_score, missed] if missed else packed_score
    content = {"version": VERSION, "results": [*ids], "scores": scores}
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), level=6)


COLUMNS = (
    *("pk", "case__key", "status", "verdict", "score", "is_forced", "reviewed_verdict"),
    *("latency_ms", "input_tokens", "output_tokens", "run_cost_usd", "evaluation_cost_usd"),
)
TOKENS = ("input_tokens", "output_tokens")
NO_TOKENS: tuple[int | None, int | None] = (None, None)


def read_executions(
    run: Run, *, case: int | None = None, parts: bool = False
) -> Iterator[ExecutionRecord]:
    """Yield the executions of a run, or of one case by its id, in the order of the suite.

    One query finds them, two more read each batch, and a third for `parts`, the scores of metrics and
    dimensions. Tokens include failed and repeated calls. A target that is no model of ours reports its own
    tokens.
    """
    in_order = run.results.order_by("position", "repetition", "id")
    ids = read_ids(in_order if case is None else in_order.filter(case=case))
    is_model = bool((run.snapshot.get("target") or {}).get("model"))
    for start in range(0, len(ids), CHUNK):
        batch = ids[start : start + CHUNK]
        yield from _some_executions(in_order, batch, is_model=is_model, parts=parts)


def _some_executions(
    in_order: QuerySet[Result], ids: Sequence[int], *, is_model: bool, parts: bool
) -> Iterator[ExecutionRecord]:
    tokens = _tokens(ModelCall.objects.filter(result__in=among(ids)))
    judged_parts = _parts(ids) if parts else {}
    # A list: a cursor left open while somebody takes the rows would keep SQLite from being written.
    for row in list(in_order.filter(pk__in=among(ids)).values_list(*COLUMNS)):
        pk, key, status, verdict, score, is_forced, reviewed, latency_ms, *rest = row
        paid, judged = (
            tokens.get((pk, CallPurpose.TARGET)),
            tokens.get((pk, CallPurpose.EVALUATION)),
        )
        target = paid if is_model and paid and paid != NO_TOKENS else (rest[0], rest[1])
        metrics, dimensions = judged_parts.get(pk, ({}, {}))
        yield ExecutionRecord(
            case=key,
            status=status,
            verdict=Verdict(verdict) if verdict else None,
            score=score,
            is_forced=is_forced,
            reviewed_verdict=Verdict(reviewed) if reviewed else None,
            latency_ms=latency_ms,
            input_tokens=target[0],
            output_tokens=target[1],
            run_cost_usd=rest[2],
            evaluation_cost_usd=rest[3],
            metrics=metrics,
            dimensions=dimensions,
            evaluation_input_tokens=(judged or NO_TOKENS)[0],
            evaluation_output_tokens=(judged or NO_TOKENS)[1],
        )


def _tokens(calls: QuerySet[ModelCall]) -> Mapping[tuple[int, str], tuple[int | None, int | None]]:
    """Return input and output tokens by result and purpose."""
    sums = {f"{name}_sum": Sum(name) for name in TOKENS}
    rows: Any = calls.order_by().values_list("result_id", "purpose").annotate(**sums)
    return {
        (result, cost_purpose(purpose)): (sent, received)
        for result, purpose, sent, received in rows
    }


def _parts(
    ids: Sequence[int],
) -> Mapping[int, tuple[dict[str, float], dict[str, float]]]:
    """Return metrics (0 to 5) and final dimensions (0 to 10) by result, from the first judge of each."""
    scores = EvaluatorScore.objects.filter(
        result__in=among(ids),
        kind__in=(METRICS_KIND, HYBRID_KIND),
        state=ScoreState.SCORED,
    ).order_by("result_id", "position", "id")
    parts: dict[int, tuple[dict[str, float], dict[str, float]]] = defaultdict(lambda: ({}, {}))
    rows = scores.values_list("result_id", "details__metrics", "details__dimensions")
    for pk, metrics, dimensions in rows.iterator(chunk_size=CHUNK):
        for metric in metrics or ():
            parts[pk][0].setdefault(metric["key"], metric["score"])
        for dimension in dimensions or ():
            if dimension.get("final") is not None:
                parts[pk][1].setdefault(dimension["key"], dimension["final"])
    return parts
