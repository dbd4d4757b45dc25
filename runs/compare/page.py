"""The page of a comparison: its conclusion, figures and runs, the tolerances, and the choices for the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from django import forms
from django.urls import reverse

from runs.compare.changes import (
    BY_COST,
    BY_DIFFERENCE,
    BY_LATENCY,
    COLUMNS,
    EVERY,
    FLIPPED,
    SHOW_IMPROVED,
    SHOW_REGRESSED,
    SORTS,
    STATES,
    USUAL_COLUMNS,
    Changes,
    ChangeTable,
    ComparisonQuery,
    build_changes,
)
from runs.compare.comparison import Comparison, comparison_heading
from runs.compare.conclusion import (
    INCONCLUSIVE,
    NO_REGRESSION,
    REGRESSION,
    Conclusion,
    JudgeNoise,
    comparability_text,
    conclude,
    judge_changes,
    judge_noise,
)
from runs.compare.evidence import REGRESSED
from runs.compare.measures import (
    ConfigurationComparison,
    Measure,
    MetricGroup,
    configuration_comparison,
    headline_measures,
    metric_groups,
)
from runs.compare.rules import UNITS, Tolerances
from runs.compare.sides import ComparisonSide
from runs.engine.plan import read_policy
from runs.filters.fields import Source
from runs.lists import Chip, Sort
from runs.models.runs import Run, RunStatus
from runs.results.case_rows import unknown_columns
from runs.results.display import HEADINGS, TableDisplay, own_columns, table_display
from runs.results.pairwise import RunPairwise, run_pairwise


@dataclass(frozen=True, slots=True)
class SidePanel:
    """One of the two runs: its role, and how many of its cases have each verdict."""

    role: str
    side: ComparisonSide

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of cases by verdict, or by why they have none."""
        return Counter(STATES.get(case.state, case.state) for case in self.side.cases.values())


# The verdict whose mark the heading shows: an inconclusive comparison has neither passed nor failed.
HEADING_VERDICTS = {REGRESSION: "fail", NO_REGRESSION: "pass", INCONCLUSIVE: "borderline"}


@dataclass(frozen=True)
class ComparisonPage:
    """Everything the page of a comparison shows."""

    comparison: Comparison
    query: ComparisonQuery
    conclusion: Conclusion
    comparability: str
    measures: Sequence[Measure]
    metrics: Sequence[MetricGroup]
    sides: tuple[SidePanel, SidePanel]
    changes: Changes
    unfinished: Sequence[str]
    configuration: ConfigurationComparison

    @property
    def verdict(self) -> str:
        """Return the verdict whose mark the heading shows; a missed gate is no pass."""
        if self.conclusion.state == NO_REGRESSION and self.conclusion.gates:
            return HEADING_VERDICTS[INCONCLUSIVE]
        return HEADING_VERDICTS[self.conclusion.state]

    @property
    def tone(self) -> str:
        """Return the tone of the conclusion: good only where gates passed and no evidence is bad."""
        if self.conclusion.state != NO_REGRESSION:
            return "bad" if self.conclusion.state == REGRESSION else "warn"
        if self.conclusion.gates:
            return "warn"
        evidence = self.comparison.evidence
        changes = evidence.pass_rate.change, evidence.mean_score.change
        return "" if REGRESSED in changes else "good"

    @property
    def table(self) -> ChangeTable:
        """Return the page of cases."""
        return self.changes.table

    @property
    def headline(self) -> Sequence[tuple[Measure, str]]:
        """Return each headline figure with the address of its cases: the flips, else all by what changed most."""
        orders = {
            "Mean score": Sort(BY_DIFFERENCE),
            "Mean latency": Sort(BY_LATENCY, is_descending=True),
            "Total cost": Sort(BY_COST, is_descending=True),
        }
        addresses = (
            self.query.address(show=EVERY, cell="", text="", sort=orders[measure.name])
            if measure.name in orders
            else self.query.address(show=FLIPPED, cell="", text="")
            for measure in self.measures
        )
        return [
            (measure, f"{url}#changes")
            for measure, url in zip(self.measures, addresses, strict=True)
        ]

    @property
    def heading(self) -> str:
        """Return the two runs by their numbers."""
        return comparison_heading(self.comparison.baseline.run, self.comparison.candidate.run)

    @property
    def worse(self) -> Chip:
        """Return the filter of the cases that got worse, with their count."""
        return self._chip(SHOW_REGRESSED)

    @property
    def better(self) -> Chip:
        """Return the filter of the cases that got better, with their count."""
        return self._chip(SHOW_IMPROVED)

    def _chip(self, show: str) -> Chip:
        return next(chip for chip in self.table.chips if chip.value == show)

    @property
    def is_of_one_suite(self) -> bool:
        """Tell whether both runs are of the same suite."""
        return self.comparison.baseline.run.suite_id == self.comparison.candidate.run.suite_id

    @property
    def is_shared(self) -> bool:
        """Tell whether the figures count only the shared cases."""
        return self.comparison.is_of_shared_cases

    @cached_property
    def noise(self) -> Sequence[JudgeNoise]:
        """Return the changes that the judges alone can make; one query."""
        return [noise for noise in judge_noise(self.comparison) if noise.is_inside]

    @property
    def judge_changes(self) -> Sequence[str]:
        """Say which judges' models changed behind their names between the runs."""
        return judge_changes(self.comparison)

    @cached_property
    def pairwise(self) -> RunPairwise | None:
        """Return how often the candidate's outputs are better, if its evaluators compared them with the baseline's."""
        baseline, candidate = self.comparison.baseline.run, self.comparison.candidate.run
        return run_pairwise(candidate) if candidate.is_compared_with(baseline) else None

    @property
    def is_rescoring(self) -> bool:
        """Tell whether one of the runs is still being scored again."""
        runs = self.comparison.baseline.run, self.comparison.candidate.run
        return any(run.is_active and run.source_run_id for run in runs)

    @property
    def has_comparability_notes(self) -> bool:
        """Tell whether there is more to say about how the runs compare than that only the target differs."""
        return bool(
            self.comparison.differences
            or self.unfinished
            or self.is_shared
            or self.has_other_cases
            or not self.comparison.in_both
        )

    @property
    def has_other_cases(self) -> bool:
        """Tell whether only one run has some case."""
        return self.comparison.in_both < len(self.comparison.cases)


def comparison_page(comparison: Comparison, query: ComparisonQuery) -> ComparisonPage:
    """Return the page of a comparison; one more query than the comparison."""
    sides = comparison.baseline, comparison.candidate
    conclusion = conclude(comparison)
    return ComparisonPage(
        comparison=comparison,
        query=query,
        conclusion=conclusion,
        comparability=comparability_text(comparison),
        measures=headline_measures(comparison, is_conclusive=conclusion.state != INCONCLUSIVE),
        metrics=metric_groups(comparison),
        sides=(
            SidePanel("baseline", comparison.baseline),
            SidePanel("candidate", comparison.candidate),
        ),
        changes=build_changes(comparison, query),
        unfinished=[
            _unfinished(change) for change in sides if change.run.status != RunStatus.COMPLETED
        ],
        configuration=configuration_comparison(comparison.baseline.run, comparison.candidate.run),
    )


def _unfinished(side: ComparisonSide) -> str:
    status = RunStatus(side.run.status).label.lower()
    return f"Run #{side.run.number} of {side.run.suite.title} is not completed ({status})"


class TolerancesForm(forms.Form):
    """Three numbers in the units of the command line; an empty field takes the number of the suite."""

    max_pass_rate_drop = forms.FloatField(
        label="Largest drop in pass rate",
        help_text="a share from 0 to 1",
        required=False,
        min_value=0,
        max_value=1,
    )
    max_avg_score_drop = forms.FloatField(
        label="Largest drop in mean score",
        help_text="points of 100",
        required=False,
        min_value=0,
        max_value=100,
    )
    max_latency_increase_pct = forms.FloatField(
        label="Largest rise in mean latency", help_text="percent", required=False, min_value=0
    )

    def __init__(self, usual: Tolerances, entered: dict[str, str]) -> None:
        """Show the entered numbers, and the usual ones in empty fields."""
        self.usual, self.entered = usual, entered
        shown = {name: f"{getattr(usual, name) * unit:.10g}" for name, unit in UNITS.items()}
        super().__init__(data=shown | entered, use_required_attribute=False)
        for field in self.fields.values():
            field.widget.attrs["step"] = "any"

    @property
    def tolerances(self) -> Tolerances:
        """Return the tolerances that were entered; the suite's where a number cannot be read."""
        self.is_valid()
        return self.usual.with_entered(
            {name: self.cleaned_data.get(name) for name in self.entered if name in UNITS}
        )


def comparison_display(
    query: ComparisonQuery, *runs: Run, up: str = "", down: str = ""
) -> TableDisplay:
    """Return the choices for the table of a comparison, after a column was moved up or down."""
    return table_display(
        query,
        USUAL_COLUMNS,
        [(HEADINGS[Source.CASE], list(COLUMNS.values())), *own_columns(*runs)],
        unknown=unknown_columns((*query.columns, query.sort.name), *runs, columns=COLUMNS),
        sorts=SORTS,
        columns=COLUMNS,
        moves=(up, down),
        page_url=reverse("runs:compare"),
        url=reverse("runs:compare"),
        here=reverse("runs:compare-display"),
        target="changes",
    )


def tolerances_form(query: ComparisonQuery, candidate: Run) -> TolerancesForm:
    """Return the form with the tolerances of the address; raises UnreadableSnapshotError."""
    usual = Tolerances.from_policy(read_policy(candidate.snapshot))
    return TolerancesForm(usual, dict(query.limits))
