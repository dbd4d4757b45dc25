"""A run as a document: what lists, its file, the API, the command line and share links say of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import AliasPath, Field

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import mean, rounded
from runs.costs import CostPair, run_costs
from runs.documents import FIGURES, Document, Dollars, TextOrNone, VerdictOrNone
from runs.engine.plan import BASELINE, CHANGED
from runs.models.database import read_ids
from runs.models.results import EvaluatorScore, ScoreState
from runs.models.runs import Run, RunStatus
from runs.models.stored import read_executions
from runs.results.judge_figures import JudgeSpreadDoc, run_spread
from runs.results.pairwise import PairwiseDoc, pairwise_documents, run_pairwise
from runs.results.run_figures import RunRepetitions, run_repetitions
from runs.results.runs import conclude, run_row, with_list_columns
from runs.suites.documents import PolicyDoc
from runs.summary.cases import CaseSummary, summarise_case
from runs.summary.run import Summary

CHUNK = 2000

GateState = Literal["passed", "failed", "open", "early", "on_course", "at_risk", "out_of_reach"]
Interval = tuple[float, float] | None


class GateDoc(Document):
    """One of the two gates of a run."""

    share: Annotated[float | None, FIGURES]
    """The mean score, or the share of results that passed, 0 to 1; null if there is none."""
    threshold: Annotated[float, FIGURES] = Field(validation_alias="limit")
    """What it has to reach, 0 to 1."""
    state: Annotated[GateState, FIGURES]
    """Passed or failed once the run is completed; before that, a forecast. Open in a run that measures the judge."""
    note: Annotated[str, FIGURES]
    """How many results the figure is based on, in words."""
    reviews: Annotated[int, FIGURES]
    """How many decisions of reviewers count in it."""


class GatesDoc(Document):
    """Both gates; they are judged separately."""

    metrics: GateDoc
    """The mean score of all results that have one."""
    cases: GateDoc
    """The share of results that passed; errors count as not passed."""


class CountsDoc(Document):
    """How many results are in each state."""

    passed: Annotated[int, FIGURES] = Field(0, alias="pass")
    """Passed."""
    borderline: Annotated[int, FIGURES] = 0
    """Borderline."""
    fail: Annotated[int, FIGURES] = 0
    """Failed."""
    error: Annotated[int, FIGURES] = 0
    """Errored: without a score, which is never 0."""
    waiting: Annotated[int, FIGURES] = 0
    """Not executed yet."""
    cancelled: Annotated[int, FIGURES] = 0
    """Never executed."""


class RunDoc(Document):
    """A run as lists show it."""

    id: int
    """Its id."""
    name: str
    """Its suite and number, as support-agent:12."""
    suite: str
    """The short name of its suite."""
    number: Annotated[int, FIGURES]
    """Its number in the suite."""
    url: str
    """The path of its page; in files and at the command line its address."""
    target: Annotated[str, FIGURES]
    """The name of its target."""
    judge: Annotated[TextOrNone, FIGURES]
    """The name of the model that judged; null without one."""
    is_scripted: Annotated[bool, FIGURES]
    """Whether the judge's replies were written beforehand, as in the demo."""
    suite_version: Annotated[int, FIGURES]
    """The version of the suite it ran."""
    is_baseline: bool
    """Whether other runs of the suite are compared with it."""
    campaign: int | None
    """The id of the campaign it was started in."""
    scored_again_from: int | None
    """The number of the run whose stored scores it uses; null for others."""
    judges_outputs_of: int | None
    """The number of the run whose outputs it judges again, without asking the target; null for others."""
    measures_judge: bool
    """Whether it judges them only to measure how far the judge differs from itself."""
    note: str
    """The note of its start."""
    repetitions: Annotated[int, FIGURES]
    """How many times each case runs."""
    status: Annotated[RunStatus, FIGURES]
    """The status of the run."""
    status_reason: str
    """Why it ended early; empty otherwise."""
    created_at: datetime
    """When it was created."""
    created_by: TextOrNone
    """Who started it."""
    started_at: datetime | None
    """When work on it began."""
    finished_at: datetime | None
    """When it ended."""
    case_count: Annotated[int, FIGURES]
    """How many cases it has."""
    results: Annotated[int, FIGURES]
    """How many results it has when it is complete: cases times repetitions."""
    done: Annotated[int, FIGURES]
    """How many of them have ended, with or without an error."""
    counts: CountsDoc
    """How many results are in each state."""
    gates: GatesDoc
    """The two gates."""
    run_cost_usd: Annotated[Dollars | None, FIGURES]
    """What the target cost, US dollars; null where nothing is known."""
    evaluation_cost_usd: Annotated[Dollars | None, FIGURES]
    """What the judges cost, US dollars; null where nothing is known."""
    total_cost_usd: Annotated[Dollars | None, FIGURES]
    """What is known of both costs, US dollars; null where nothing is known."""
    costs_are_partial: Annotated[bool, FIGURES]
    """Whether more was spent than is known."""
    outputs_removed_at: datetime | None
    """When its outputs were removed; null while they are stored."""
    details_removed_at: datetime | None
    """When everything but its figures was removed; null while that is stored."""


class GateResultDoc(Document):
    """A gate of the summary."""

    share: float | None
    """The figure of a completed run, 0 to 1; null otherwise."""
    so_far: float | None
    """The figure over what has ended, 0 to 1; null where there is none."""
    threshold: float
    """What it has to reach, 0 to 1."""
    passed: bool | None
    """Whether it passed; null until it is judged."""
    counted: int
    """How many results count."""
    total: int
    """Of how many."""


class MeansDoc(Document):
    """Means and sums over the results that have a value."""

    score: Annotated[float | None, FIGURES]
    """The mean score, 0 to 1; null where there is none."""
    scored: Annotated[int, FIGURES]
    """How many results have a score."""
    latency_ms: Annotated[float | None, FIGURES]
    """The mean latency, milliseconds."""
    metrics: dict[str, float]
    """The mean of each metric, 0 to 5."""
    dimensions: dict[str, float]
    """The mean of each dimension, 0 to 10."""
    input_tokens: int | None
    """The target's input tokens."""
    output_tokens: int | None
    """The target's output tokens."""
    run_cost_usd: Dollars | None
    """What the target cost, US dollars; null where nothing is known."""
    evaluation_cost_usd: Dollars | None
    """What the judges cost, US dollars; null where nothing is known."""
    evaluation_input_tokens: int | None
    """The input tokens of the evaluation."""
    evaluation_output_tokens: int | None
    """The output tokens of the evaluation."""


class MetricMeanDoc(Document):
    """The mean of a metric over the results in which it was judged."""

    path: str
    """The evaluator's place in the tree."""
    key: str
    """Its key."""
    name: Annotated[str, FIGURES]
    """Its name."""
    tier: Annotated[str, FIGURES]
    """Its tier; empty without one."""
    weight: float
    """Its share of the evaluator's score, 0 to 1."""
    binary: Annotated[bool, FIGURES]
    """Whether it is only 0 or 5."""
    mean: Annotated[float, FIGURES]
    """The mean, 0 to 5."""
    judged: Annotated[int, FIGURES]
    """How many results the mean is of."""


class SideMeanDoc(Document):
    """The mean of one side of a dimension."""

    mean: Annotated[float | None, FIGURES]
    """The mean, 0 to 10; null where there is none."""
    counted: Annotated[int, FIGURES]
    """How many results the mean is of."""


class DimensionMeanDoc(Document):
    """The mean of a dimension of a hybrid judge."""

    path: str
    """The evaluator's place in the tree."""
    key: str
    """Its key."""
    name: Annotated[str, FIGURES]
    """Its name."""
    deterministic: SideMeanDoc
    """The result of the checks."""
    judge: SideMeanDoc
    """The result of the judge."""
    final: SideMeanDoc
    """Both together."""


class SummaryDoc(Document):
    """A run in numbers; names that end in _pct and the two thresholds beside them are percent."""

    results: int = Field(validation_alias="executions")
    """How many results there are when the run is complete."""
    ended: int
    """How many have ended."""
    passed: int
    """How many passed."""
    errors: int
    """How many errored."""
    metrics_gate: GateResultDoc
    """The mean score against its threshold."""
    cases_gate: GateResultDoc
    """The pass rate against its threshold."""
    interval: Annotated[Interval, FIGURES]
    """The 95% interval of the pass rate, 0 to 1."""
    score_interval: Annotated[Interval, FIGURES]
    """The 95% interval of the mean score, 0 to 1."""
    distribution: dict[str, int]
    """How many cases there are of each state, and in total."""
    shares: dict[str, float]
    """The same as shares of all cases, 0 to 1."""
    means: MeansDoc
    """Means and sums."""
    flaky: int
    """Cases whose repetitions differ in their verdicts."""
    all_passed: int
    """Cases in which every repetition passed."""
    any_passed: int
    """Cases in which at least one repetition passed."""
    reviews: int
    """How many decisions of reviewers count."""
    settled: int
    """Cases in which every repetition has ended."""
    comparable: int
    """Cases with two verdicts or more."""
    spread: float | None
    """The mean of highest minus lowest score of a case, 0 to 1; null where there is none."""
    spread_cases: int
    """How many cases that mean is of."""
    timed: Annotated[int, FIGURES]
    """How many results have a latency."""
    latency_p50_ms: Annotated[float | None, FIGURES]
    """The median latency, milliseconds."""
    latency_p95_ms: Annotated[float | None, FIGURES]
    """95 of 100 results are as fast or faster, milliseconds."""
    weighted_metrics_score_pct: float | None
    """The mean score, percent."""
    metrics_pass_threshold: float | None
    """What the mean score has to reach, percent."""
    metrics_passed: bool | None
    """Whether it does."""
    cases_pass_rate_pct: float | None
    """The pass rate, percent."""
    cases_pass_threshold: float | None
    """What the pass rate has to reach, percent."""
    cases_passed: bool | None
    """Whether it does."""
    metrics: list[MetricMeanDoc]
    """The mean of each metric."""
    dimensions: list[DimensionMeanDoc]
    """The mean of each dimension."""


class OverRepetitionsDoc(Document):
    """The cases of a run over their repetitions."""

    all_k_passed: int
    """Cases in which every repetition passed."""
    any_k_passed: int
    """Cases in which at least one repetition passed."""
    finished_cases: int
    """Of how many."""
    flaky: int
    """Cases whose repetitions differ in their verdicts."""
    comparable_cases: int
    """Of how many."""
    mean_spread: float | None
    """The mean of highest minus lowest score of a case, 0 to 1; null where there is none."""
    spread_cases: int
    """How many cases that mean is of."""

    @classmethod
    def make(cls, repetitions: RunRepetitions) -> OverRepetitionsDoc:
        """Describe the repetitions of a run."""
        return cls(
            all_k_passed=repetitions.all_passed.count,
            any_k_passed=repetitions.any_passed.count,
            finished_cases=repetitions.all_passed.total,
            flaky=repetitions.flaky.count,
            comparable_cases=repetitions.flaky.total,
            mean_spread=repetitions.spread,
            spread_cases=repetitions.spread_cases,
        )


class FinalEvaluationDoc(Document):
    """The overall scores of hybrid judges."""

    final_score: float | None
    """The mean final score, 0 to 10."""
    final_dimensions: dict[str, float]
    """The mean of each dimension, 0 to 10."""
    scored_results: int
    """How many results they are of."""


class CostDoc(Document):
    """What the target, or the judges, of a run cost."""

    usd: Dollars | None
    """What is known, US dollars; null where nothing is known."""
    answers: int
    """How many answers were paid; 0 where every price is known."""
    priced: int
    """How many of them have a known price."""
    input_tokens: int | None
    """Input tokens, given where prices are missing."""
    output_tokens: int | None
    """Output tokens, given where prices are missing."""
    is_partial: bool
    """Whether more was spent than is known."""


class CostsDoc(Document):
    """The two costs of a run."""

    run: CostDoc
    """The target's."""
    evaluation: CostDoc
    """The evaluation's."""


class ChangedDoc(Document):
    """A setting that was changed for one run."""

    evaluator: str | None
    """The evaluator; null for the policy."""
    name: str
    """The setting."""
    old: Any
    """The value of the suite; may be null."""
    new: Any
    """The value of the run; may be null."""


class RunDetailDoc(RunDoc):
    """A run with its policy, its costs and its summary."""

    concurrency: int
    """How many cases run in parallel, at most."""
    budget_usd: Dollars | None
    """What it was allowed to cost, US dollars; null without a limit."""
    max_minutes: int | None
    """How long workers may work on it before it is ended, minutes; null without a limit."""
    policy: PolicyDoc
    """The policy it was frozen with."""
    changed: list[ChangedDoc]
    """The settings in which it differs from its suite."""
    costs: CostsDoc
    """Both costs and what they rest on."""
    summary: SummaryDoc | None
    """Its figures; null until it ended."""
    over_repetitions: OverRepetitionsDoc | None
    """Null with one repetition."""
    final_evaluation: FinalEvaluationDoc | None
    """Null without a hybrid judge."""
    judge_spread: JudgeSpreadDoc | None
    """How far its judge differs from itself; null while nobody knows."""
    baseline_run: Annotated[int | None, FIGURES]
    """The number of the run that its outputs are compared with; null where no evaluator does that."""
    pairwise: list[PairwiseDoc]
    """How often its outputs are better than those; empty until it ended."""
    exit_code: int | None
    """0 if it passed or measured its judge, 1 if a gate failed, 3 if it was not evaluated; null until it ended."""
    conclusion: str | None
    """The sentence that explains it; null until it ended."""


CaseStateName = Literal["pass", "borderline", "fail", "error", "waiting", "not_run"]


class RunCaseDoc(Document):
    """A case over its repetitions in one run."""

    run: str = ""
    """The name of its run: the suite's short name and the run's number, as in support-agent#12."""
    target: str = ""
    """What was evaluated."""
    case: str
    """Its key."""
    state: CaseStateName
    """Its verdict, or why it has none."""
    verdict: VerdictOrNone
    """Its verdict; null without one."""
    decided_by: TextOrNone
    """The rule and the numbers that decided."""
    results: int = Field(validation_alias="executions")
    """How many results it has, one for each repetition."""
    scored: int
    """How many of them have a verdict."""
    passed: int
    """How many of them passed."""
    all_k_passed: bool = Field(validation_alias="all_passed")
    """Whether every repetition passed."""
    any_k_passed: bool = Field(validation_alias="any_passed")
    """Whether at least one repetition passed."""
    flaky: bool = Field(validation_alias="is_flaky")
    """Whether the verdicts of its repetitions differ."""
    spread: float | None
    """Highest minus lowest score, 0 to 1; null with fewer than two scores."""
    lowest: float | None
    """The lowest score, 0 to 1."""
    highest: float | None
    """The highest score, 0 to 1."""
    means: MeansDoc
    """Means and sums over its repetitions."""
    total_cost_usd: Dollars | None = Field(validation_alias=AliasPath("means", "total_cost_usd"))
    """What is known of both costs, US dollars; null where nothing is known."""
    final_score: float | None = None
    """The mean final score of a hybrid judge, 0 to 10; null without one."""
    final_dimensions: dict[str, float] | None = None
    """The mean of each dimension, 0 to 10; null without a hybrid judge."""


def run_document(run: Run) -> RunDoc:
    """Describe a run of `with_list_columns`; no query."""
    return RunDoc(**_fields(run))


def run_detail_document(run: Run, *, url: str = "") -> RunDetailDoc:
    """Describe a run of `with_list_columns` in full; `url` is the address of its page, by default the path."""
    return RunDetailDoc(**_detail_fields(run, _final_scores(run), url))


def run_file_document(run: Run, *, url: str) -> RunDetailDoc:
    """Describe a run in full, with the whole address of its page."""
    run = with_list_columns(Run.objects.filter(pk=run.pk)).get()
    return run_detail_document(run, url=url)


def case_documents(run: Run) -> Iterator[RunCaseDoc]:
    """Yield every case over its repetitions, in the order of the suite; an active run has its cases so far."""
    origin = {"run": f"{run.suite.slug}{run}", "target": run.target_name}
    summaries = case_summaries(run)
    while batch := list(islice(summaries, CHUNK)):
        finals = _final_scores(run, [case.case for case in batch])
        for case in batch:
            document = RunCaseDoc.model_validate(case).model_copy(update=origin)
            if scores := finals.get(case.case):
                dimensions = dict(case.means.dimensions)
                final = {"final_score": _mean(scores), "final_dimensions": dimensions}
                document = document.model_copy(update=final)
            yield document


def case_lines(runs: Iterable[Run]) -> Iterator[str]:
    """Yield every case of the runs as a line of JSON."""
    for run in runs:
        for document in case_documents(run):
            yield f"{document.model_dump_json()}\n"


def case_summaries(run: Run) -> Iterator[CaseSummary]:
    """Yield every case over its repetitions, in the order of the suite."""
    policy = run.policy
    for key, group in groupby(read_executions(run, parts=True), key=attrgetter("case")):
        yield summarise_case(key, list(group), policy)


def _fields(run: Run, url: str = "") -> dict[str, Any]:
    row = run_row(run)
    return {
        "id": run.pk,
        "name": row.word,
        "suite": row.suite,
        "number": row.number,
        "url": url or row.url,
        "target": row.target,
        "judge": row.judge,
        "is_scripted": row.is_scripted,
        "suite_version": run.suite_version,
        "is_baseline": row.is_baseline,
        "campaign": run.campaign_id,
        "scored_again_from": None if row.is_judged_again else row.source_number,
        "judges_outputs_of": row.source_number if row.is_judged_again else None,
        "measures_judge": row.measures_judge,
        "note": row.note,
        "repetitions": run.repetitions,
        "status": row.status,
        "status_reason": row.reason,
        "created_at": run.created_at,
        "created_by": row.started_by,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "case_count": run.case_count,
        "results": row.executions,
        "done": row.done,
        "counts": row.counts,
        "gates": {"metrics": row.metrics, "cases": row.cases},
        **_cost_fields(row.costs),
        "outputs_removed_at": run.outputs_removed_at if run.lacks_outputs else None,
        "details_removed_at": run.details_removed_at if run.lacks_details else None,
    }


def _cost_fields(costs: CostPair) -> dict[str, Any]:
    return {
        "run_cost_usd": costs.run.usd,
        "evaluation_cost_usd": costs.evaluation.usd,
        "total_cost_usd": costs.total_usd,
        "costs_are_partial": costs.is_partial,
    }


def _detail_fields(run: Run, finals: Mapping[str, Sequence[float]], url: str) -> dict[str, Any]:
    costs, over = run_costs(run), run_repetitions(run)
    summary, final = None, None
    if run.summary is not None:
        # A summary that was written before a figure existed lacks it.
        measured = {name: run.summary.get(name) or [] for name in ("metrics", "dimensions")}
        summary = Summary.from_json(run.summary).as_json() | measured
    if finals:
        final = {
            "final_score": _mean([score for scores in finals.values() for score in scores]),
            "final_dimensions": summary["means"]["dimensions"] if summary else {},
            "scored_results": sum(map(len, finals.values())),
        }
    conclusion = None if run.is_active else conclude(run)
    return {
        **_fields(run, url),
        **_cost_fields(costs),
        "exit_code": conclusion.code if conclusion else None,
        "conclusion": conclusion.sentence if conclusion else None,
        "concurrency": run.concurrency,
        "budget_usd": run.budget_usd,
        "max_minutes": run.max_minutes,
        "policy": PolicyDoc.make(run.policy),
        "changed": run.snapshot.get(CHANGED) or [],
        "costs": costs,
        "summary": summary,
        "over_repetitions": OverRepetitionsDoc.make(over) if over else None,
        "final_evaluation": final,
        "judge_spread": JudgeSpreadDoc.make(run_spread(run)),
        "baseline_run": (run.snapshot.get(BASELINE) or {}).get("run"),
        "pairwise": pairwise_documents(run_pairwise(run)) if run.pairwise_baseline else [],
    }


def _final_scores(run: Run, cases: Sequence[str] | None = None) -> Mapping[str, Sequence[float]]:
    """Return by case the final scores, 0 to 10, of the first hybrid judge of each result.

    `cases` are keys, None for all. One query, and another for the results of `cases`: the database finds their
    scores by an index, not among all scores of the run.
    """
    if run.summary and not run.summary.get("dimensions"):
        # Looking for them among millions of scores takes a second.
        return {}
    rows = (
        EvaluatorScore.objects.filter(kind=HYBRID_KIND, state=ScoreState.SCORED)
        .order_by("result_id", "position", "id")
        .values_list("result_id", "result__case__key", "details__final_evaluation__final_score")
    )
    if cases is None:
        rows = rows.filter(result__run=run)
    else:
        rows = rows.filter(result__in=read_ids(run.results.filter(case__key__in=cases).order_by()))
    scores: dict[str, dict[int, float]] = {}
    for pk, key, final in rows.iterator(chunk_size=CHUNK):
        if final is not None:
            scores.setdefault(key, {}).setdefault(pk, final)
    return {key: list(by_result.values()) for key, by_result in scores.items()}


def _mean(scores: Sequence[float]) -> float | None:
    average = mean(scores)
    return None if average is None else rounded(average)
