"""The results of a run as a table for spreadsheets: a row an execution, read in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evaluators.scoring.numbers import rounded
from evaluators.scoring.tree import ROOT_PATH, walk
from runs.formats.results import ResultLine
from runs.formats.results import walk as walk_line
from runs.models import Run, Score
from runs.plan import OUTCOMES_PATH, read_plan
from runs.reports.csv_text import csv_parts
from runs.reports.result_lines import result_lines
from runs.summary import total_of

COLUMNS = (
    *("case", "title", "repetition", "status", "verdict", "reviewed_verdict", "decided_by"),
    *("score", "raw_score", "scale", "outcomes_met", "outcomes"),
    *("latency_ms", "input_tokens", "output_tokens"),
    *("run_cost_usd", "evaluation_cost_usd", "total_cost_usd"),
    *("error_stage", "error", "warnings", "finished_at", "suite", "run", "target"),
)
SCORE, METRIC, DIMENSION = "score", "metric", "dimension"
# What a column of an evaluator holds, its path, and the key of a metric or dimension.
Part = tuple[str, str, str]


def results_csv(run: Run) -> Iterator[str]:
    """Return the file in parts; what is missing is empty, never zero.

    Scores are 0 to 1, `raw_score` is on the suite's `scale`, those of evaluators are after negation;
    metrics are 0 to 5, dimensions 0 to 10, costs US dollars, latencies milliseconds. `score:` columns
    are named by evaluators' paths, `metric:` and `dimension:` ones by the path and the key. Raises
    UnreadableSnapshotError for a run of another version.
    """
    lines = result_lines(run)
    parts = [*_scores(run), *_judged(run)]
    titles = dict(run.results.values_list("case__key", "case__title"))
    names = [f"{what}:{path}/{key}" if key else f"{what}:{path}" for what, path, key in parts]
    rows = ([*_row(line, titles.get(line.eval_id, "")), *_said(line, parts)] for line in lines)
    return csv_parts((*COLUMNS, *names), rows)


def _scores(run: Run) -> Iterator[Part]:
    """Yield every evaluator that said something in this run: the suite's tree first, then cases' own."""
    stored = Score.objects.filter(result__run=run).order_by().values_list("path", flat=True)
    found = {*stored.distinct()} - {ROOT_PATH, OUTCOMES_PATH}
    in_order = [path for path, _ in walk(read_plan(run.snapshot).root) if path in found]
    yield from ((SCORE, path, "") for path in dict.fromkeys((*in_order, *sorted(found))))


def _judged(run: Run) -> Sequence[Part]:
    """Return every metric and dimension that was judged in this run, in the order they were first."""
    scores = Score.objects
    judged = ((METRIC, scores.judged_metrics), (DIMENSION, scores.judged_dimensions))
    return list(
        dict.fromkeys(
            (what, path, str(one["key"]))
            for what, read in judged
            for _, path, found in read(run.pk)
            for one in found or ()
        )
    )


def _row(line: ResultLine, title: str) -> Sequence[Any]:
    costs = line.run_cost_usd, line.evaluation_cost_usd
    usage, outcomes = line.usage, line.outcomes
    raw = None if line.score is None else rounded(line.score * line.scale)
    met = sum(one.passed for one in outcomes) if outcomes else None
    return (
        *(line.eval_id, title, line.repetition, line.status, line.verdict, line.reviewed_verdict),
        *(line.decided_by, line.score, raw, line.scale, met, len(outcomes) or None),
        *(usage.latency_ms, usage.input_tokens, usage.output_tokens, *costs, total_of(costs)),
        *(line.error_stage, line.error, "\n".join(line.warnings), line.finished_at),
        *(line.suite, line.run, line.target),
    )


def _said(line: ResultLine, parts: Sequence[Part]) -> Iterator[Any]:
    """Yield what the evaluators said under the columns they share with all executions."""
    said: dict[Part, Any] = {}
    for path, one in walk_line(line.evaluators):
        said[SCORE, path, ""] = one.score
        for metric in one.metrics:
            said[METRIC, path, str(metric["key"])] = metric.get("score")
        dimensions = (one.final_evaluation or {}).get("final_dimensions", {})
        for key, score in dimensions.items():
            said[DIMENSION, path, key] = score
    yield from map(said.get, parts)
