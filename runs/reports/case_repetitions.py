"""One case over its repetitions in a run: its verdict, means and sums (SCORING §8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.policy import Policy
from runs.models import Case, Run, Score, ScoreState
from runs.models.executions import executions_of
from runs.plan import METRICS_KIND
from runs.summary import (
    CaseSummary,
    DimensionMean,
    MetricMean,
    dimension_means,
    metric_means,
    summarise_case,
)

Parts = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class CaseRepetitions:
    """A case over its repetitions; `state` is what the table of the run shows it in.

    `errors` repetitions are left out of the means, and `left` have not been carried out. What
    `priced` repetitions cost their target is known.
    """

    state: str
    summary: CaseSummary
    errors: int
    left: int
    priced: int
    metrics: tuple[MetricMean, ...]
    dimensions: tuple[DimensionMean, ...]

    @property
    def verdict_words(self) -> str:
        """Say whether verdicts agree, as far as there are several."""
        found = self.summary
        told = f"{found.passed} of {found.scored} passed"
        return f"{told}: verdicts differ." if found.is_flaky else f"{told}."


def case_repetitions(run: Run, case: Case, policy: Policy, state: str) -> CaseRepetitions | None:
    """Return a case over its repetitions; None where each case runs once. Three queries."""
    if run.repetitions == 1:
        return None
    rows = list(executions_of(run, case=case.pk))
    scores = Score.objects.filter(
        result__run=run,
        result__case=case,
        kind__in=(METRICS_KIND, HYBRID_KIND),
        state=ScoreState.SCORED,
    ).order_by()
    parts = list(scores.values_list("position", "path", "details__metrics", "details__dimensions"))
    summary = summarise_case(case.key, rows, policy)
    return CaseRepetitions(
        state=state,
        summary=summary,
        errors=sum(row.status == "error" for row in rows),
        left=summary.executions - summary.ended,
        priced=sum(row.run_cost_usd is not None for row in rows),
        metrics=metric_means(_with(parts, 2)),
        dimensions=dimension_means(_with(parts, 3)),
    )


def _with(parts: Sequence[tuple[Any, ...]], column: int) -> Iterator[tuple[int, str, Parts]]:
    return ((row[0], row[1], row[column]) for row in parts if row[column])
