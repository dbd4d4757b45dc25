"""The runs, rows and files of the charts of a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import BooleanField, Count, ExpressionWrapper, F, Q, QuerySet
from django.urls import reverse

from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags.figures import counted, duration, money, pct
from runs import lists
from runs.charts.drawing import Picture
from runs.charts.figures import (
    Figure,
    Offer,
    dominators,
    score_cost_figure,
)
from runs.charts.trends import SHOWN, TrendFigure, TrendRun, target_trends
from runs.costs import Cost, CostPair, best_value_text, read_costs, with_origins
from runs.formats.tables import csv_text
from runs.lists import Control, ListQuery
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Suite
from runs.results.runs import RunGate, cases_gate, metrics_gate, score_intervals

COSTS: Mapping[str, str] = {
    "total": "Total cost",
    "target": "Target cost",
    "evaluation": "Judge cost",
}
POINTS: Mapping[str, str] = {"latest": "Latest run of each target", "every": "Every run"}
LAST = ("12", "30", "100", "200")


@dataclass(frozen=True, slots=True)
class ChartsQuery(ListQuery):
    """Which completed runs the charts show: of which target, how many, by which cost and figure, which are points."""

    target: str = lists.text()
    last: str = lists.option(LAST, "30")
    cost: str = lists.option(COSTS, "total")
    points: str = lists.option(POINTS, "latest")
    trend: str = lists.option(SHOWN, "score")

    @property
    def cost_label(self) -> str:
        """Return the label of the chosen cost."""
        return COSTS[self.cost]

    @property
    def trend_label(self) -> str:
        """Return the name of the figure of the trend."""
        return SHOWN[self.trend].lower()


HEAVY = ("snapshot", "leaf_scores")
# How the charts describe runs that did not complete, for one and for several.
ENDINGS: Mapping[str, str] = {
    RunStatus.STOPPED: "was cancelled,were cancelled",
    RunStatus.BUDGET_REACHED: "reached its budget,reached their budgets",
    RunStatus.FAILED: "failed,failed",
}


@dataclass(frozen=True, slots=True)
class ChartedRun:
    """A completed run with the figures that charts show; `has_parts` tells whether it has metrics or dimensions.

    `interval` is the 95% interval of its pass rate, `score_interval` that of its mean score,
    `latency_ms` its mean latency; None where there is none. `passed` counts executions.
    """

    number: int
    url: str
    target: str
    suite_version: int
    created_at: datetime
    executions: int
    metrics_gate: RunGate
    cases_gate: RunGate
    interval: tuple[float, float] | None
    latency_ms: float | None
    passed: int
    counts: Mapping[str, int]
    costs: CostPair
    score_interval: tuple[float, float] | None = None
    has_parts: bool = False


def suite_runs(suite: Suite, query: ChartsQuery) -> Sequence[ChartedRun]:
    """Return the last completed runs of a query, oldest first.

    Three queries, and a fourth where the summary of an older run lacks the interval of its score.
    """
    light = _completed_runs(suite, query).annotate(policy_json=F("snapshot__policy")).defer(*HEAVY)
    return chart_runs(list(with_origins(light)[: int(query.last)]), suite.slug)[::-1]


# How many runs the breakdown shows beside each other.
MAX_BROKEN_DOWN = 6


def breakdown_runs(suite: Suite, query: ChartsQuery) -> Sequence[Run]:
    """Return the newest of the charted runs, or of the latest run of each target, the newest first; one query."""
    runs = _completed_runs(suite, query).select_related("suite").defer(*HEAVY, "summary")
    charted = list(runs[: int(query.last)])
    if query.points == "latest":
        charted = list({run.target_name: run for run in charted[::-1]}.values())
        charted.sort(key=lambda run: -run.number)
    return charted[:MAX_BROKEN_DOWN]


def chart_runs(runs: Sequence[Run], slug: str) -> Sequence[ChartedRun]:
    """Return runs of `with_origins`, annotated with `policy_json`, as charts show them; two queries or three."""
    costs, intervals = read_costs(runs), score_intervals(runs)
    return [_charted_run(run, slug, costs[run.pk], intervals[run.pk]) for run in runs]


def missing_runs(suite: Suite, query: ChartsQuery, since: int) -> Sequence[str]:
    """Say which runs from number `since` on are in no chart, and why."""
    is_again = ExpressionWrapper(Q(source_run__isnull=False), BooleanField())
    runs = (
        _against_target(suite, query).filter(number__gte=since).order_by().annotate(again=is_again)
    )
    rows: Any = runs.values_list("again", "status").annotate(total=Count("id"))
    totals = {status: total for again, status, total in rows if not again}
    notes = []
    for status, words in ENDINGS.items():
        if total := totals.get(status, 0):
            singular, plural = words.split(",")
            notes.append(f"{counted(total, 'run')} {singular if total == 1 else plural}")
    if active := sum(totals.get(status, 0) for status in ACTIVE_RUN_STATUSES):
        notes.append(f"{counted(active, 'run')} {'is' if active == 1 else 'are'} still running")
    if rescored := sum(total for again, _, total in rows if again):
        notes.append(f"{counted(rescored, 'run')} only rescored stored outputs")
    return notes


def charted_targets(suite: Suite) -> Sequence[str]:
    """Return the targets of the suite's completed runs by name."""
    runs: Any = suite.runs.filter(status=RunStatus.COMPLETED).order_by("target_name")
    return list(runs.values_list("target_name", flat=True).distinct())


def _completed_runs(suite: Suite, query: ChartsQuery) -> QuerySet[Run]:
    runs = _scoring_runs(suite, query).filter(status=RunStatus.COMPLETED)
    return runs.order_by("-number")


def _scoring_runs(suite: Suite, query: ChartsQuery) -> QuerySet[Run]:
    # A run made from stored scores cost nothing and shows nothing new about its target.
    return _against_target(suite, query).filter(source_run=None)


def _against_target(suite: Suite, query: ChartsQuery) -> QuerySet[Run]:
    runs = suite.runs.all()
    return runs.filter(target_name=query.target) if query.target else runs


def _charted_run(
    run: Run, slug: str, costs: CostPair, score_interval: tuple[float, float] | None
) -> ChartedRun:
    policy = PolicySpec.model_validate(run.policy_json)  # type: ignore[attr-defined]  # annotated above
    summary: Mapping[str, Any] = run.summary or {}
    interval = summary.get("interval")
    distribution: Mapping[str, int] = summary.get("distribution", {})
    return ChartedRun(
        number=run.number,
        url=reverse("runs:run", kwargs={"slug": slug, "number": run.number}),
        target=run.target_name,
        suite_version=run.suite_version,
        created_at=run.created_at,
        executions=run.done_count,
        metrics_gate=metrics_gate(run, policy),
        cases_gate=cases_gate(run, policy),
        interval=(interval[0], interval[1]) if interval else None,
        latency_ms=summary.get("means", {}).get("latency_ms"),
        passed=summary.get("passed", run.pass_count),
        counts={name: count for name, count in distribution.items() if name != "total"},
        costs=costs,
        score_interval=score_interval,
        has_parts=bool(summary.get("metrics") or summary.get("dimensions")),
    )


@dataclass(frozen=True, slots=True)
class ScoreCostRow:
    """A run with its cost in US dollars: in total, per execution and per passed execution.

    All three are None where the cost is not known in full; `known_usd` is the known part, `unpriced`
    holds the costs that lack prices. `beaten_by` dominates the run; a drawn run without one is on the
    Pareto front.
    """

    run: ChartedRun
    cost_usd: Decimal | None
    known_usd: Decimal | None
    unpriced: Sequence[tuple[str, Cost]]
    beaten_by: Offer | None = None

    @property
    def is_drawn(self) -> bool:
        """Tell whether it has both a score and a cost."""
        return self.execution_usd is not None and self.run.metrics_gate.share is not None

    @property
    def execution_usd(self) -> Decimal | None:
        """Return the mean cost of a result."""
        return _each(self.cost_usd, self.run.executions)

    @property
    def passed_result_usd(self) -> Decimal | None:
        """Return the cost per passed result; None when none passed."""
        return _each(self.cost_usd, self.run.passed)


@dataclass(frozen=True, slots=True)
class ScoreCostChart:
    """Score against cost: the figure, the rows of its runs (the cheapest first), and the runs it cannot draw."""

    figure: Figure | None
    drawn: Sequence[ScoreCostRow]
    undrawn: Sequence[ScoreCostRow]

    @property
    def best_value(self) -> str:
        """Say which run has the cheapest passed result, "" where there is nothing to compare."""
        rows = (*self.drawn, *self.undrawn)
        named = {f"{row.run.target} #{row.run.number}": row.passed_result_usd for row in rows}
        return best_value_text(named)

    @property
    def on_front(self) -> int:
        """Return how many runs are on the Pareto front."""
        return sum(row.beaten_by is None for row in self.drawn)

    @property
    def has_unknown_latency(self) -> bool:
        """Tell whether a drawn run has no latency, which makes it a diamond."""
        return any(row.run.latency_ms is None for row in self.drawn)

    @property
    def considered(self) -> int:
        """Return the number of runs, drawn or not."""
        return len(self.drawn) + len(self.undrawn)


def score_cost_chart(runs: Sequence[ChartedRun], query: ChartsQuery) -> ScoreCostChart:
    """Return score against cost for runs that are sorted oldest first."""
    shown = list({run.target: run for run in runs}.values()) if query.points == "latest" else runs
    rows = [_row(run, query.cost) for run in shown]
    drawn = {row.run.number: row for row in rows if row.is_drawn}
    offers = [_offer(row) for row in drawn.values()]
    beaten_by = dominators(offers)
    limit = runs[-1].metrics_gate.limit if runs else None
    return ScoreCostChart(
        figure=score_cost_figure(
            offers,
            axis=f"{query.cost_label} of one result",
            limit=limit,
            hover=lambda offer: _score_cost_hover(drawn[offer.number], beaten_by[offer.number]),
        ),
        drawn=[
            _row(drawn[offer.number].run, query.cost, beaten_by[offer.number])
            for offer in sorted(offers, key=lambda run: (run.cost_usd, -run.score, run.number))
        ],
        undrawn=[row for row in rows if not row.is_drawn][::-1],
    )


def _row(run: ChartedRun, cost: str, beaten_by: Offer | None = None) -> ScoreCostRow:
    costs = {"target": run.costs.run, "evaluation": run.costs.evaluation}
    chosen = costs if cost == "total" else {cost: costs[cost]}
    unpriced = [(name, part) for name, part in chosen.items() if part.is_partial]
    known = [part.usd for part in chosen.values() if part.usd is not None]
    total = sum(known, Decimal(0))
    is_whole = len(known) == len(chosen) and not unpriced
    known_usd = None if unpriced and not total else total
    return ScoreCostRow(run, total if is_whole else None, known_usd, unpriced, beaten_by)


def _offer(row: ScoreCostRow) -> Offer:
    score, cost = row.run.metrics_gate.share, row.execution_usd
    if score is None or cost is None:
        raise ValueError(f"run #{row.run.number} has no score or no cost, so it is no offer")
    run = row.run
    return Offer(run.number, run.target, score, cost, run.latency_ms, run.score_interval, run.url)


def _score_cost_hover(row: ScoreCostRow, beaten_by: Offer | None) -> str:
    """Describe a run in the lines of its tooltip."""
    place = f"dominated by {beaten_by.name}" if beaten_by else "on the Pareto front"
    lines = (
        f"{row.run.target}, run #{row.run.number}",
        f"score {pct(row.run.metrics_gate.share)}",
        f"{money(row.execution_usd)} a result",
        f"mean latency {duration(row.run.latency_ms)}",
        place,
    )
    return "\n".join(lines)


def _each(usd: Decimal | None, count: int | None) -> Decimal | None:
    return None if usd is None or not count else usd / count


NO_RUN = 0


@dataclass(frozen=True, slots=True)
class ChartsPage:
    """Both charts with their tables; `runs` are newest first, `left_out` describes runs in no chart.

    `baseline` is the number of the suite's baseline run, None without one.
    """

    query: ChartsQuery
    targets: Sequence[str]
    runs: Sequence[ChartedRun]
    score_cost: ScoreCostChart
    trend: Picture
    missing_runs: Sequence[str]
    baseline: int | None

    @property
    def has_parts(self) -> bool:
        """Tell whether any run has metrics or dimensions."""
        return any(run.has_parts for run in self.runs)

    @property
    def controls(self) -> Sequence[Control]:
        """Return the fields of the filter bar."""
        targets = ((name, name) for name in self.targets)
        last = ((count, f"Last {count} completed runs") for count in LAST)
        return (
            self.query.select("target", "Target", targets, "All targets"),
            self.query.select("last", "Runs", last),
            self.query.select("cost", "Cost", COSTS.items()),
            self.query.select("points", "Points of score and cost", POINTS.items()),
            self.query.select("trend", "Figure of the trend", SHOWN.items()),
        )


def charts_page(suite: Suite, query: ChartsQuery) -> ChartsPage:
    """Return everything the page of charts shows, in a fixed number of queries."""
    runs = suite_runs(suite, query)
    baseline = suite.baseline_number
    return ChartsPage(
        query=query,
        targets=charted_targets(suite),
        runs=runs[::-1],
        score_cost=score_cost_chart(runs, query),
        trend=suite_trend(runs, baseline, query.trend),
        missing_runs=missing_runs(suite, query, runs[0].number if runs else NO_RUN),
        baseline=baseline,
    )


def suite_trend(runs: Sequence[ChartedRun], baseline: int | None, shown: str) -> Picture:
    """Return the trend of each target over runs of a suite, oldest first, by mean score or pass rate."""
    drawn = [
        TrendRun(
            number=run.number,
            url=run.url,
            target=run.target,
            suite_version=run.suite_version,
            score=_trend_figure(run.metrics_gate, run.score_interval),
            rate=_trend_figure(run.cases_gate, run.interval),
            counts=run.counts,
            is_baseline=run.number == baseline,
        )
        for run in runs
    ]
    gates = (runs[-1].metrics_gate, runs[-1].cases_gate) if runs else ()
    limit = gates[shown == "rate"].limit if gates else None
    return target_trends(drawn, limit=limit, shown=shown)


def _trend_figure(gate: RunGate, ends: tuple[float, float] | None) -> TrendFigure:
    return TrendFigure(gate.share, ends, is_below=gate.state == "failed")


SCORE_COST_COLUMNS = (
    "run",
    "target",
    "suite_version",
    "score",
    "cost",
    "cost_usd",
    "known_cost_usd",
    "unpriced",
    "cost_per_result_usd",
    "cost_per_passed_result_usd",
    "mean_latency_ms",
    "pareto",
    "dominated_by_run",
    "reviews",
)
TREND_COLUMNS = (
    "run",
    "target",
    "suite_version",
    "created_at",
    "mean_score",
    "mean_score_low",
    "mean_score_high",
    "metrics_gate",
    "pass_rate",
    "pass_rate_low",
    "pass_rate_high",
    "cases_gate",
    "reviews",
)


def score_cost_csv(chart: ScoreCostChart, cost: str) -> str:
    """Return the runs of the chart of score and cost as CSV, also those without a point."""
    return csv_text(
        SCORE_COST_COLUMNS, (_score_cost_line(row, cost) for row in (*chart.drawn, *chart.undrawn))
    )


def trend_csv(runs: Sequence[ChartedRun]) -> str:
    """Return the runs of the trend as CSV, the oldest first."""
    return csv_text(TREND_COLUMNS, (_trend_line(run) for run in runs))


def _score_cost_line(row: ScoreCostRow, cost: str) -> Sequence[Any]:
    place = ("dominated" if row.beaten_by else "front") if row.is_drawn else ""
    run = row.run
    unpriced = [
        f"{name}: {part.priced} of {part.answers} {part.noun}s priced"
        for name, part in row.unpriced
    ]
    return (
        *(run.number, run.target, run.suite_version, run.metrics_gate.share, cost),
        *(row.cost_usd, row.known_usd, "; ".join(unpriced)),
        *(row.execution_usd, row.passed_result_usd, run.latency_ms, place),
        row.beaten_by.number if row.beaten_by else None,
        run.cases_gate.reviews,
    )


def _trend_line(run: ChartedRun) -> Sequence[Any]:
    low, high = run.interval or (None, None)
    score_low, score_high = run.score_interval or (None, None)
    return (
        *(run.number, run.target, run.suite_version, run.created_at.isoformat()),
        *(run.metrics_gate.share, score_low, score_high, run.metrics_gate.state),
        *(run.cases_gate.share, low, high, run.cases_gate.state, run.cases_gate.reviews),
    )
