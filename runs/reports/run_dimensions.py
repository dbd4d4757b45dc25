"""The dimensions of a run: what checks, judge and both together gave on average, evaluator by evaluator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.tree import walk
from runs.models import Run, Score
from runs.plan import read_plan
from runs.reports.run_metrics import MOST_EXECUTIONS_LIVE
from runs.summary import DimensionMean, dimension_means


@dataclass(frozen=True, slots=True)
class JudgedDimensions:
    """The dimensions of one hybrid judge over the run, judged in `judged` of `total` executions."""

    path: str
    judged: int
    total: int
    dimensions: tuple[DimensionMean, ...]


def dimensions_of(run: Run) -> tuple[JudgedDimensions, ...]:
    """Return the means of every hybrid judge: of an ended run as they were summed up at its end."""
    return tuple(
        _judged(run, path, tuple(group))
        for path, group in groupby(_means(run), key=lambda one: one.path)
    )


def _means(run: Run) -> Iterable[DimensionMean]:
    if run.summary:
        return [DimensionMean.from_json(one) for one in run.summary.get("dimensions", ())]
    is_judged = any(node.kind == HYBRID_KIND for _, node in walk(read_plan(run.snapshot).root))
    if not is_judged or run.execution_count > MOST_EXECUTIONS_LIVE:
        return ()
    return dimension_means(Score.objects.judged_dimensions(run.pk))


def _judged(run: Run, path: str, dimensions: tuple[DimensionMean, ...]) -> JudgedDimensions:
    judged = max(one.final.counted for one in dimensions)
    return JudgedDimensions(path, judged, run.execution_count, dimensions)
