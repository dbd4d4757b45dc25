"""The page of a comparison: what differs first, then what changed, and every case by harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from evaluators.templatetags.figures import delta, duration, money, pct, plain, points
from runs.comparison import ADDED, REMOVED, Paired, Tolerances
from runs.models import RunStatus
from runs.reports.comparison import Compared, Side
from runs.reports.comparison_evidence import ComparisonEvidence, evidence_of
from runs.reports.comparison_headline import Headline, headline, p_words
from runs.reports.comparison_query import SHARED, ComparisonQuery
from runs.reports.comparison_rows import STATES, Cell, ChangeTable, change_table, matrix
from runs.reports.configuration_comparison import (
    ConfigurationComparison,
    configuration_comparison,
)

TONES = {"regressed": "bad", "improved": "good"}


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of both runs: its change, whether its tolerance is kept, and what the cases say."""

    name: str
    change: float | Decimal | None
    unit: str
    before: str
    after: str
    note: str
    limit: str
    state: str
    tone: str
    said: Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """Everything the page of a comparison shows."""

    found: Compared
    query: ComparisonQuery
    evidence: ComparisonEvidence
    headline: Headline
    measures: Sequence[Measure]
    counts: tuple[Mapping[str, int], Mapping[str, int]]
    matrix: Sequence[tuple[str, Sequence[Cell]]]
    table: ChangeTable
    in_both: int
    flips: int
    unfinished: Sequence[str]
    configuration: ConfigurationComparison

    @property
    def is_of_one_suite(self) -> bool:
        """Tell whether both runs are of the same suite."""
        return self.found.baseline.run.suite_id == self.found.candidate.run.suite_id

    @property
    def is_shared(self) -> bool:
        """Tell whether the figures are those of the shared cases alone."""
        return self.query.cases == SHARED

    @property
    def has_other_cases(self) -> bool:
        """Tell whether a case is in one run alone."""
        return self.in_both < len(self.found.cases)

    @property
    def out_of_grid(self) -> int:
        """Return how many cases of both have no verdict on a side."""
        return self.in_both - self.found.shared


def comparison_page(
    found: Compared, tolerances: Tolerances, query: ComparisonQuery
) -> ComparisonPage:
    """Return the page; beside what was compared it takes two queries at most."""
    said = evidence_of(found)
    cells = matrix(found, query)
    sides = found.baseline, found.candidate
    return ComparisonPage(
        found=found,
        query=query,
        evidence=said,
        headline=headline(found, said),
        measures=_measures(found, tolerances, said),
        counts=(_counts(found.baseline), _counts(found.candidate)),
        matrix=cells,
        table=change_table(found, query),
        in_both=sum(one.status not in (ADDED, REMOVED) for one in found.cases),
        flips=sum(cell.count for _, row in cells for cell in row if not cell.is_same),
        unfinished=[_unfinished(one) for one in sides if one.run.status != RunStatus.COMPLETED],
        configuration=configuration_comparison(found.baseline.run, found.candidate.run),
    )


def _counts(side: Side) -> Mapping[str, int]:
    return Counter(STATES.get(case.state, case.state) for case in side.cases.values())


def _unfinished(side: Side) -> str:
    status = RunStatus(side.run.status).label.lower()
    return f"Run #{side.run.number} of {side.run.suite.title} is not completed ({status})"


def _measures(found: Compared, limits: Tolerances, said: ComparisonEvidence) -> tuple[Measure, ...]:
    before, after, runs = found.baseline.figures, found.candidate.figures, found.runs
    slower = runs.latency_change_pct
    broken = {one.measure for one in runs.reasons}
    latency = before.mean_latency_ms, after.mean_latency_ms
    return (
        Measure(
            "Pass rate",
            runs.pass_rate_change,
            "pts",
            pct(before.pass_rate),
            pct(after.pass_rate),
            f"{before.passed} of {before.total} → {after.passed} of {after.total} executions",
            _drop(limits.max_pass_rate_drop),
            _kept("pass rate", broken, runs.pass_rate_change),
            TONES.get(said.pass_rate.change, ""),
            _said(said.pass_rate),
        ),
        Measure(
            "Mean score",
            runs.score_change,
            "pts",
            pct(before.mean_score),
            pct(after.mean_score),
            "",
            _drop(limits.max_avg_score_drop),
            _kept("mean score", broken, runs.score_change),
            TONES.get(said.mean_score.change, ""),
            _said(said.mean_score),
        ),
        Measure(
            "Latency, mean",
            None if slower is None else slower / 100,
            "pct",
            duration(latency[0]),
            duration(latency[1]),
            "",
            f"Limit: +{plain(limits.max_latency_increase_pct)}%",
            _kept("mean latency", broken, slower),
            "",
            (),
        ),
        _cost(found.baseline, found.candidate),
    )


def _cost(before: Side, after: Side) -> Measure:
    was, now = before.cost_usd, after.cost_usd
    return Measure(
        "Total cost",
        now / was - 1 if was and now is not None else None,
        "pct",
        money(was),
        money(now),
        "",
        "No limit",
        "",
        "",
        (
            f"Run {money(before.run_cost_usd)} → {money(after.run_cost_usd)}",
            f"Evaluation {money(before.evaluation_cost_usd)} → {money(after.evaluation_cost_usd)}",
        ),
    )


def _drop(limit: float) -> str:
    return f"Limit: drop of {points(limit)}" if limit else "Limit: no drop"


def _kept(measure: str, broken: set[str], change: float | None) -> str:
    if change is None:
        return ""
    return "fail" if measure in broken else "pass"


def _said(one: Paired) -> Sequence[str]:
    """Return the interval over the shared cases, the p, and the least change they can show."""
    if one.mean is None or one.low is None or one.high is None:
        return ("No shared case has a verdict on both sides",)
    interval = f"{_signed(one.mean)} over shared cases, 95% CI {_signed(one.low)} to {_signed(one.high)} pts"
    tested = f", {p_words(one.p)}" if one.p is not None else ""
    told = [f"{interval}{tested}, n = {one.cases}"]
    if one.smallest is not None:
        told.append(f"Smallest change that shows at 80% power: {points_down(one.smallest)}")
    elif one.p is None:
        told.append("Too few cases to tell a change from chance")
    return told


def _signed(share: float) -> str:
    return delta(share, "pts").removesuffix("\u00a0pts")


def points_down(share: float) -> str:
    """Spell a size in points with one decimal: `4.2 pts`."""
    return f"{share * 100:.1f}\u00a0pts"
