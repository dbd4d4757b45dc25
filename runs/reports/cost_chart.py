"""Score against cost: the runs that can be drawn, and beside them those whose cost is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from evaluators.templatetags.figures import duration, execution_money, pct
from runs.charts import Figure, Offer, dominators, score_cost_figure
from runs.reports.charted_runs import ChartedRun
from runs.reports.charts_query import ChartsQuery
from runs.reports.purses import Purse


@dataclass(frozen=True, slots=True)
class CostRow:
    """A run with its cost in US dollars: of the whole run, of one execution and of one passed case.

    All three are None where the cost is not known in full; `known_usd` is what is known of it and
    `unpriced` the purses that lack prices, with their counts. `beaten_by` dominates it; a run that
    is drawn and that nobody beats is on the Pareto front.
    """

    run: ChartedRun
    cost_usd: Decimal | None
    known_usd: Decimal | None
    unpriced: Sequence[tuple[str, Purse]]
    beaten_by: Offer | None = None

    @property
    def is_drawn(self) -> bool:
        """Tell whether it has both a score and a cost."""
        return self.execution_usd is not None and self.run.metrics.share is not None

    @property
    def execution_usd(self) -> Decimal | None:
        """Return what one execution cost on average."""
        return _each(self.cost_usd, self.run.executions)

    @property
    def passed_case_usd(self) -> Decimal | None:
        """Return what the run cost for each case that passed; None when none did."""
        return _each(self.cost_usd, self.run.passed_cases)


@dataclass(frozen=True, slots=True)
class CostChart:
    """The figure, its table (the cheapest first) and the runs that are in the table alone."""

    figure: Figure | None
    drawn: Sequence[CostRow]
    beside: Sequence[CostRow]

    @property
    def on_front(self) -> int:
        """Return how many runs nobody beats."""
        return sum(row.beaten_by is None for row in self.drawn)

    @property
    def has_unknown_latency(self) -> bool:
        """Tell whether a run is drawn as a diamond, because nothing in it reported a latency."""
        return any(row.run.latency_ms is None for row in self.drawn)

    @property
    def considered(self) -> int:
        """Return how many runs there are, drawn or not."""
        return len(self.drawn) + len(self.beside)


def cost_chart(runs: Sequence[ChartedRun], query: ChartsQuery) -> CostChart:
    """Return the chart of runs given oldest first, by the cost and the points that are asked for."""
    shown = list({run.target: run for run in runs}.values()) if query.points == "latest" else runs
    rows = [_row(run, query.cost) for run in shown]
    drawn = {row.run.number: row for row in rows if row.is_drawn}
    offers = [_offer(row) for row in drawn.values()]
    beaten_by = dominators(offers)
    limit = runs[-1].metrics.limit if runs else None
    return CostChart(
        figure=score_cost_figure(
            offers,
            axis=f"{query.cost_label} of one execution",
            limit=limit,
            hover=lambda one: _said(drawn[one.number], beaten_by[one.number]),
        ),
        drawn=[
            _row(drawn[one.number].run, query.cost, beaten_by[one.number])
            for one in sorted(offers, key=lambda one: (one.cost_usd, -one.score, one.number))
        ],
        beside=[row for row in rows if not row.is_drawn][::-1],
    )


def _row(run: ChartedRun, cost: str, beaten_by: Offer | None = None) -> CostRow:
    purses = {"target": run.purses.run, "evaluation": run.purses.evaluation}
    chosen = purses if cost == "total" else {cost: purses[cost]}
    unpriced = [(name, purse) for name, purse in chosen.items() if purse.is_partial]
    known = [purse.usd for purse in chosen.values() if purse.usd is not None]
    total = sum(known, Decimal(0))
    is_whole = len(known) == len(chosen) and not unpriced
    known_usd = None if unpriced and not total else total
    return CostRow(run, total if is_whole else None, known_usd, unpriced, beaten_by)


def _offer(row: CostRow) -> Offer:
    score, cost = row.run.metrics.share, row.execution_usd
    if score is None or cost is None:
        raise ValueError(f"run #{row.run.number} has no score or no cost, so it is no offer")
    return Offer(row.run.number, row.run.target, score, cost, row.run.latency_ms)


def _said(row: CostRow, beaten_by: Offer | None) -> str:
    """Say a run in the lines that are shown where the pointer is."""
    place = f"dominated by {beaten_by.name}" if beaten_by else "on the Pareto front"
    lines = (
        f"{row.run.target}, run #{row.run.number}",
        f"score {pct(row.run.metrics.share)}",
        f"{execution_money(row.execution_usd)} an execution",
        f"mean latency {duration(row.run.latency_ms)}",
        place,
    )
    return "\n".join(lines)


def _each(usd: Decimal | None, count: int | None) -> Decimal | None:
    return None if usd is None or not count else usd / count
