"""The results of a run as files: a line for each execution, a table for spreadsheets, and JUnit."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import Case, CharField, Count, F, Max, Q, Sum, Value, When
from django.db.models.functions import Left

from evaluators.kinds import shortest_spelling
from evaluators.kinds._refusals import UnknownKindError
from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import combined_cost, rounded
from evaluators.scoring.tree import ROOT_PATH, EvaluatorSpec, below, pass_marks, walk
from evaluators.scoring.types import Finding, OutcomeResult, Usage
from evaluators.templatetags.figures import pct
from runs.costs import CostPair, booked_usd, read_result_costs
from runs.engine.plan import (
    DELIBERATION_KIND,
    METRICS_KIND,
    OUTCOMES_KIND,
    OUTCOMES_PATH,
    PAIRWISE_KIND,
    Plan,
    case_tree,
    read_plan,
)
from runs.exports.specs import MAX_BYTES_AT_ONCE, MAX_ROWS_AT_ONCE, ExportSpec, file_kind
from runs.filters.queries import (
    CaseRow,
    ResultsQuery,
    in_state,
    matching_cases,
    ordered_cases,
)
from runs.formats.junit import MAX_OUTPUT_LENGTH, JUnitRun, write_junit
from runs.formats.results_writing import EvaluatorLine, ResultLine, write_results
from runs.formats.results_writing import walk_lines as walk_line
from runs.formats.tables import csv_parts
from runs.models.database import JsonInside, TextBytes, among, database_now, read_ids
from runs.models.judgings import sample_shares
from runs.models.results import (
    EvaluatorScore,
    ExternalScore,
    Result,
    ResultOutput,
    ResultStatus,
    ScoreState,
    parts_of_size,
)
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import Run
from runs.models.search import conversation_text
from runs.requests import get_run_or_404
from runs.results.case_rows import (
    Column,
    ResultRow,
    case_rows,
    table_columns,
    unknown_names,
    with_cells,
)
from runs.results.documents import case_lines
from runs.results.external_scores import ExternalScoreDoc, external_scores
from runs.results.groups import group_list, group_rows
from runs.results.judge_figures import result_spreads, sampled_paths
from runs.results.result_state import cause_text, result_cause
from runs.results.run_figures import run_repetitions
from runs.results.runs import ExitConclusion, cases_gate, conclude, metrics_gate
from runs.summary.judge_spread import JUDGE_SPREAD, SpreadFigures

CHUNK = 1_000
# As many take 75 MB with their findings; a thousand results of 330 evaluators took 500.
MAX_SCORES_AT_ONCE = 50_000
# Their lengths are summed up to a limit.
OUTPUTS_AT_ONCE = 25
# What a line needs. Plain rows take half the time of models, and a case's texts are longer than all of it.
RESULT_COLUMNS = (
    *("pk", "case__key", "case__title", "case__evaluators", "case__evaluators_append"),
    "repetition",
    *("status", "score", "verdict", "reviewed_verdict", "decided_by", "warnings", "finished_at"),
    *("error", "error_stage", "latency_ms", "input_tokens", "output_tokens"),
    *("run_cost_usd", "evaluation_cost_usd"),
)
SCORE_COLUMNS = (
    *("result_id", "path", "kind", "state", "score", "raw_score", "scale", "weight"),
    *("input_tokens", "output_tokens", "cost_usd", "latency_ms", "reasoning", "findings"),
    *("written_details", "is_kept", "sample_scores", "overall_scores"),
)
# Only of these are details in the file; others are many and long.
WITH_DETAILS = (HYBRID_KIND, DELIBERATION_KIND, METRICS_KIND, PAIRWISE_KIND)
OUTPUT_COLUMNS = ("pk", "answer", "outcomes", "removed_at", "removed_by", "cause")
METRIC_PARTS = ("key", "name", "tier", "weight", "binary", "score", "label", "justification")

NOTHING = Value(None, CharField())
# Of the judgings of one result, in its line.
SPREAD_FIGURES = ("judgings", "flips", "deviation")

# What is read of a text in the database, NOTHING for nothing.
Answer = F | Left | Value
# A row of some columns of a model, with their names.
Row = Any


def listed_ids(run: Run, query: ResultsQuery, cases: Sequence[int] | None = None) -> Sequence[int]:
    """Return the results of `cases`, or of those that a list shows, in the order of the suite; raises FilterError."""
    results = run.results.order_by("position", "repetition", "id")
    if cases is not None:
        results = results.filter(case__in=cases)
    elif query.is_narrowed:
        listed = in_state(matching_cases(run, query), query)
        results = results.filter(case__in=listed.values("case_id"))
    return read_ids(results)


def result_lines(
    run: Run, ids: Sequence[int] | None = None, *, longest: int | None = None
) -> Iterator[ResultLine]:
    """Return the executions of a run, perhaps only these, in the order of its suite.

    At most `longest` characters of an answer are read. One query finds them, one asks whether the judge was measured,
    one counts the scores of each 1,000, four more read each batch of them, fewer where they have many evaluators, and
    one each 4 MB of outputs. Raises UnreadableSnapshotError at once for a run of another version.
    """
    answer = F("text") if longest is None else Left("text", longest)
    return _lines(run, read_plan(run.snapshot), ids, answer)


def _lines(run: Run, plan: Plan, ids: Sequence[int] | None, answer: Answer) -> Iterator[ResultLine]:
    for _, line in _results_with_lines(
        run, plan, ids, result_spreads(run), inputs=False, answer=answer
    ):
        yield line


def _results_with_lines(
    run: Run,
    plan: Plan,
    ids: Sequence[int] | None,
    spreads: Mapping[int, SpreadFigures],
    *,
    inputs: bool,
    answer: Answer,
) -> Iterator[tuple[Row, ResultLine]]:
    if ids is None:
        ids = listed_ids(run, ResultsQuery())
    for some in _batches(ids):
        for result, line in _some(run, plan, some, inputs=inputs, answer=answer):
            if (spread := spreads.get(result.pk)) is not None:
                line.judge_spread = {name: getattr(spread, name) for name in SPREAD_FIGURES}
            yield result, line


def _batches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the results in parts whose scores are read together."""
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        found = EvaluatorScore.objects.filter(result_id__in=among(chunk)).order_by()
        counts = dict(found.values_list("result_id").annotate(Count("pk")))
        yield from parts_of_size(chunk, counts, MAX_SCORES_AT_ONCE)


def _some(
    run: Run, plan: Plan, ids: Sequence[int], *, inputs: bool, answer: Answer
) -> Iterator[tuple[Row, ResultLine]]:
    columns = (*RESULT_COLUMNS, "case__input") if inputs else RESULT_COLUMNS
    found = Result.objects.filter(pk__in=among(ids)).order_by()
    results: dict[int, Row] = {row.pk: row for row in found.values_list(*columns, named=True)}
    outputs = _outputs(ids, answer)
    output = next(outputs, None)
    rows: dict[int, dict[str, Row]] = defaultdict(dict)
    has_samples = JUDGE_SPREAD in (run.summary or {})
    # A line has no place for the root.
    scores = (
        EvaluatorScore.objects.filter(result_id__in=among(ids))
        .exclude(path=ROOT_PATH)
        .annotate(
            written_details=Case(When(kind__in=WITH_DETAILS, then="details")),
            # Only such a run has scores of another.
            is_kept=F("details__kept") if run.is_judged_again else Value(False),
            # Only such a run has evaluators with several samples, or measures its judge.
            sample_scores=F("details__sample_scores") if has_samples else NOTHING,
            overall_scores=F("details__overall_scores") if has_samples else NOTHING,
        )
        .order_by()
    )
    for row in scores.values_list(*SCORE_COLUMNS, named=True):
        rows[row.result_id][row.path] = row
    costs = read_result_costs(run, list(results.values()))
    external = external_scores(run, ids)
    for pk in ids:
        # The run may be deleted meanwhile.
        if pk in results:
            own = output if output is not None and output.pk == pk else None
            yield results[pk], _line(run, plan, results[pk], own, rows[pk], costs[pk], external[pk])
        if output is not None and output.pk == pk:
            output = next(outputs, None)


def _outputs(ids: Sequence[int], answer: Answer) -> Iterator[Row]:
    """Return the outputs of results, which have one or none, in the order of the ids."""
    for some in ResultOutput.objects.batches(ids, *(() if answer is NOTHING else ("text",))):
        found = ResultOutput.objects.filter(pk__in=among(some)).order_by()
        # A lookup of `decision__cause` leaves a cycle that holds every output until Python's collector looks for it.
        found = found.annotate(answer=answer, cause=JsonInside("decision", "cause"))
        outputs = {row.pk: row for row in found.values_list(*OUTPUT_COLUMNS, named=True)}
        yield from (outputs[pk] for pk in some if pk in outputs)


def _line(
    run: Run,
    plan: Plan,
    result: Row,
    output: Row | None,
    rows: Mapping[str, Row],
    costs: CostPair,
    external: Sequence[ExternalScoreDoc],
) -> ResultLine:
    root = case_tree(plan.root, result.case__evaluators, append=result.case__evaluators_append)
    is_scored = result.status == ResultStatus.SCORED
    run_usd, evaluation_usd = booked_usd(result, costs)
    return ResultLine(
        suite=run.suite.slug,
        run=run.number,
        target=run.target_name,
        eval_id=result.case__key,
        repetition=result.repetition,
        status=result.status,
        score=_score(result.score) if is_scored else None,
        verdict=result.verdict,
        reviewed_verdict=result.reviewed_verdict,
        decided_by=result.decided_by,
        cause=cause_text(result_cause(result, _cause(output)), result, plan.policy),
        evaluators=(*_evaluators(root, rows), *_outcomes_judge(rows)) if rows else (),
        outcomes=_outcomes(output),
        error=result.error,
        error_stage=result.error_stage,
        warnings=tuple(result.warnings),
        output=_answer(run, output),
        output_removed_at=_moment(output.removed_at) if output else None,
        output_removed_by=output.removed_by if output else "",
        details_removed_at=_moment(run.details_removed_at) if run.lacks_details else None,
        usage=Usage(
            input_tokens=result.input_tokens,
            output_tokens=result.output_tokens,
            latency_ms=result.latency_ms,
        ),
        run_cost_usd=run_usd,
        evaluation_cost_usd=evaluation_usd,
        finished_at=_moment(result.finished_at),
        scale=plan.policy.scale,
        external_scores=tuple(document.as_json() for document in external),
    )


def _cause(output: Row | None) -> Any:
    return json.loads(output.cause) if output is not None and output.cause else None


def _answer(run: Run, output: Row | None) -> str | None:
    """Return the answer; imported results may have none, some were removed, and a table may leave all out."""
    if output is None or output.removed_at is not None or (not output.answer and run.imported_from):
        return None
    answer: str | None = output.answer
    return answer


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _evaluators(
    node: EvaluatorSpec, rows: Mapping[str, Row], path: str = ""
) -> tuple[EvaluatorLine, ...]:
    return tuple(_evaluator(child, rows, below(path, child.name)) for child in node.children)


def _evaluator(node: EvaluatorSpec, rows: Mapping[str, Row], path: str) -> EvaluatorLine:
    row: Row = rows.get(path) or EvaluatorScore(
        path=path, state=ScoreState.UNSCORED, weight=node.weight
    )
    score = None if row.score is None else node.counted_score(row.score)
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
        final_evaluation=(
            row.written_details.get("final_evaluation") if row.kind == HYBRID_KIND else None
        ),
        rounds=tuple(row.written_details.get("rounds") or ())
        if row.kind == DELIBERATION_KIND
        else (),
        spelling=_spelling(node),
        is_kept=path in rows and bool(row.is_kept),
        pass_mark=node.pass_mark,
        reaches_mark=node.reaches_mark(score) if row.state == ScoreState.SCORED else None,
        samples=_samples(node, row) if path in rows else (),
        pair_verdict=row.written_details.get("verdict", "") if row.kind == PAIRWISE_KIND else "",
    )


def _samples(node: EvaluatorSpec, row: Row) -> tuple[float, ...]:
    """Return the scores of several samples as they count."""
    given = sample_shares(row.scale, row.sample_scores, row.overall_scores)
    return tuple(rounded(node.counted_score(score)) for score in given) if len(given) > 1 else ()


def _spelling(node: EvaluatorSpec) -> str:
    """Return the type as suite files write it, "" for kinds that no longer exist."""
    try:
        return shortest_spelling(node.kind, node.config)[0]
    except UnknownKindError:
        return ""


def _outcomes_judge(rows: Mapping[str, Row]) -> tuple[EvaluatorLine, ...]:
    """Return the judge of the expected outcomes where it is not part of the tree."""
    row = rows.get(OUTCOMES_PATH)
    if row is None:
        return ()
    judge = EvaluatorLine(
        name=OUTCOMES_PATH,
        type=OUTCOMES_KIND,
        status=row.state,
        score=_score(row.score),
        weight=0.0,
        findings=_findings(row),
        reasoning=row.reasoning,
        usage=_usage(row),
    )
    return (judge,)


def _metrics(row: Row) -> tuple[Mapping[str, Any], ...]:
    """Return the metrics that a metrics judge scored, in their order."""
    if row.kind != METRICS_KIND:
        return ()
    return tuple(
        {name: metric[name] for name in METRIC_PARTS if name in metric}
        for metric in row.written_details.get("metrics", ())
    )


def _findings(row: Row) -> tuple[Finding, ...]:
    return tuple(
        Finding(finding["text"], bool(finding["passed"]), finding.get("evidence", ""))
        for finding in row.findings
    )


def _usage(row: Row) -> Usage:
    return Usage(
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_usd=row.cost_usd,
        latency_ms=row.latency_ms,
    )


def _outcomes(output: Row | None) -> tuple[OutcomeResult, ...]:
    judged = (output.outcomes if output else None) or ()
    return tuple(
        OutcomeResult(outcome["text"], bool(outcome["passed"]), outcome.get("justification", ""))
        for outcome in judged
    )


def _score(score: float | None) -> float | None:
    return None if score is None else rounded(score)


COLUMNS = (
    *(
        "case",
        "title",
        "repetition",
        "status",
        "verdict",
        "reviewed_verdict",
        "decided_by",
        "cause",
    ),
    *("score", "raw_score", "scale", "outcomes_met", "outcomes"),
    *("latency_ms", "input_tokens", "output_tokens"),
    *("run_cost_usd", "evaluation_cost_usd", "total_cost_usd"),
    *("error_stage", "error", "warnings", "finished_at", "suite", "run", "target"),
)
TEXT_COLUMNS = ("input", "output")
# A row names its case by key and title.
OF_CASE = {"case": ("case", "title"), "tag": ("tags",)}
SCORE, METRIC, DIMENSION = "score", "metric", "dimension"
REACHES_MARK, SAMPLE_SPREAD, PAIRWISE = "reaches_mark", "sample_spread", "pairwise"
# A column of an evaluator: what it holds, the path, and the key of a metric or dimension.
Part = tuple[str, str, str]


def results_csv(
    run: Run, ids: Sequence[int] | None = None, *, texts: bool = False
) -> Iterator[str]:
    """Return the table in parts, perhaps of some results only; missing values are empty, never zero.

    With `texts` it has the input of the case and the answer.

    Scores are 0 to 1, `raw_score` is on the suite's `scale`, those of evaluators are after negation;
    metrics are 0 to 5, dimensions 0 to 10, costs US dollars, latencies milliseconds. `score:` columns
    are named by evaluators' paths, and so are `reaches_mark:` ones, yes or no, of those with a pass mark, and
    `sample_spread:` ones of those with several samples, and `pairwise:` ones, win, tie, loss or inconclusive, of those
    that compare with a baseline; `metric:` and `dimension:` ones by the path and the key,
    `external:` ones by the source and the name, 0 to 1 or a label. Where the judge was measured, `judge_` columns
    say how far the judgings of a result differ. Raises UnreadableSnapshotError for a run of another version.
    """
    found = _results_with_lines(
        run,
        read_plan(run.snapshot),
        ids,
        spreads := result_spreads(run),
        inputs=texts,
        answer=F("text") if texts else NOTHING,
    )
    parts = [*_scores(run), *_judged(run)]
    names = [f"{kind}:{path}/{key}" if key else f"{kind}:{path}" for kind, path, key in parts]
    names += [f"external:{name}" for name in run.external_names]
    names += [f"judge_{name}" for name in SPREAD_FIGURES if spreads]
    rows = (
        [
            *_row(line, result.case__title),
            *((conversation_text(result.case__input), line.output) if texts else ()),
            *_part_scores(line, parts),
            *_external(line, run.external_names),
            *((line.judge_spread or {}).get(name) for name in SPREAD_FIGURES if spreads),
        ]
        for result, line in found
    )
    return csv_parts((*COLUMNS, *(TEXT_COLUMNS if texts else ()), *names), rows)


def _scores(run: Run) -> Iterator[Part]:
    """Yield every evaluator with a score in this run, those of the suite first, each with whether it reaches its mark."""
    stored = EvaluatorScore.objects.filter(result__run=run).order_by().values_list("path", "kind")
    kinds = set(stored.distinct())
    scored = {path for path, _ in kinds} - {ROOT_PATH, OUTCOMES_PATH}
    root = read_plan(run.snapshot).root
    in_order = [path for path, _ in walk(root) if path in scored]
    marked = {*pass_marks(root)}.union(*(pass_marks(tree) for _, _, tree in run.own_trees(root)))
    sampled = sampled_paths(run)
    for path in dict.fromkeys((*in_order, *sorted(scored))):
        yield SCORE, path, ""
        if path in marked:
            yield REACHES_MARK, path, ""
        if path in sampled:
            yield SAMPLE_SPREAD, path, ""
        if (path, PAIRWISE_KIND) in kinds:
            yield PAIRWISE, path, ""


def _judged(run: Run) -> Sequence[Part]:
    """Return every metric and dimension that was judged in this run, in the order of their first scores."""
    scores = EvaluatorScore.objects
    judged = ((METRIC, scores.judged_metrics), (DIMENSION, scores.judged_dimensions))
    return list(
        dict.fromkeys(
            (kind, path, str(entry["key"]))
            for kind, read in judged
            for _, path, entries in read(run.pk)
            for entry in entries or ()
        )
    )


def _row(line: ResultLine, title: str) -> Sequence[Any]:
    costs = line.run_cost_usd, line.evaluation_cost_usd
    usage, outcomes = line.usage, line.outcomes
    raw = None if line.score is None else rounded(line.score * line.scale)
    met = sum(outcome.passed for outcome in outcomes) if outcomes else None
    return (
        *(line.eval_id, title, line.repetition, line.status, line.verdict, line.reviewed_verdict),
        *(line.decided_by, line.cause, line.score, raw, line.scale, met, len(outcomes) or None),
        *(usage.latency_ms, usage.input_tokens, usage.output_tokens, *costs, combined_cost(*costs)),
        *(line.error_stage, line.error, "\n".join(line.warnings), line.finished_at),
        *(line.suite, line.run, line.target),
    )


def _part_scores(line: ResultLine, parts: Sequence[Part]) -> Iterator[Any]:
    """Yield the scores of evaluators, metrics and dimensions in the order of the columns."""
    scores: dict[Part, Any] = {}
    for path, evaluator in walk_line(line.evaluators):
        scores[SCORE, path, ""] = evaluator.score
        if evaluator.reaches_mark is not None:
            scores[REACHES_MARK, path, ""] = "yes" if evaluator.reaches_mark else "no"
        scores[SAMPLE_SPREAD, path, ""] = evaluator.sample_spread
        scores[PAIRWISE, path, ""] = evaluator.pair_verdict or None
        for metric in evaluator.metrics:
            scores[METRIC, path, str(metric["key"])] = metric.get("score")
        dimensions = (evaluator.final_evaluation or {}).get("final_dimensions", {})
        for key, score in dimensions.items():
            scores[DIMENSION, path, key] = score
    yield from map(scores.get, parts)


def _external(line: ResultLine, names: Sequence[str]) -> Iterator[Any]:
    """Yield the external scores in the order of the columns; the label of one without a value."""
    given = {f"{entry['source']}/{entry['name']}": entry for entry in line.external_scores}
    for name in names:
        entry = given.get(name)
        if entry is None:
            yield None
        else:
            yield entry["label"] if entry["score"] is None else entry["score"]


def junit_run(run: Run, conclusion: ExitConclusion, *, url: str) -> JUnitRun:
    """Return the attributes and properties of a run in a JUnit file."""
    policy = run.policy
    rows = run.results.order_by().values_list("status", "verdict", "reviewed_verdict")
    counts = rows.annotate(count=Count("pk"))
    rate = cases_gate(run, policy)
    gates = {"metrics_gate": metrics_gate(run, policy), "cases_gate": rate}
    if run.measures_judge:
        gates = {}
    return JUnitRun(
        name=f"{run.suite.slug} {run}",
        took_ms=run.worked_ms(now=database_now()),
        began_at=run.started_at.isoformat(timespec="seconds") if run.started_at else "",
        repetitions=run.repetitions,
        counts_reviews=policy.count_reviews,
        states={tuple(state): count for *state, count in counts},
        properties={
            "url": url,
            "target": run.target_name,
            "judge": run.judge_name,
            "suite_version": str(run.suite_version),
            "status": run.status,
            "conclusion": conclusion.sentence,
            **{name: f"{gate.state} {pct(gate.share)}" for name, gate in gates.items()},
            **({"reviews": str(rate.reviews)} if rate.reviews else {}),
            **_repetition_properties(run),
        },
    )


def _repetition_properties(run: Run) -> dict[str, str]:
    """Return the figures over the repetitions of a run; none for a run without repetitions."""
    figures = run_repetitions(run)
    if figures is None:
        return {}
    shares = {"all_k_passed": figures.all_passed, "any_k_passed": figures.any_passed}
    spread = {} if figures.spread is None else {"mean_spread": f"{figures.spread:g}"}
    return {
        "repetitions": str(figures.each),
        **{name: f"{share.count} of {share.total}" for name, share in shares.items()},
        "flaky": f"{figures.flaky.count} of {figures.flaky.total}",
        **spread,
    }


def run_fingerprint(run: Run) -> Sequence[Any]:
    """Return values, of which at least one changes whenever results of the run or their reviews change; four queries."""
    reviews = Review.objects.filter(result__run=run).order_by()
    decisions = ("pk", "withdrawn_at", "stale_at")
    items, places = ReviewItem.objects.filter(run=run).order_by(), ("pk", "closed_at")
    return (
        *(run.pk, run.status, run.done_count, run.error_count, run.execution_count, run.score_sum),
        *(run.started_at, run.finished_at, run.outputs_removed_at, run.details_removed_at),
        *(
            run.summary is None,
            run.note,
            run.campaign_id,
            run.removal_id,
            run.suite.baseline_run_id,
        ),
        *reviews.aggregate(*map(Count, decisions), *map(Max, decisions)).values(),
        # Lists filter, group and show by what waits in the queue, also where nobody has decided.
        *items.aggregate(*map(Count, places), *map(Max, places)).values(),
        *run.results.aggregate(Sum("generation"), Max("finished_at")).values(),
        # An attempt that counts again brings back the generation and the time of its result.
        *run.events.filter(kind="attempt").aggregate(Max("pk")).values(),
        *(
            ExternalScore.objects.filter(result__run=run)
            .aggregate(Count("pk"), Max("pushed_at"))
            .values()
            if run.external_names
            else ()
        ),
    )


# What a row of each file takes in the runs of the demo: a result 2,200 to 7,000 bytes, in the mean 4,000.
RESULT_BYTES, TABLE_ROW_BYTES, CASE_BYTES, JUNIT_BYTES = 4_000, 300, 800, 600
# Of a line of JSON. It is shorter in other files, which take the time of these lines.
SCORE_BYTES = 200


def _run_file(run: Run, ending: str, **facts: Any) -> ExportSpec:
    return ExportSpec(
        name=f"{run.suite.slug}-{run.number}{ending}",
        fingerprint=run_fingerprint(run),
        suites=(run.suite_id,),
        **facts,
    )


def _output_bytes(run: Run) -> int:
    """Return the bytes of all outputs of a run, or as many as make its file a large one."""
    outputs = ResultOutput.objects.filter(result__run=run).order_by()
    lengths = outputs.values_list(TextBytes("text"), flat=True)
    total = 0
    for length in lengths.iterator(chunk_size=OUTPUTS_AT_ONCE):
        total += length
        if total > MAX_BYTES_AT_ONCE:
            break
    return total


def _score_bytes(run: Run, rows: int, ids: Sequence[int] | None = None) -> int:
    """Return the bytes of scores for each row of a file of a run, or of these results.

    Of a file that is large by its scores they are as many as make it so.
    """
    of_these = Q(result__run=run) if ids is None else Q(result_id__in=among(ids))
    found = EvaluatorScore.objects.filter(of_these).order_by()
    scores = found[: MAX_BYTES_AT_ONCE // SCORE_BYTES + 1].count()
    return math.ceil(SCORE_BYTES * scores / max(1, rows))


@file_kind("run-results")
def results_file(
    *,
    slug: str,
    number: int,
    is_camel: bool = False,
    query: Mapping[str, str] | None = None,
    cases: Sequence[int] | None = None,
) -> ExportSpec:
    """Describe the file of results of a run, a line of JSON each: all, or those that a list shows, or of `cases`.

    `query` are the parameters of the list. Raises Http404 and FilterError.
    """
    run = get_run_or_404(slug, number)
    return _listed_file(
        run,
        query or {},
        cases,
        ".jsonl",
        row_bytes=RESULT_BYTES,
        texts=True,
        write=lambda ids: write_results(result_lines(run, ids), is_camel=is_camel),
    )


@file_kind("run-table")
def results_table_file(
    *,
    slug: str,
    number: int,
    query: Mapping[str, str] | None = None,
    texts: bool = False,
    cases: Sequence[int] | None = None,
) -> ExportSpec:
    """Describe the table of results of a run: all, or those that a list shows, or of `cases`.

    With `texts` it has input and output. `query` are the parameters of the list. Raises Http404 and FilterError.
    """
    run = get_run_or_404(slug, number)
    return _listed_file(
        run,
        query or {},
        cases,
        ".csv",
        row_bytes=TABLE_ROW_BYTES,
        texts=texts,
        write=lambda ids: results_csv(run, ids, texts=texts),
    )


def _listed_file(
    run: Run,
    query: Mapping[str, str],
    cases: Sequence[int] | None,
    ending: str,
    *,
    row_bytes: int,
    texts: bool,
    write: Callable[[Sequence[int] | None], Iterator[str]],
) -> ExportSpec:
    wanted = ResultsQuery.read(query)
    is_part = wanted.is_narrowed or cases is not None
    ids = listed_ids(run, wanted, cases) if is_part else None
    count = run.execution_count if ids is None else len(ids)
    if count <= MAX_ROWS_AT_ONCE:
        row_bytes = max(row_bytes, _score_bytes(run, count, ids))
        if texts:
            row_bytes += _output_bytes(run) // max(1, run.execution_count)
    spec = _run_file(run, ending, rows=count, row_bytes=row_bytes, write=lambda: write(ids))
    if ids is None:
        return spec
    listed = hashlib.sha256(repr(list(ids)).encode()).hexdigest()
    name = f"{run.suite.slug}-{run.number}-{'filtered' if cases is None else 'selected'}{ending}"
    return replace(spec, name=name, fingerprint=(*spec.fingerprint, listed))


@file_kind("run-view")
def displayed_table_file(
    *, slug: str, number: int, query: Mapping[str, str] | None = None
) -> ExportSpec:
    """Describe the table of cases as a page displays it: its columns, in its order, of what its filter lists.

    `query` are the parameters of the list. Raises Http404 and FilterError.
    """
    run = get_run_or_404(slug, number)
    wanted = ResultsQuery.read(query or {})
    count = in_state(matching_cases(run, wanted), wanted).count()
    spec = _run_file(
        run,
        "-table.csv",
        rows=count,
        row_bytes=TABLE_ROW_BYTES,
        write=lambda: displayed_csv(run, wanted),
    )
    return replace(spec, fingerprint=(*spec.fingerprint, wanted.address()))


def displayed_csv(run: Run, query: ResultsQuery) -> Iterator[str]:
    """Return the cases of a list as a table in parts, a row each, with the columns and the order of its page.

    A list of groups has a row for each group. Units are those of `results_csv`; figures are over the repetitions
    of a case, as on the page.
    """
    unknown = unknown_names(run, query)
    listed = in_state(matching_cases(run, query), query)
    if grouping := group_list(run, query, listed, unknown):
        head, *groups = group_rows(grouping)
        return csv_parts(head, groups)
    sort = ResultsQuery().sort if query.sort.name in unknown else query.sort
    columns = table_columns(run, query.changed(sort=sort), (), unknown)
    cases = ordered_cases(run, listed, sort)
    names = [name for column in columns for name in OF_CASE.get(column.name, (column.name,))]
    return csv_parts(names, _displayed_rows(run, cases, columns))


def _displayed_rows(
    run: Run, cases: Sequence[CaseRow], columns: Sequence[Column]
) -> Iterator[Sequence[Any]]:
    for start in range(0, len(cases), CHUNK):
        for row in with_cells(run, case_rows(run, cases[start : start + CHUNK]), columns):
            yield [cell for column, value in row.cells for cell in _displayed(row, column, value)]


def _displayed(row: ResultRow, column: Column, value: Any) -> Sequence[Any]:
    """Return what the cells of a column hold for a case."""
    drawn: Mapping[str, Sequence[Any]] = {
        "case": (row.key, row.title),
        "verdict": (row.state,),
        "score": (_score(row.score),),
        "spread": (_score(row.spread),),
        "outcomes": (sum(row.outcomes) / len(row.outcomes) if row.outcomes else None,),
        "why": (row.note,),
        "repetitions": (f"{row.passed}/{row.scored}" if row.scored else None,),
        "tag": (", ".join(row.tags),),
    }
    if column.name in drawn:
        return drawn[column.name]
    return (", ".join(value or ()) if column.shape == "names" else value,)


@file_kind("run-cases")
def cases_file(*, slug: str, number: int) -> ExportSpec:
    """Describe the file of every case of a run over its repetitions, a line of JSON each; raises Http404."""
    run = get_run_or_404(slug, number)
    return _run_file(
        run,
        "-cases.jsonl",
        rows=run.case_count,
        # A case takes the time of its executions.
        row_bytes=max(CASE_BYTES * max(1, run.repetitions), _score_bytes(run, run.case_count)),
        write=lambda: case_lines([run]),
    )


@file_kind("run-junit")
def junit_file(*, slug: str, number: int, url: str) -> ExportSpec:
    """Describe the JUnit file of a run, whose page is at `url`; raises Http404."""
    run = get_run_or_404(slug, number)
    return _run_file(
        run,
        "-junit.xml",
        rows=run.execution_count,
        row_bytes=max(JUNIT_BYTES, _score_bytes(run, run.execution_count)),
        write=lambda: write_junit(
            junit_run(run, conclude(run), url=url), result_lines(run, longest=MAX_OUTPUT_LENGTH)
        ),
    )
