"""The metrics of a run: what a metrics judge gave on average, evaluator by evaluator and tier by tier."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from evaluators.scoring.tree import walk
from runs.models import Run, Score
from runs.plan import METRICS_KIND, read_plan
from runs.summary import MetricMean, metric_means

# Above this many executions the means come when the run is over: a live page asks every 2 s.
MOST_EXECUTIONS_LIVE = 1_000


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


def metrics_of(run: Run) -> tuple[JudgedMetrics, ...]:
    """Return the means of every metrics judge: of an ended run as they were summed up at its end."""
    means = _means(run)
    return tuple(
        _judged(run, path, tuple(group)) for path, group in groupby(means, key=lambda one: one.path)
    )


def _means(run: Run) -> Iterable[MetricMean]:
    if run.summary:
        return [MetricMean.from_json(one) for one in run.summary.get("metrics", ())]
    is_judged = any(node.kind == METRICS_KIND for _, node in walk(read_plan(run.snapshot).root))
    if not is_judged or run.execution_count > MOST_EXECUTIONS_LIVE:
        return ()
    return metric_means(Score.objects.judged_metrics(run.pk))


def _judged(run: Run, path: str, metrics: tuple[MetricMean, ...]) -> JudgedMetrics:
    by_tier: dict[str, list[MetricMean]] = {}
    for metric in metrics:
        by_tier.setdefault(metric.tier, []).append(metric)
    return JudgedMetrics(
        path=path,
        judged=max(metric.judged for metric in metrics),
        total=run.execution_count,
        tiers=tuple(Tier(name, tuple(listed)) for name, listed in by_tier.items()),
    )
