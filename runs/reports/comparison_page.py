"""The page of a comparison: what differs first, then what changed, and every case by harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runs.comparison import REGRESSED
from runs.models import RunStatus
from runs.reports.compared import Compared
from runs.reports.comparison_changes import Changes, changes_of
from runs.reports.comparison_conclusion import (
    INCONCLUSIVE,
    NO_REGRESSION,
    REGRESSION,
    Conclusion,
    conclude,
)
from runs.reports.comparison_filters import Cell, ChangeChip
from runs.reports.comparison_measures import Measure, headline_measures
from runs.reports.comparison_metrics import MetricGroup, metric_groups
from runs.reports.comparison_query import IMPROVED as IMPROVED_CASES
from runs.reports.comparison_query import REGRESSED as REGRESSED_CASES
from runs.reports.comparison_query import ComparisonQuery
from runs.reports.comparison_rows import STATES, ChangeTable
from runs.reports.comparison_sides import Side
from runs.reports.configuration_comparison import (
    ConfigurationComparison,
    configuration_comparison,
)

# The shape beside the heading: an inconclusive comparison is neither passed nor failed.
SHAPES = {REGRESSION: "fail", NO_REGRESSION: "pass", INCONCLUSIVE: "borderline"}


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """Everything the page of a comparison shows."""

    found: Compared
    query: ComparisonQuery
    conclusion: Conclusion
    measures: Sequence[Measure]
    metrics: Sequence[MetricGroup]
    counts: tuple[Mapping[str, int], Mapping[str, int]]
    changes: Changes
    unfinished: Sequence[str]
    configuration: ConfigurationComparison

    @property
    def shape(self) -> str:
        """Return the verdict whose shape the heading has; what fails a gate has not passed."""
        if self.conclusion.state == NO_REGRESSION and self.conclusion.gates:
            return SHAPES[INCONCLUSIVE]
        return SHAPES[self.conclusion.state]

    @property
    def tone(self) -> str:
        """Return the tone of the conclusion: good only where gates passed and nothing shows worse cases."""
        if self.conclusion.state != NO_REGRESSION:
            return "bad" if self.conclusion.state == REGRESSION else "warn"
        if self.conclusion.gates:
            return "warn"
        said = self.found.evidence
        return "" if REGRESSED in (said.pass_rate.change, said.mean_score.change) else "good"

    @property
    def matrix(self) -> Sequence[tuple[str, Sequence[Cell]]]:
        """Return the cases by verdict before and now."""
        return self.changes.matrix

    @property
    def table(self) -> ChangeTable:
        """Return the cases as the address asks for them."""
        return self.changes.table

    @property
    def worse(self) -> ChangeChip:
        """Return the filter of the cases that got worse, with their count."""
        return self._chip(REGRESSED_CASES)

    @property
    def better(self) -> ChangeChip:
        """Return the filter of the cases that got better, with their count."""
        return self._chip(IMPROVED_CASES)

    def _chip(self, show: str) -> ChangeChip:
        return next(chip for chip in self.table.chips if chip.show == show)

    @property
    def flips(self) -> int:
        """Return how many shared cases have another verdict than before."""
        return self.changes.flips

    @property
    def out_of_grid(self) -> int:
        """Return how many cases of both have no verdict on a side."""
        return self.changes.out_of_grid

    @property
    def is_of_one_suite(self) -> bool:
        """Tell whether both runs are of the same suite."""
        return self.found.baseline.run.suite_id == self.found.candidate.run.suite_id

    @property
    def is_shared(self) -> bool:
        """Tell whether the figures are those of the shared cases alone."""
        return self.found.is_of_shared_cases

    @property
    def is_rescoring(self) -> bool:
        """Tell whether a run is still being made of the scores of another."""
        runs = self.found.baseline.run, self.found.candidate.run
        return any(run.is_active and run.source_run_id for run in runs)

    @property
    def has_other_cases(self) -> bool:
        """Tell whether a case is in one run alone."""
        return self.found.in_both < len(self.found.cases)


def comparison_page(found: Compared, query: ComparisonQuery) -> ComparisonPage:
    """Return the page; beside what was compared it takes one query."""
    sides = found.baseline, found.candidate
    return ComparisonPage(
        found=found,
        query=query,
        conclusion=conclude(found),
        measures=headline_measures(found),
        metrics=metric_groups(found),
        counts=(_counts(found.baseline), _counts(found.candidate)),
        changes=changes_of(found, query),
        unfinished=[_unfinished(one) for one in sides if one.run.status != RunStatus.COMPLETED],
        configuration=configuration_comparison(found.baseline.run, found.candidate.run),
    )


def _counts(side: Side) -> Mapping[str, int]:
    return Counter(STATES.get(case.state, case.state) for case in side.cases.values())


def _unfinished(side: Side) -> str:
    status = RunStatus(side.run.status).label.lower()
    return f"Run #{side.run.number} of {side.run.suite.title} is not completed ({status})"
