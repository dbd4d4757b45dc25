"""What each evaluator said over a whole run: its mean, and how often it could not score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Count, Min, Q

from evaluators.scoring.tree import walk
from runs.models import Run, Score, ScoreState
from runs.plan import OUTCOMES_PATH, read_plan

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
    """Return the evaluators below the root in tree order; one query."""
    root = read_plan(run.snapshot).root
    turned = {path for path, node in walk(root) if node.is_stored_unturned}
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
        _row(row, is_turned=row["path"] in turned)
        for row in sorted(found, key=lambda row: (row["place"], row["path"]))
    )


def reads_evaluators_at_once(run: Run) -> bool:
    """Tell whether the means are quick enough to come with every answer."""
    nodes = sum(1 for _ in walk(read_plan(run.snapshot).root))
    return run.execution_count * nodes <= MOST_SCORES_AT_ONCE


def _row(row: Mapping[str, Any], *, is_turned: bool) -> EvaluatorRow:
    path, mean = row["path"], row["mean"]
    return EvaluatorRow(
        path=path,
        name=path.rpartition("/")[2],
        depth=path.count("/"),
        mean=1 - mean if is_turned and mean is not None else mean,
        scored=row["scored"],
        unscored=row["unscored"],
        skipped=row["skipped"],
    )
