"""The executions of a run as its summary takes them: verdict, score, and what every call of theirs came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import QuerySet, Sum

from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.types import Verdict
from runs.models.ledger import CallPurpose, ModelCall
from runs.models.results import CHUNK, Result, Score, ScoreState
from runs.models.runs import Run
from runs.plan import METRICS_KIND
from runs.summary import Execution

COLUMNS = (
    *("pk", "case__key", "status", "verdict", "score", "is_forced", "reviewed_verdict"),
    *("latency_ms", "input_tokens", "output_tokens", "run_cost_usd", "evaluation_cost_usd"),
)
TOKENS = ("input_tokens", "output_tokens")
NO_TOKENS: tuple[int | None, int | None] = (None, None)


def executions_of(run: Run, *, case: int | None = None, parts: bool = False) -> Iterator[Execution]:
    """Yield the executions in the order of the suite; of one case where its id is given.

    Two queries; `parts` are the scores of metrics and of dimensions, and take a third. Tokens are
    those of all calls, failed and repeated ones included; of a target that is no model of ours they
    are what it reported.
    """
    results = run.results.order_by("position", "repetition", "id")
    calls = ModelCall.objects.filter(run=run)
    if case is not None:
        results = results.filter(case=case)
        # Led by the results alone the database finds the calls by their index.
        calls = ModelCall.objects.filter(result__in=results.order_by().values("pk"))
    tokens = _tokens(calls)
    found = _parts(results) if parts else {}
    is_model = bool((run.snapshot.get("target") or {}).get("model"))
    for row in results.values_list(*COLUMNS).iterator(chunk_size=CHUNK):
        pk, key, status, verdict, score, is_forced, reviewed, latency_ms, *rest = row
        paid, judged = (
            tokens.get((pk, CallPurpose.TARGET)),
            tokens.get((pk, CallPurpose.EVALUATION)),
        )
        target = paid if is_model and paid and paid != NO_TOKENS else (rest[0], rest[1])
        metrics, dimensions = found.get(pk, ({}, {}))
        yield Execution(
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
    """Return the tokens in and out of every result and purpose."""
    sums = {f"{name}_sum": Sum(name) for name in TOKENS}
    rows: Any = calls.order_by().values_list("result_id", "purpose").annotate(**sums)
    return {(result, purpose): (said, answered) for result, purpose, said, answered in rows}


def _parts(
    results: QuerySet[Result],
) -> Mapping[int, tuple[dict[str, float], dict[str, float]]]:
    """Return by result its metrics (0 to 5) and final dimensions (0 to 10); the first judge of each speaks."""
    scores = Score.objects.filter(
        result__in=results.order_by().values("pk"),
        kind__in=(METRICS_KIND, HYBRID_KIND),
        state=ScoreState.SCORED,
    ).order_by("result_id", "position", "id")
    found: dict[int, tuple[dict[str, float], dict[str, float]]] = defaultdict(lambda: ({}, {}))
    rows = scores.values_list("result_id", "details__metrics", "details__dimensions")
    for pk, metrics, dimensions in rows.iterator(chunk_size=CHUNK):
        for metric in metrics or ():
            found[pk][0].setdefault(metric["key"], metric["score"])
        for dimension in dimensions or ():
            if dimension.get("final") is not None:
                found[pk][1].setdefault(dimension["key"], dimension["final"])
    return found
