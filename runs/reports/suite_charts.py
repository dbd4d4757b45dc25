"""The charts of a suite: what its runs score for what they cost, and how they go from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluators.templatetags.figures import interval, pct
from runs.charts import Figure, TrendPoint, trend_figure
from runs.models import Suite
from runs.reports.baseline import baseline_number
from runs.reports.charted_runs import ChartedRun, charted_runs, charted_targets, left_out
from runs.reports.charts_query import COSTS, LAST, POINTS, ChartsQuery
from runs.reports.cost_chart import CostChart, cost_chart

NO_RUN = 0


@dataclass(frozen=True, slots=True)
class ChartsPage:
    """Both charts with their tables. `runs` are newest first; `left_out` says which are in none.

    `baseline` is the number of the run that others are held against, None without one.
    """

    query: ChartsQuery
    targets: Sequence[str]
    runs: Sequence[ChartedRun]
    cost: CostChart
    trend: Figure | None
    left_out: Sequence[str]
    baseline: int | None

    @property
    def costs(self) -> Sequence[tuple[str, str]]:
        """Return the costs to choose from."""
        return tuple(COSTS.items())

    @property
    def points(self) -> Sequence[tuple[str, str]]:
        """Return which runs can be points of the first chart."""
        return tuple(POINTS.items())

    @property
    def lasts(self) -> Sequence[int]:
        """Return how many runs can be asked for."""
        return LAST


def charts_page(suite: Suite, query: ChartsQuery) -> ChartsPage:
    """Return everything the page of charts shows, in a fixed number of queries."""
    runs = charted_runs(suite, query)
    baseline = baseline_number(suite)
    return ChartsPage(
        query=query,
        targets=charted_targets(suite),
        runs=runs[::-1],
        cost=cost_chart(runs, query),
        trend=_trend(runs, baseline),
        left_out=left_out(suite, query, runs[0].number if runs else NO_RUN),
        baseline=baseline,
    )


def _trend(runs: Sequence[ChartedRun], baseline: int | None) -> Figure | None:
    by_number = {run.number: run for run in runs}
    points = [
        TrendPoint(
            number=run.number,
            suite_version=run.suite_version,
            score=run.metrics.share,
            rate=run.cases.share,
            interval=run.interval,
            is_score_below=run.metrics.state == "failed",
            is_rate_below=run.cases.state == "failed",
            score_interval=run.score_interval,
        )
        for run in runs
    ]
    limits = (runs[-1].metrics.limit, runs[-1].cases.limit) if runs else ()
    return trend_figure(
        points, limits=limits, hover=lambda one: _said(by_number[one.number], baseline)
    )


def _said(run: ChartedRun, baseline: int | None) -> str:
    """Say a run in the lines that are shown where the pointer is."""
    head = f"#{run.number} {run.target}, suite v{run.suite_version}"
    head += ", the baseline" if run.number == baseline else ""
    rate = f"passed {pct(run.cases.share)}{_within(run.interval)}"
    score = f"mean score {pct(run.metrics.share)}{_within(run.score_interval)}"
    return "\n".join((head, score, rate))


def _within(ends: tuple[float, float] | None) -> str:
    return f"; 95% CI: {interval(ends)}" if ends else ""
