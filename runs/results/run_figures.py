"""Figures of a run by evaluator, metric, dimension and repetition, and its use of tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

from django.db.models import Avg, Count, Min, Q, Sum

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import rank_index
from evaluators.scoring.tree import EvaluatorSpec, negated_paths, pass_marks, walk
from evaluators.scoring.types import SCORE_DIGITS
from runs.engine.plan import METRICS_KIND, OUTCOMES_PATH, read_plan
from runs.filters.fields import Source, field_filter
from runs.filters.language import Operator
from runs.models.results import CallPurpose, EvaluatorScore, ScoreState, cost_purpose
from runs.models.run_cases import repetition_figures
from runs.models.runs import Run
from runs.summary.cases import Latencies, Means, RepetitionFigures
from runs.summary.metrics import DimensionMean, MetricMean, dimension_means, metric_means
from runs.summary.run import Summary

# Above this many executions means appear when the run is over, for a live page reads every 2 s.
MAX_EXECUTIONS_LIVE = 1_000


@dataclass(frozen=True, slots=True)
class Tier:
    """The metrics of one tier; "" where they have none."""

    name: str
    metrics: tuple[MetricMean, ...]


@dataclass(frozen=True, slots=True)
class JudgedMetrics:
    """The metrics of one evaluator over the run, judged in `judged` of `total` executions."""

    path: str
    judged: int
    total: int
    tiers: tuple[Tier, ...]


def metrics_by_judge(run: Run) -> tuple[JudgedMetrics, ...]:
    """Return the means of every metrics judge, from the summary of an ended run."""
    means = _metric_means(run)
    return tuple(
        _judged_metrics(run, path, tuple(group))
        for path, group in groupby(means, key=lambda metric: metric.path)
    )


def _metric_means(run: Run) -> Iterable[MetricMean]:
    if run.summary:
        return [MetricMean.from_json(entry) for entry in run.summary.get("metrics", ())]
    is_judged = any(node.kind == METRICS_KIND for _, node in walk(read_plan(run.snapshot).root))
    if not is_judged or run.execution_count > MAX_EXECUTIONS_LIVE:
        return ()
    return metric_means(EvaluatorScore.objects.judged_metrics(run.pk))


def _judged_metrics(run: Run, path: str, metrics: tuple[MetricMean, ...]) -> JudgedMetrics:
    by_tier: dict[str, list[MetricMean]] = {}
    for metric in metrics:
        by_tier.setdefault(metric.tier, []).append(metric)
    return JudgedMetrics(
        path=path,
        judged=max(metric.judged for metric in metrics),
        total=run.execution_count,
        tiers=tuple(Tier(name, tuple(listed)) for name, listed in by_tier.items()),
    )


@dataclass(frozen=True, slots=True)
class JudgedDimensions:
    """The dimensions of one hybrid judge over the run, judged in `judged` of `total` executions."""

    path: str
    judged: int
    total: int
    dimensions: tuple[DimensionMean, ...]


def dimensions_by_judge(run: Run) -> tuple[JudgedDimensions, ...]:
    """Return the means of every hybrid judge, from the summary of an ended run."""
    return tuple(
        _judged_dimensions(run, path, tuple(group))
        for path, group in groupby(_dimension_means(run), key=lambda dimension: dimension.path)
    )


def _dimension_means(run: Run) -> Iterable[DimensionMean]:
    if run.summary:
        return [DimensionMean.from_json(entry) for entry in run.summary.get("dimensions", ())]
    is_judged = any(node.kind == HYBRID_KIND for _, node in walk(read_plan(run.snapshot).root))
    if not is_judged or run.execution_count > MAX_EXECUTIONS_LIVE:
        return ()
    return dimension_means(EvaluatorScore.objects.judged_dimensions(run.pk))


def _judged_dimensions(
    run: Run, path: str, dimensions: tuple[DimensionMean, ...]
) -> JudgedDimensions:
    judged = max(dimension.final.counted for dimension in dimensions)
    return JudgedDimensions(path, judged, run.execution_count, dimensions)


# Id, key and tree of each case with evaluators of its own.
OwnTrees = Sequence[tuple[int, str, EvaluatorSpec]]
# Above this many scores the means are read after the page.
MAX_SCORES_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class EvaluatorRow:
    """One evaluator of the tree over the run: the mean of the results it scored, 0 to 1.

    `name` is its path where another evaluator has its name; `below` is the filter of the cases that it
    scored below `threshold`, its pass mark or otherwise the threshold of a pass. Of its scores `marked` have a
    pass mark, and `reached` are at or above it; cases with evaluators of their own may have another mark or none.
    """

    path: str
    name: str
    below: str
    mean: float | None
    scored: int
    unscored: int
    skipped: int
    threshold: float
    pass_mark: float | None
    marked: int
    reached: int

    @property
    def share(self) -> float | None:
        """Return the share of the marked scores that reach the pass mark, 0 to 1; None without any."""
        return self.reached / self.marked if self.marked else None


def evaluator_rows(run: Run) -> tuple[EvaluatorRow, ...]:
    """Return the evaluators below the root, the lowest mean first; at most three queries.

    The mean of a negated evaluator is that of the scores that count, also where only some cases have it.
    """
    root = read_plan(run.snapshot).root
    own = run.own_trees(root)
    negated, by_cases = negated_paths(root), _means_by_cases(run, root, own)
    marks, has_mark, reaches = pass_marks(root), *_mark_conditions(root, own)
    is_scored = Q(state=ScoreState.SCORED)
    rows = EvaluatorScore.objects.filter(result__run=run).exclude(path__in=("", OUTCOMES_PATH))
    by_path = (
        rows.order_by()
        .values("path")
        .annotate(
            place=Min("position"),
            mean=Avg("score", filter=is_scored),
            scored=Count("id", filter=is_scored),
            unscored=Count("id", filter=Q(state=ScoreState.UNSCORED)),
            skipped=Count("id", filter=Q(state=ScoreState.SKIPPED)),
            marked=Count("id", filter=is_scored & has_mark),
            reached=Count("id", filter=is_scored & reaches),
        )
    )
    names = Counter(row["path"].rpartition("/")[2] for row in by_path)
    figures = [
        _row(
            row,
            by_cases,
            names,
            run.policy.pass_threshold,
            pass_mark=marks.get(row["path"]),
            is_negated=row["path"] in negated,
        )
        for row in sorted(by_path, key=lambda row: (row["place"], row["path"]))
    ]
    return tuple(sorted(figures, key=lambda row: math.inf if row.mean is None else row.mean))


def reads_evaluators_at_once(run: Run) -> bool:
    """Tell whether the means can be read with every page."""
    nodes = sum(1 for _ in walk(read_plan(run.snapshot).root))
    return run.execution_count * nodes <= MAX_SCORES_AT_ONCE


# Scores count to 9 decimals, so one that is nearer to its mark than this is at it.
AT_MARK = 0.5 * 10**-SCORE_DIGITS


def _mark_conditions(root: EvaluatorSpec, own: OwnTrees) -> tuple[Q, Q]:
    """Return the conditions on scores that their evaluator has a pass mark in their case, and that they reach it."""
    of_suite = ~Q(result__case__in=[case for case, _, _ in own])
    # The root has no mark, so nothing is at its path.
    has_mark = reaches = Q(path="")
    cases: dict[tuple[str, float, bool], list[int]] = {}
    for case, tree in [(0, root), *((case, tree) for case, _, tree in own)]:
        for path, node in walk(tree):
            if node.pass_mark is not None:
                key = (path, node.pass_mark, node.is_stored_before_negation)
                cases.setdefault(key, []).append(case)
    for (path, mark, is_negated), ids in cases.items():
        here = Q(result__case__in=ids)
        marked = Q(path=path) & (here | of_suite if 0 in ids else here)
        limit = {"score__lte": 1 - mark + AT_MARK} if is_negated else {"score__gte": mark - AT_MARK}
        has_mark, reaches = has_mark | marked, reaches | (marked & Q(**limit))
    return has_mark, reaches


def _means_by_cases(run: Run, root: EvaluatorSpec, own: OwnTrees) -> Mapping[str, float]:
    """Return the means of the evaluators whose negation differs between cases and suite."""
    negated = negated_paths(root)
    of_cases = {key: negated_paths(tree) for _, key, tree in own}
    paths = {path for own in of_cases.values() for path in own ^ negated}
    if not paths:
        return {}
    rows = EvaluatorScore.objects.filter(result__run=run, path__in=paths, state=ScoreState.SCORED)
    groups = rows.order_by().values_list("path", "result__case__key")
    sums: dict[str, list[tuple[float, int]]] = {}
    for path, key, total, count in groups.annotate(total=Sum("score"), count=Count("id")):
        is_negated = path in of_cases.get(key, negated)
        sums.setdefault(path, []).append((count - total if is_negated else total, count))
    return {
        path: math.fsum(total for total, _ in parts) / sum(count for _, count in parts)
        for path, parts in sums.items()
    }


def _row(
    row: Mapping[str, Any],
    by_cases: Mapping[str, float],
    names: Mapping[str, int],
    threshold: float,
    *,
    pass_mark: float | None,
    is_negated: bool,
) -> EvaluatorRow:
    if pass_mark is not None:
        threshold = pass_mark
    path, mean = row["path"], row["mean"]
    last = path.rpartition("/")[2]
    name = last if names[last] == 1 else path
    counted = 1 - mean if is_negated and mean is not None else mean
    return EvaluatorRow(
        path=path,
        name=name,
        below=field_filter(Source.EVALUATOR, name, Operator.LESS, threshold),
        mean=by_cases.get(path, counted),
        scored=row["scored"],
        unscored=row["unscored"],
        skipped=row["skipped"],
        threshold=threshold,
        pass_mark=pass_mark,
        marked=row["marked"],
        reached=row["reached"],
    )


NAMES = tuple(field.name for field in fields(RepetitionFigures))


@dataclass(frozen=True, slots=True)
class Proportion:
    """A number of cases out of a total."""

    count: int
    total: int

    @property
    def share(self) -> float | None:
        """Return the share, 0 to 1; None of no cases."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class RunRepetitions:
    """The figures of repeated cases; `cases` is the number of cases of the run."""

    each: int
    cases: int
    all_passed: Proportion
    any_passed: Proportion
    flaky: Proportion
    spread: float | None
    spread_cases: int

    @property
    def is_whole(self) -> bool:
        """Tell whether every repetition of every case has ended."""
        return self.all_passed.total == self.cases


def run_repetitions(run: Run) -> RunRepetitions | None:
    """Return the figures of the repetitions so far; None where each case runs once.

    One query, none for a run with a summary.
    """
    if run.repetitions == 1:
        return None
    repetition_figures = _figures(run)
    return RunRepetitions(
        each=run.repetitions,
        cases=run.case_count,
        all_passed=Proportion(repetition_figures.all_passed, repetition_figures.settled),
        any_passed=Proportion(repetition_figures.any_passed, repetition_figures.settled),
        flaky=Proportion(repetition_figures.flaky, repetition_figures.comparable),
        spread=repetition_figures.spread,
        spread_cases=repetition_figures.spread_cases,
    )


def _figures(run: Run) -> RepetitionFigures:
    summed: dict[str, Any] = run.summary or {}
    if all(name in summed for name in NAMES):
        return RepetitionFigures(**{name: summed[name] for name in NAMES})
    return repetition_figures(run)


TOKENS = ("input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens in and out; None where none were reported."""

    input: int | None
    output: int | None

    @property
    def is_known(self) -> bool:
        """Tell whether any were reported."""
        return self.input is not None or self.output is not None


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Mean, median and 95th percentile of the latencies of `timed` of `executions`, in milliseconds."""

    executions: int
    timed: int
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    target: Tokens
    judges: Tokens


def run_usage(run: Run) -> RunUsage:
    """Return the usage of a run so far, from its summary or by four queries."""
    if run.summary and "timed" in run.summary:
        summary = Summary.from_json(run.summary)
        latencies = Latencies(summary.timed, summary.latency_p50_ms, summary.latency_p95_ms)
        return _usage(run, summary.means, latencies)
    means, timed = _token_means(run)
    return _usage(
        run, means, Latencies(timed, *(_rank(run, share, timed) for share in (0.5, 0.95)))
    )


def _usage(run: Run, means: Means, latencies: Latencies) -> RunUsage:
    return RunUsage(
        executions=run.execution_count,
        timed=latencies.timed,
        mean_ms=means.latency_ms,
        p50_ms=latencies.latency_p50_ms,
        p95_ms=latencies.latency_p95_ms,
        target=Tokens(means.input_tokens, means.output_tokens),
        judges=Tokens(means.evaluation_input_tokens, means.evaluation_output_tokens),
    )


def _token_means(run: Run) -> tuple[Means, int]:
    results = run.results.order_by().aggregate(
        mean=Avg("latency_ms"), timed=Count("latency_ms"), **_token_sums()
    )
    calls: Any = run.model_calls.order_by().values("purpose").annotate(**_token_sums())
    paid: dict[str, Mapping[str, Any]] = {cost_purpose(row["purpose"]): row for row in calls}
    nothing: Mapping[str, Any] = dict.fromkeys(_token_sums())
    judges = paid.get(CallPurpose.EVALUATION, nothing)
    target = paid.get(CallPurpose.TARGET, nothing)
    if not run.snapshot["target"]["model"] or not any(target[name] for name in _token_sums()):
        target = results
    means = Means(
        latency_ms=results["mean"],
        input_tokens=target["input_tokens_sum"],
        output_tokens=target["output_tokens_sum"],
        evaluation_input_tokens=judges["input_tokens_sum"],
        evaluation_output_tokens=judges["output_tokens_sum"],
    )
    return means, results["timed"]


def _token_sums() -> dict[str, Sum]:
    return {f"{name}_sum": Sum(name) for name in TOKENS}


def _rank(run: Run, share: float, timed: int) -> float | None:
    """Return the nearest-rank percentile of the latencies, as in the summary."""
    place = rank_index(share, timed)
    known = run.results.exclude(latency_ms=None).order_by("latency_ms")
    return known.values_list("latency_ms", flat=True)[place : place + 1].first() if timed else None
