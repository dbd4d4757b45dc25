"""The agreement of every judge of a suite with reviewers: what is compared, over which runs, and the figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs import lists
from runs.engine.plan import METRICS_KIND, Plan, case_tree, read_plan
from runs.engine.review_rules import LABELS, VERDICTS
from runs.lists import ListQuery
from runs.models.results import EvaluatorScore, Result, ScoreState
from runs.models.reviews import ENDED, Review
from runs.models.runs import HEAVY_RUN_COLUMNS, Run
from runs.models.suites import HEAVY_CASE_COLUMNS, Case, Suite
from runs.reviews.agreement import (
    MARKS,
    JudgeAgreement,
    Pair,
    Reviewed,
    SuggestedBands,
    measure_agreement,
    suggest_bands,
)


@dataclass(frozen=True, slots=True)
class CountedRun:
    """A run with decisions, which the page can select."""

    pk: int
    number: int
    version: int
    judge: str


def counted_runs(suite: Suite) -> list[CountedRun]:
    """Return the runs with a closed item, the newest first."""
    runs = Run.objects.filter(suite=suite, results__review_item__closed_at__isnull=False)
    rows = runs.order_by("-number").values_list("pk", "number", "suite_version", "judge_name")
    return [CountedRun(*row) for row in rows.distinct()]


def scope_text(executions: int, runs: Sequence[CountedRun]) -> str:
    """Say how many decisions, runs and versions the figures cover."""
    versions = sorted({run.version for run in runs})
    if not versions:
        return "No decision"
    which = f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]} to v{versions[-1]}"
    decisions = counted(executions, "result reviewed,results reviewed")
    return f"{decisions}, {counted(len(runs), 'run')}, {which}"


def mixture_text(runs: Sequence[CountedRun]) -> str:
    """Warn where different judges are counted together, "" otherwise."""
    versions, judges = {run.version for run in runs}, {run.judge for run in runs}
    if len(judges) > 1:
        return f"{counted(len(judges), 'judge')} are counted together. Models judge differently: choose one."
    if len(versions) > 1:
        return (
            f"{counted(len(versions), 'version')} of the suite are counted together. If a judge's prompt "
            "changed in between, choose the version since which reviews count."
        )
    return ""


PLURALS = {"pass": "passes", "borderline": "borderline results", "fail": "fails"}


@dataclass(frozen=True, slots=True)
class VerdictCoverage:
    """The executions of one verdict: all, those drawn by rules, those picked by hand, and the decided ones."""

    verdict: str
    total: int
    drawn: int
    picked: int
    decided: int

    @property
    def lacks_drawn(self) -> bool:
        """Tell whether there are executions of this verdict but none was drawn."""
        return self.total > 0 and self.drawn == 0


def coverage(runs: Collection[int]) -> list[VerdictCoverage]:
    """Return the coverage of pass, borderline and fail in some runs; one query, withdrawn decisions do not count."""
    item = "review_item"
    rows = (
        Result.objects.filter(run__in=runs, status__in=ENDED)
        .order_by()
        .values_list("verdict")
        .annotate(
            total=Count("pk"),
            drawn=Count(item, filter=Q(review_item__sampling_rate__isnull=False)),
            picked=Count(item, filter=Q(review_item__sampling_rate__isnull=True)),
            decided=Count(item, filter=Q(review_item__closed_at__isnull=False)),
        )
    )
    by_verdict = {verdict: counts for verdict, *counts in rows}
    return [
        VerdictCoverage(verdict, *by_verdict.get(verdict, (0, 0, 0, 0)))
        for verdict in VERDICTS[::-1]
    ]


def coverage_sentences(covered: Sequence[VerdictCoverage], picked: int) -> Iterator[str]:
    """Yield sentences on what the figures represent and what they leave out."""
    yield (
        "Each decision is weighted by its sampling rate: one from a 5% random sample counts for 20 results, one "
        "that a rule always selects counts for itself."
    )
    for entry in covered:
        if entry.lacks_drawn and entry.verdict != "borderline":
            plural = PLURALS[entry.verdict]
            yield (
                f"None of {counted(entry.total, f'{entry.verdict},{plural}')} was sampled, so wrong {plural} would go "
                "unnoticed. The suite's settings can add a random sample."
            )
    if waiting := sum(entry.drawn + entry.picked - entry.decided for entry in covered):
        yield (
            f"{counted(waiting, 'sampled result')} {'is' if waiting == 1 else 'are'} not reviewed yet; the figures "
            "assume they are like the reviewed ones."
        )
    if picked:
        was = "was" if picked == 1 else "were"
        yield (
            f"{counted(picked, 'decision')} {was} on results added by hand, which represent no "
            "sample: they count in the matrix, not in the shares and kappa."
        )


MARK_WORDS = {"0": "missed", "1": "met"}


@dataclass(frozen=True, slots=True)
class JudgedResult:
    """One reviewed result with the categories of machine and reviewers.

    `score` is 0 to 1, None where there is none or the score did not decide.
    """

    result: int
    run: int
    case: str
    pair: Pair
    score: float | None = None
    repetition: int = 1


@dataclass(frozen=True, slots=True)
class JudgeFigures:
    """The agreement of one judge; `path` is an evaluator, the key of a metric, or "" for the verdict."""

    path: str
    agreement: JudgeAgreement
    judged: tuple[JudgedResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RunScope:
    """Which runs of a suite count: from a version on, one by its number, or those of a judge.

    0 and "" select all. A judge with another prompt or model is another judge, so decisions on one do not
    apply to the other.
    """

    since: int = 0
    run: int = 0
    judge: str = ""

    def of(self, suite: Suite) -> QuerySet[Run]:
        """Return the runs that count."""
        runs = Run.objects.filter(suite=suite)
        if self.since:
            runs = runs.filter(suite_version__gte=self.since)
        if self.run:
            runs = runs.filter(number=self.run)
        return runs.filter(judge_name=self.judge) if self.judge else runs


@dataclass(frozen=True, slots=True)
class SuiteAgreement:
    """The agreement of verdicts, evaluators, outcomes and metrics of a suite with reviewers.

    The verdict of an evaluator is the band of its score. `outcomes` count marks of single outcomes, `metrics` labels
    of 0 to 5 by their key, with quadratic weights. `bands` is None where no score decided what was reviewed.
    `runs` are the ids of the runs whose decisions count; `unread` decisions are of runs whose record cannot be read.
    """

    verdicts: JudgeFigures
    evaluators: tuple[JudgeFigures, ...]
    outcomes: JudgeFigures
    metrics: Mapping[str, JudgeFigures]
    bands: SuggestedBands | None
    runs: frozenset[int] = frozenset()
    unread: int = 0


def suite_agreement(suite: Suite, span: RunScope | None = None) -> SuiteAgreement:
    """Measure how far the judges of a suite agree with reviewers, over the runs of a span or all.

    A result that was copied into another run counts once, where it was reviewed. Runs with an unreadable
    snapshot are left out.
    """
    every = list(reviewed_results(suite, span or RunScope()))
    plans = dict(readable_plans({row.run_id for row in every}))
    rows = [row for row in every if row.run_id in plans]
    verdicts = []
    for row in rows:
        by_score = not plans[row.run_id].policy.outcomes_decide and not row.is_forced
        if row.verdict:
            score = row.score if by_score else None
            verdicts.append(_judged(row, row.verdict, row.reviewed_verdict, score))
    scores = evaluator_verdicts(rows, plans)
    policy = suite.policy
    return SuiteAgreement(
        verdicts=_figures("", verdicts, suite.pk),
        evaluators=tuple(
            _figures(path, judged_scores, suite.pk) for path, judged_scores in scores.items()
        ),
        outcomes=_figures("", list(_outcome_marks(rows)), suite.pk, MARKS),
        metrics={
            key: _figures(key, judged, suite.pk, LABELS)
            for key, judged in _metric_labels(rows).items()
        },
        bands=_bands(verdicts, policy),
        runs=frozenset(row.run_id for row in rows),
        unread=len(every) - len(rows),
    )


def _figures(
    path: str, judged: Sequence[JudgedResult], seed: int, categories: Sequence[str] = VERDICTS
) -> JudgeFigures:
    pairs = [entry.pair for entry in judged]
    is_ordered = categories == LABELS
    agreement = measure_agreement(pairs, categories, quadratic=is_ordered, seed=seed)
    return JudgeFigures(path, agreement, tuple(judged))


def reviewed_results(suite: Suite, span: RunScope) -> Iterator[Result]:
    """Yield the results whose review is closed; copies of results have no item in the queue."""
    rows = Result.objects.filter(run__in=span.of(suite), review_item__closed_at__isnull=False)
    consensus = rows.exclude(reviewed_verdict="").select_related("case", "review_item", "run")
    heavy = [f"run__{column}" for column in HEAVY_RUN_COLUMNS]
    heavy += [f"case__{column}" for column in HEAVY_CASE_COLUMNS]
    yield from consensus.defer(*heavy).order_by("id")


def readable_plans(runs: set[int]) -> Iterator[tuple[int, Plan]]:
    """Yield the plans of runs by their ids, without those whose snapshot cannot be read."""
    for run in Run.objects.filter(pk__in=runs).only("snapshot"):
        try:
            yield run.pk, read_plan(run.snapshot)
        except (DomainError, KeyError, TypeError):
            continue


def _judged(row: Result, machine: str, person: str, score: float | None = None) -> JudgedResult:
    item = getattr(row, "review_item", None)
    pair = Pair(machine, person, item.sampling_rate if item else None)
    return JudgedResult(row.pk, row.run.number, row.case.key, pair, score, row.repetition)


def evaluator_verdicts(
    rows: Sequence[Result],
    plans: Mapping[int, Plan],
    scores: QuerySet[EvaluatorScore] | None = None,
) -> dict[str, list[JudgedResult]]:
    """Return by path the verdicts of each evaluator below the root, by the bands of its run.

    Only of the given `scores`; None for every score of the results.
    """
    by_id = {row.pk: row for row in rows}
    by_path: dict[str, list[JudgedResult]] = {}
    nodes: dict[tuple[int, int], Mapping[str, EvaluatorSpec]] = {}
    if scores is None:
        scores = EvaluatorScore.objects.filter(result__in=by_id)
    scored = scores.filter(state=ScoreState.SCORED).exclude(path="")
    for result, path, score in scored.order_by("position", "result_id").values_list(
        "result_id", "path", "score"
    ):
        if (row := by_id.get(result)) is None:
            continue
        plan = plans[row.run_id]
        tree = row.run_id, row.case_id if row.case.evaluators else 0
        if tree not in nodes:
            nodes[tree] = _nodes(plan.root, row.case)
        node = nodes[tree].get(path)
        if score is None or node is None:
            continue
        own = node.counted_score(score)
        verdict = plan.policy.verdict_for(own).value
        by_path.setdefault(path, []).append(_judged(row, verdict, row.reviewed_verdict, own))
    return by_path


def _nodes(root: EvaluatorSpec, case: Case) -> dict[str, EvaluatorSpec]:
    return dict(walk(case_tree(root, case.evaluators, append=case.evaluators_append)))


def _outcome_marks(rows: Sequence[Result]) -> Iterator[JudgedResult]:
    by_id = {row.pk: row for row in rows}
    reviews = Review.objects.standing().filter(result__in=by_id).exclude(outcome_marks="")
    for result, marks in reviews.order_by("id").values_list("result_id", "outcome_marks"):
        row = by_id[result]
        for machine, person in zip(row.outcome_marks, marks, strict=False):
            if machine in MARK_WORDS and person in MARK_WORDS:
                yield _judged(row, MARK_WORDS[machine], MARK_WORDS[person])


def metric_scores(results: Collection[int]) -> dict[int, dict[str, str]]:
    """Return by result the judge's label of each metric: its rounded score, by the metric's key."""
    scores = EvaluatorScore.objects.filter(
        result__in=results, kind=METRICS_KIND, state=ScoreState.SCORED
    ).order_by("result_id", "position")
    judged: dict[int, dict[str, str]] = {}
    for result, metrics in scores.values_list("result_id", "details__metrics"):
        judged.setdefault(
            result, {entry["key"]: str(round(entry["score"])) for entry in metrics or ()}
        )
    return judged


def _metric_labels(rows: Sequence[Result]) -> dict[str, list[JudgedResult]]:
    """Return by metric the rounded scores of the judge and the labels of reviewers."""
    by_id = {row.pk: row for row in rows}
    judged = metric_scores(by_id)
    by_metric: dict[str, list[JudgedResult]] = defaultdict(list)
    reviews = Review.objects.standing().filter(result__in=judged).order_by("id")
    for result, labels in reviews.values_list("result_id", "metric_labels"):
        for key, label in labels.items():
            if key in judged[result]:
                by_metric[key].append(_judged(by_id[result], judged[result][key], str(label)))
    return dict(by_metric)


def _bands(judged: Sequence[JudgedResult], policy: PolicySpec) -> SuggestedBands | None:
    """Return the best bands for outputs that a score decided and a rule, not a person, selected."""
    reviewed = [
        Reviewed(entry.score, entry.pair.person, entry.pair.sampling_rate)
        for entry in judged
        if entry.score is not None and entry.pair.sampling_rate is not None
    ]
    return suggest_bands(
        reviewed,
        pass_threshold=policy.pass_threshold,
        borderline_threshold=policy.borderline_threshold,
    )


VERDICT, EVALUATOR, OUTCOMES, METRIC = "verdict", "evaluator", "outcomes", "metric"
KINDS = (VERDICT, EVALUATOR, OUTCOMES, METRIC)
MAX_PATH_LENGTH = 1_000


@dataclass(frozen=True, slots=True)
class DecisionsQuery(ListQuery):
    """What was decided, and which runs count.

    `evaluator` is the path of an evaluator or the key of a metric. `since` is a version of the suite, `run` a number,
    0 for all.
    """

    by: str = lists.option(KINDS, VERDICT)
    evaluator: str = lists.setting(max_length=MAX_PATH_LENGTH)
    since: int = lists.integer(0)
    run: int = lists.integer(0)
    judge: str = lists.text()
    page: int = lists.page_number()

    @property
    def span(self) -> RunScope:
        """Return the runs that count."""
        return RunScope(self.since, self.run, self.judge)


@dataclass(frozen=True, slots=True)
class AgreementQuery(DecisionsQuery):
    """Which judge is shown, and the categories of the cell of its matrix that is listed, "" for all."""

    machine: str = lists.text()
    person: str = lists.text()

    @property
    def is_cell(self) -> bool:
        """Tell whether a cell, row or column is selected."""
        return bool(self.machine or self.person)

    def figures(self, agreement: SuiteAgreement) -> JudgeFigures:
        """Return the figures of the selected judge; those of the verdicts where there is no such judge."""
        if self.by == OUTCOMES:
            return agreement.outcomes
        if self.by == METRIC:
            return agreement.metrics.get(self.evaluator, agreement.verdicts)
        if self.by == EVALUATOR:
            named = (entry for entry in agreement.evaluators if entry.path == self.evaluator)
            return next(named, agreement.verdicts)
        return agreement.verdicts
