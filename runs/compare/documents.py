"""A comparison as a document, for the API, files, the command line and share links (SCORING §9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from evaluators.scoring.intervals import RESAMPLES, SIGNIFICANCE
from evaluators.scoring.numbers import percent
from runs.compare.comparison import Comparison
from runs.compare.conclusion import Conclusion, conclude, judge_changes, judge_noise
from runs.compare.evidence import MeasuredChange
from runs.compare.rules import CaseChange, CaseSide, CaseSideFigures, Tolerances
from runs.compare.sides import ComparisonSide
from runs.documents import FIGURES, Document, Dollars, VerdictOrNone
from runs.models.runs import RunStatus
from runs.results.documents import GatesDoc
from runs.results.pairwise import PairwiseDoc, pairwise_documents, run_pairwise
from runs.results.result_documents import EvaluatorState


class ComparisonSideDoc(Document):
    """One of the two runs by its own figures."""

    suite: str
    """The short name of its suite."""
    suite_title: str
    """The title of its suite."""
    run: Annotated[int, FIGURES]
    """Its number in the suite."""
    run_id: int
    """Its id."""
    target: str
    """The name of its target."""
    judge: str
    """The model that judged; empty without a judge."""
    suite_version: int
    """The version of the suite it ran."""
    repetitions: int
    """How often each case ran."""
    status: RunStatus
    """The status of the run."""
    case_count: int
    """How many cases the figures are of."""
    results: Annotated[int, FIGURES]
    """How many results they are of."""
    passed: Annotated[int, FIGURES]
    """How many passed."""
    scored: int
    """How many have a score."""
    timed: int
    """How many have a latency."""
    errors: Annotated[int, FIGURES]
    """How many errored."""
    reviews: int
    """How many decisions of reviewers count."""
    pass_rate: Annotated[float | None, FIGURES]
    """The share of results that passed, 0 to 1; errors count as not passed."""
    mean_score: Annotated[float | None, FIGURES]
    """The mean score, 0 to 1; null where there is none."""
    mean_latency_ms: Annotated[float | None, FIGURES]
    """The mean latency, milliseconds."""
    p95_latency_ms: Annotated[float | None, FIGURES]
    """95 of 100 are as fast or faster, milliseconds."""
    run_cost_usd: Annotated[Dollars | None, FIGURES]
    """What the target cost, US dollars; null where nothing is known."""
    evaluation_cost_usd: Annotated[Dollars | None, FIGURES]
    """What the judges cost, US dollars; null where nothing is known."""
    total_cost_usd: Annotated[Dollars | None, FIGURES]
    """What is known of both costs, US dollars; null where nothing is known."""
    costs_are_partial: Annotated[bool, FIGURES]
    """Whether more was spent than is known."""
    gates: GatesDoc
    """Its two gates, over all its cases."""

    @classmethod
    def make(cls, side: ComparisonSide) -> ComparisonSideDoc:
        """Describe a run by its figures, without its cases."""
        run, figures = side.run, side.figures
        metrics, cases = side.gates
        return cls(
            suite=run.suite.slug,
            suite_title=run.suite.title,
            run=run.number,
            run_id=run.pk,
            target=run.target_name,
            judge=run.judge_name,
            suite_version=run.suite_version,
            repetitions=run.repetitions,
            status=RunStatus(run.status),
            case_count=len(side.cases),
            results=figures.total,
            passed=figures.passed,
            scored=side.scored,
            timed=side.timed,
            errors=side.errors,
            reviews=side.reviews,
            pass_rate=figures.pass_rate,
            mean_score=figures.mean_score,
            mean_latency_ms=figures.mean_latency_ms,
            p95_latency_ms=side.p95_ms,
            run_cost_usd=side.run_cost_usd,
            evaluation_cost_usd=side.evaluation_cost_usd,
            total_cost_usd=side.cost_usd,
            costs_are_partial=side.costs_are_partial,
            gates=GatesDoc(metrics=metrics, cases=cases),
        )


class ConclusionDoc(Document):
    """The conclusion in words."""

    state: Literal["regression", "no regression", "inconclusive"]
    """The conclusion."""
    sentence: str
    """The same in a sentence."""
    limits: str
    """Which regression limits are exceeded."""
    evidence: str
    """What the shared cases show."""
    kind: str
    """What kind of obstacle prevents a conclusion; empty without one."""
    obstacle: str
    """That obstacle in words; empty without one."""
    gates: str
    """Which gates the candidate failed, or were not evaluated; empty if it passed both."""


class DifferenceDoc(Document):
    """A difference between the runs other than their targets."""

    what: str
    """What differs."""
    text: str
    """How it differs."""
    spoils: bool
    """Whether verdicts can differ because of it."""


class ToleranceDoc(Document):
    """How much worse the candidate may be in one figure; reaching it is allowed."""

    value: float
    """The number, in this unit."""
    unit: str
    """The unit."""


class TolerancesDoc(Document):
    """The regression limits that were applied, each with its unit."""

    max_pass_rate_drop: ToleranceDoc
    """A share from 0 to 1."""
    max_avg_score_drop: ToleranceDoc
    """Points of 100."""
    max_latency_increase_pct: ToleranceDoc
    """Percent."""

    @classmethod
    def make(cls, tolerances: Tolerances) -> TolerancesDoc:
        """Describe each regression limit in the unit it is given in."""
        return cls(
            max_pass_rate_drop=ToleranceDoc(
                value=tolerances.max_pass_rate_drop, unit="share, 0 to 1"
            ),
            max_avg_score_drop=ToleranceDoc(
                value=percent(tolerances.max_avg_score_drop), unit="points of 100"
            ),
            max_latency_increase_pct=ToleranceDoc(
                value=tolerances.max_latency_increase_pct, unit="percent"
            ),
        )


class ReasonDoc(Document):
    """A regression limit that was exceeded; shares from 0 to 1, milliseconds and percent for latency."""

    measure: str
    """The figure."""
    baseline: float
    """The figure of the baseline."""
    candidate: float
    """The figure of the candidate."""
    change: float
    """How it changed; percent for latency."""
    limit: float
    """What was allowed; percent for latency."""
    text: str
    """All of it in words."""


class PairedDoc(Document):
    """What the shared cases show of a figure, candidate minus baseline."""

    cases: int
    """How many cases it is of."""
    mean: float | None
    """The mean difference; null without a case."""
    low: float | None
    """The lower end of its 95% interval."""
    high: float | None
    """The upper end of its 95% interval."""
    p: float | None
    """How likely such a change is by chance: corrected by Holm's method, with pass rate and mean score as one
    family, what evaluators measured as another, and evaluators inside composites as a third; null below ten cases."""
    smallest: float | None
    """The smallest change that so many cases show with 80% power."""
    change: Literal["regressed", "improved", "no clear change", "too few cases"] = Field(
        serialization_alias="class"
    )
    """The class of the change."""


class EvidenceDoc(Document):
    """The evidence of the shared cases, and how it was tested."""

    pass_rate: PairedDoc
    """Of the share of passes, 0 to 1."""
    mean_score: PairedDoc
    """Of the score, 0 to 1."""
    pass_rate_test: str = Field(validation_alias="test")
    """How the pass rate was tested."""
    other_test: str = "paired sign-flip permutation test"
    """How the rest was tested."""
    interval: str = "95% bootstrap over cases"
    """What kind the intervals are."""
    level: float = SIGNIFICANCE
    """Below which p a change counts as proven."""
    resamples: int = RESAMPLES
    """How often the cases were resampled."""
    seed: int
    """The seed of the resampling."""
    correction: str = "Holm"
    """The correction for testing several figures."""
    metrics_tested: int = Field(validation_alias="measured_tested")
    """For how many metrics, dimensions and top-level evaluators their p was corrected."""
    inner_evaluators_tested: int = Field(validation_alias="inner_tested")
    """For how many evaluators inside composites their p was corrected."""


class OwnMeanDoc(Document):
    """A run's own mean."""

    mean: float | None
    """The mean; null where there is none."""
    results: int = Field(validation_alias="executions")
    """How many results it is of."""


class MeasuredDoc(PairedDoc):
    """What the shared cases show of something an evaluator measured, on its own scale."""

    kind: str
    """Whether it is an evaluator's score, a metric or a dimension."""
    evaluator: str
    """The evaluator's place in the tree."""
    key: str
    """The metric or dimension; empty for a score."""
    name: str
    """Its name."""
    scale: int
    """The maximum of its scale."""
    baseline_mean: float | None
    """The mean of the baseline's shared cases."""
    candidate_mean: float | None
    """The mean of the candidate's shared cases."""
    interval_excludes_zero: bool
    """Whether the interval excludes 0."""
    baseline_run: OwnMeanDoc
    """Over all of the baseline."""
    candidate_run: OwnMeanDoc
    """Over all of the candidate."""

    @classmethod
    def make(cls, measured: MeasuredChange) -> MeasuredDoc:
        """Describe a figure that evaluators measured."""
        return cls(
            **dict(PairedDoc.model_validate(measured.paired)),
            kind=measured.figure.kind,
            evaluator=measured.figure.path,
            key=measured.figure.key,
            name=measured.name,
            scale=measured.scale,
            baseline_mean=measured.before,
            candidate_mean=measured.after,
            interval_excludes_zero=measured.paired.excludes_zero,
            baseline_run=measured.own[0],
            candidate_run=measured.own[1],
        )


class CaseSideDoc(Document):
    """A case as one run left it."""

    verdict: VerdictOrNone
    """Its verdict; null without one."""
    state: str
    """Its verdict, or why it has none."""
    machine_verdict: VerdictOrNone
    """Where reviewers decided, its verdict without their decisions."""
    reviewed_verdict: VerdictOrNone
    """Where reviewers decided, its verdict with their decisions."""
    mean_score: float | None
    """The mean score of its repetitions, 0 to 1; null where there is none."""
    passed: int
    """How many repetitions passed."""
    scored: int
    """How many have a verdict."""
    results: int
    """How many there are."""
    flaky: bool
    """Whether the verdicts of its repetitions differ."""
    outcomes: int
    """How many expected outcomes were judged."""
    outcomes_met: int
    """How many were met in every repetition."""
    latency_ms: float | None
    """The mean latency, milliseconds."""
    run_cost_usd: Dollars | None
    """What the target cost, US dollars; null where nothing is known."""
    evaluation_cost_usd: Dollars | None
    """What the judges cost, US dollars; null where nothing is known."""
    total_cost_usd: Dollars | None
    """What is known of both costs, US dollars; null where nothing is known."""


class CaseChangeDoc(Document):
    """How one case changed."""

    case: str
    """Its key."""
    title: str = ""
    """Its title."""
    status: Literal["regression", "improvement", "unchanged", "error", "added", "removed"]
    """How it changed."""
    has_flipped: bool
    """Whether it went from pass to not-pass or back."""
    score_change: float | None
    """Candidate minus baseline, −1 to 1; null without both."""
    baseline: CaseSideDoc | None
    """Null where it was added."""
    candidate: CaseSideDoc | None
    """Null where it was removed."""

    @classmethod
    def make(
        cls,
        change: CaseChange,
        title: str,
        figures: tuple[CaseSideFigures | None, CaseSideFigures | None],
    ) -> CaseChangeDoc:
        """Describe how one case changed, from its figures in both runs."""
        # All at once: to create the documents of both sides first takes three times as long.
        return cls.model_validate(
            {
                "case": change.case,
                "title": title,
                "status": change.status,
                "has_flipped": change.has_flipped,
                "score_change": change.score_change,
                "baseline": _side(change.baseline, figures[0]),
                "candidate": _side(change.candidate, figures[1]),
            }
        )


def _side(side: CaseSide | None, figures: CaseSideFigures | None) -> Mapping[str, Any] | None:
    """Return the values of a `CaseSideDoc`; None where the run does not have the case."""
    if side is None or figures is None:
        return None
    return {
        "verdict": side.verdict,
        "state": side.state,
        "machine_verdict": side.machine,
        "reviewed_verdict": side.reviewed,
        "mean_score": side.mean_score,
        "passed": side.passed,
        "scored": side.scored,
        "results": side.executions,
        "flaky": side.is_flaky,
        "outcomes": figures.outcomes,
        "outcomes_met": figures.outcomes_met,
        "latency_ms": figures.latency_ms,
        "run_cost_usd": figures.run_cost_usd,
        "evaluation_cost_usd": figures.evaluation_cost_usd,
        "total_cost_usd": figures.cost_usd,
    }


class CaseFigureDoc(Document):
    """How something that evaluators measured changed in one case, as means of its repetitions."""

    kind: str
    """Whether it is an evaluator's score, a metric or a dimension."""
    evaluator: str
    """The evaluator's place in the tree."""
    key: str
    """The metric or dimension; empty for a score."""
    name: str
    """Its name."""
    scale: int
    """The maximum of its scale."""
    baseline: float | None
    """Its mean in the baseline; null without one."""
    candidate: float | None
    """Its mean in the candidate; null without one."""
    change: float | None
    """Candidate minus baseline; null without both."""


def change_tone(change: float | None) -> str:
    """Return the tone of a change of one case, which is no evidence about the run."""
    return "" if not change else "bad" if change < 0 else "good"


class NodeScoreDoc(Document):
    """What an evaluator gave one result."""

    state: EvaluatorState
    """Whether it scored."""
    score: float | None
    """Its score as it counts, after a negation, 0 to 1; null without one."""
    pass_mark: float | None
    """The score from which on its run shows it as good, 0 to 1; null without one."""
    reaches_mark: bool | None
    """Whether its score is at or above the pass mark; null without either."""


class PartChangeDoc(Document):
    """How one metric or dimension changed."""

    kind: Literal["metric", "dimension"]
    """Which of the two it is."""
    key: str
    """Its key."""
    name: str
    """Its name."""
    scale: int
    """The maximum of its scale."""
    baseline: float | None
    """Its score in the baseline; null without one."""
    candidate: float | None
    """Its score in the candidate; null without one."""
    change: float | None
    """Candidate minus baseline; null without both."""

    @property
    def tone(self) -> str:
        """Return bad for a fall, good for a rise."""
        return change_tone(self.change)


class NodeChangeDoc(Document):
    """How one evaluator changed between two results of a case."""

    evaluator: str
    """Its place in the tree."""
    name: str
    """Its name."""
    label: str
    """Its kind in words."""
    icon: Annotated[str, Field(exclude=True)]
    depth: Annotated[int, Field(exclude=True)]
    is_negated: bool
    """Whether its score counts as 1 minus the score; by the candidate where both have it."""
    baseline: NodeScoreDoc | None
    """Null where the baseline does not have it."""
    candidate: NodeScoreDoc | None
    """Null where the candidate does not have it."""
    change: float | None
    """Candidate minus baseline, −1 to 1; null without both scores."""
    parts: list[PartChangeDoc]
    """Its metrics or dimensions."""

    @property
    def tone(self) -> str:
        """Return bad for a fall, good for a rise."""
        return change_tone(self.change)


class CaseComparisonDoc(CaseChangeDoc):
    """How one case changed, with every evaluator of one repetition."""

    repetition: int
    """Which repetition the evaluators are of, from 1."""
    evaluators: list[NodeChangeDoc]
    """Every evaluator below the root, in tree order."""


class JudgeNoiseDoc(Document):
    """The change of one figure beside the spread of the judges."""

    figure: Literal["mean score", "pass rate"]
    """Which figure."""
    change: float
    """Candidate minus baseline, −1 to 1."""
    band: float
    """How far the judges alone move it at 95%, asked again about the same outputs."""
    is_inside: bool
    """Whether they alone can make this change."""
    measured_by: tuple[int, ...]
    """The numbers of the runs that measured the judges."""
    text: str
    """The same in a sentence."""


class ComparisonDoc(Document):
    """Two runs side by side: the exceeded regression limits and the evidence are two separate facts.

    `evidence` and `metrics` are of the shared cases without errors; the rest are each run's own
    figures (SCORING §9).
    """

    baseline: ComparisonSideDoc
    """The run that the other is compared with."""
    candidate: ComparisonSideDoc
    """The run that is judged."""
    verdict: ConclusionDoc
    """The conclusion in words."""
    differences: list[DifferenceDoc]
    """What else differs, apart from the targets."""
    is_comparable: bool
    """Whether verdicts can only differ because of the target."""
    only_shared_cases: bool
    """Whether the figures are of the shared cases only."""
    tolerances: TolerancesDoc
    """The regression limits that were applied."""
    regression_detected: Annotated[bool, FIGURES]
    """Whether any regression limit is exceeded."""
    reasons: list[ReasonDoc]
    """The regression limits that are exceeded."""
    pass_rate_change: Annotated[float | None, FIGURES]
    """Candidate minus baseline, −1 to 1."""
    score_change: Annotated[float | None, FIGURES]
    """Candidate minus baseline, −1 to 1."""
    latency_change_pct: Annotated[float | None, FIGURES]
    """By how much the mean latency grew, percent."""
    cases_in_both: int
    """How many cases both have."""
    shared_cases: int
    """How many of them have a verdict on both sides."""
    evidence: EvidenceDoc
    """The evidence of those cases."""
    judge_noise: list[JudgeNoiseDoc]
    """What of the changes the judges alone can make; empty unless they were measured."""
    judge_changes: list[str]
    """Judges whose models changed behind their names between the runs, as their replies tell."""
    pairwise: list[PairwiseDoc]
    """How often the candidate's outputs are better, if its evaluators compared them with this baseline's."""
    metrics: list[MeasuredDoc]
    """What evaluators measured: metrics, dimensions, then the score of every evaluator below the root."""
    cases: list[CaseChangeDoc]
    """Every case, in the candidate's order."""


def comparison_document(
    comparison: Comparison, conclusion: Conclusion | None = None
) -> ComparisonDoc:
    """Describe a comparison; `conclusion` replaces the one by the usual rules."""
    runs, candidate = comparison.runs, comparison.candidate.run
    return ComparisonDoc(
        baseline=ComparisonSideDoc.make(comparison.baseline),
        candidate=ComparisonSideDoc.make(comparison.candidate),
        verdict=conclusion or conclude(comparison),
        differences=comparison.differences,
        is_comparable=comparison.is_comparable,
        only_shared_cases=comparison.is_of_shared_cases,
        tolerances=TolerancesDoc.make(comparison.tolerances),
        regression_detected=runs.regression_detected,
        reasons=runs.reasons,
        pass_rate_change=runs.pass_rate_change,
        score_change=runs.score_change,
        latency_change_pct=runs.latency_change_pct,
        cases_in_both=comparison.in_both,
        shared_cases=comparison.shared,
        evidence=comparison.evidence,
        judge_noise=judge_noise(comparison),
        judge_changes=judge_changes(comparison),
        pairwise=pairwise_documents(run_pairwise(candidate))
        if candidate.is_compared_with(comparison.baseline.run)
        else [],
        metrics=[MeasuredDoc.make(measured) for measured in comparison.evidence.measured],
        cases=[case_change_document(comparison, change) for change in comparison.cases],
    )


def case_change_document(comparison: Comparison, change: CaseChange) -> CaseChangeDoc:
    """Describe how one case changed."""
    title = comparison.title(change.case)
    return CaseChangeDoc.make(change, title, comparison.case_figures(change))
