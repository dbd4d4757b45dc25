"""What each evaluator said over a whole run: its mean, and how often it could not score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Count, Min, Q, Sum

from evaluators.scoring.tree import Node, walk
from runs.models import Run, Score, ScoreState
from runs.plan import OUTCOMES_PATH, read_plan
from runs.reports.turned_scores import turned_paths, turned_paths_of_cases

# Above this many scores the means are read after the page, so that the page never waits for them.
MOST_SCORES_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class EvaluatorRow:
    """One evaluator of the tree over the run: the mean of the results it scored, 0 to 1."""

    path: str
    name: str
    depth: int
    mean: float | None
    scored: int
    unscored: int
    skipped: int


def evaluators_of(run: Run) -> tuple[EvaluatorRow, ...]:
    """Return the evaluators below the root in tree order; three queries at most.

    One that is negated has the mean of what counts, more being better, also where cases alone have it.
    """
    root = read_plan(run.snapshot).root
    turned, by_cases = turned_paths(root), _means_by_cases(run, root)
    rows = Score.objects.filter(result__run=run).exclude(path__in=("", OUTCOMES_PATH))
    found = (
        rows.order_by()
        .values("path")
        .annotate(
            place=Min("position"),
            mean=Avg("score", filter=Q(state=ScoreState.SCORED)),
            scored=Count("id", filter=Q(state=ScoreState.SCORED)),
            unscored=Count("id", filter=Q(state=ScoreState.UNSCORED)),
            skipped=Count("id", filter=Q(state=ScoreState.SKIPPED)),
        )
    )
    return tuple(
        _row(row, by_cases, is_turned=row["path"] in turned)
        for row in sorted(found, key=lambda row: (row["place"], row["path"]))
    )


def reads_evaluators_at_once(run: Run) -> bool:
    """Tell whether the means are quick enough to come with every answer."""
    nodes = sum(1 for _ in walk(read_plan(run.snapshot).root))
    return run.execution_count * nodes <= MOST_SCORES_AT_ONCE


def _means_by_cases(run: Run, root: Node) -> Mapping[str, float]:
    """Return the means of the paths that are negated in some cases and not, or not there, in the suite."""
    turned, of_cases = turned_paths(root), turned_paths_of_cases(run, root)
    paths = {path for own in of_cases.values() for path in own ^ turned}
    if not paths:
        return {}
    rows = Score.objects.filter(result__run=run, path__in=paths, state=ScoreState.SCORED)
    found = rows.order_by().values_list("path", "result__case__key")
    sums: dict[str, list[tuple[float, int]]] = {}
    for path, key, total, count in found.annotate(total=Sum("score"), count=Count("id")):
        is_turned = path in of_cases.get(key, turned)
        sums.setdefault(path, []).append((count - total if is_turned else total, count))
    return {
        path: math.fsum(total for total, _ in parts) / sum(count for _, count in parts)
        for path, parts in sums.items()
    }


def _row(row: Mapping[str, Any], by_cases: Mapping[str, float], *, is_turned: bool) -> EvaluatorRow:
    path, mean = row["path"], row["mean"]
    counted = 1 - mean if is_turned and mean is not None else mean
    return EvaluatorRow(
        path=path,
        name=path.rpartition("/")[2],
        depth=path.count("/"),
        mean=by_cases.get(path, counted),
        scored=row["scored"],
        unscored=row["unscored"],
        skipped=row["skipped"],
    )
