"""The judges of a suite against people: what was decided of each, and what it comes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node, walk
from evaluators.scoring.types import DomainError
from runs.models import Case, CaseGate, Result, Review, Run, Score, ScoreState, Suite
from runs.plan import METRICS_KIND, Plan, read_plan, tree_of_case
from runs.reviewing import (
    LABELS,
    MARKS,
    VERDICTS,
    Agreement,
    Pair,
    Reviewed,
    Suggestion,
    agreement_of,
    suggest_bands,
)

MARK_WORDS = {"0": "missed", "1": "met"}


@dataclass(frozen=True, slots=True)
class Judged:
    """One reviewed result: what the machine and what people said of it, so that a figure can list its cases.

    `score` is 0 to 1, None where there is none or another thing than the score decided.
    """

    result: int
    run: int
    case: str
    pair: Pair
    score: float | None = None
    repetition: int = 1


@dataclass(frozen=True, slots=True)
class JudgeFigures:
    """How far one judge agrees with people: `path` is "" for the verdict of the whole, else an evaluator's or a key."""

    path: str
    agreement: Agreement
    judged: tuple[Judged, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """Which runs of a suite count: from a version on, one by its number, those of a judge by its name.

    What is 0 or "" leaves all. Another prompt or another model is another judge, and what was decided of one
    does not speak for the other.
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
    """The verdicts, each evaluator, the outcomes and the metrics of a suite against people's decisions.

    An evaluator's own verdict is the band of its score. `outcomes` count marks of single outcomes, `metrics` labels
    of 0 to 5 by their key, with quadratic weights. `bands` is None where no score decided what was reviewed.
    `runs` are the ids of the runs whose decisions count; `unread` decisions are of runs whose record cannot be read.
    """

    verdicts: JudgeFigures
    evaluators: tuple[JudgeFigures, ...]
    outcomes: JudgeFigures
    metrics: Mapping[str, JudgeFigures]
    bands: Suggestion | None
    runs: frozenset[int] = frozenset()
    unread: int = 0


def suite_agreement(suite: Suite, span: Span | None = None) -> SuiteAgreement:
    """Return how far the judges of a suite agree with what people decided and settled, over the runs of a span, else all.

    A result that was copied into another run with its review counts once, where it was reviewed. Runs whose
    snapshot cannot be read are left out.
    """
    every = list(_reviewed(suite, span or Span()))
    plans = dict(_plans({row.run_id for row in every}))
    rows = [row for row in every if row.run_id in plans]
    verdicts = tuple(_by_verdict(row, plans[row.run_id].policy) for row in rows if row.verdict)
    scores = _by_evaluator(rows, plans)
    policy = suite.policy()
    return SuiteAgreement(
        verdicts=_figures("", verdicts, suite.pk),
        evaluators=tuple(_figures(path, found, suite.pk) for path, found in scores.items()),
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
    path: str, judged: Sequence[Judged], seed: int, categories: Sequence[str] = VERDICTS
) -> JudgeFigures:
    pairs = [one.pair for one in judged]
    is_ordered = categories == LABELS
    found = agreement_of(pairs, categories, quadratic=is_ordered, seed=seed)
    return JudgeFigures(path, found, tuple(judged))


def _reviewed(suite: Suite, span: Span) -> Iterator[Result]:
    """Yield the results whose review is settled; those of a copy have no item in the queue."""
    rows = Result.objects.filter(run__in=span.of(suite), review_item__closed_at__isnull=False)
    settled = rows.exclude(reviewed_verdict="").select_related("case", "review_item", "run")
    heavy = ("run__snapshot", "run__summary", "run__leaf_scores")
    yield from settled.defer(*heavy).order_by("id")


def _plans(runs: set[int]) -> Iterator[tuple[int, Plan]]:
    for run in Run.objects.filter(pk__in=runs).only("snapshot"):
        try:
            yield run.pk, read_plan(run.snapshot)
        except (DomainError, KeyError, TypeError):
            continue


def _by_verdict(row: Result, policy: Policy) -> Judged:
    by_score = policy.case_gate == CaseGate.SCORE and not row.is_forced
    return _judged(row, row.verdict, row.score if by_score else None)


def _judged(row: Result, machine: str, score: float | None) -> Judged:
    return _said(row, machine, row.reviewed_verdict, score)


def _said(row: Result, machine: str, person: str, score: float | None = None) -> Judged:
    pair = Pair(machine, person, row.review_item.sampling_rate)
    return Judged(row.pk, row.run.number, row.case.key, pair, score, row.repetition)


def _by_evaluator(rows: Sequence[Result], plans: Mapping[int, Plan]) -> dict[str, list[Judged]]:
    """Return by path what each evaluator below the root came to, by the bands of the run."""
    by_id = {row.pk: row for row in rows}
    found: dict[str, list[Judged]] = {}
    scores = Score.objects.filter(result__in=by_id, state=ScoreState.SCORED).exclude(path="")
    for result, path, score in scores.order_by("position", "result_id").values_list(
        "result_id", "path", "score"
    ):
        row = by_id[result]
        plan = plans[row.run_id]
        node = _nodes(plan.root, row.case).get(path)
        if score is None or node is None:
            continue
        own = 1 - score if node.is_stored_unturned else score
        verdict = plan.policy.verdict_of(own).value
        found.setdefault(path, []).append(_judged(row, verdict, own))
    return found


def _nodes(root: Node, case: Case) -> dict[str, Node]:
    return dict(walk(tree_of_case(root, case.evaluators, append=case.evaluators_append)))


def _outcome_marks(rows: Sequence[Result]) -> Iterator[Judged]:
    by_id = {row.pk: row for row in rows}
    reviews = Review.objects.standing().filter(result__in=by_id).exclude(outcome_marks="")
    for result, marks in reviews.order_by("id").values_list("result_id", "outcome_marks"):
        row = by_id[result]
        for machine, person in zip(row.outcome_marks, marks, strict=False):
            if machine in MARK_WORDS and person in MARK_WORDS:
                yield _said(row, MARK_WORDS[machine], MARK_WORDS[person])


def _metric_labels(rows: Sequence[Result]) -> dict[str, list[Judged]]:
    """Return by metric the judge's whole numbers and people's; the first metrics judge of a result speaks."""
    by_id = {row.pk: row for row in rows}
    scores = Score.objects.filter(
        result__in=by_id, kind=METRICS_KIND, state=ScoreState.SCORED
    ).order_by("result_id", "position")
    judged: dict[int, dict[str, str]] = {}
    for result, metrics in scores.values_list("result_id", "details__metrics"):
        judged.setdefault(result, {one["key"]: str(round(one["score"])) for one in metrics or ()})
    found: dict[str, list[Judged]] = defaultdict(list)
    reviews = Review.objects.standing().filter(result__in=judged).order_by("id")
    for result, labels in reviews.values_list("result_id", "metric_labels"):
        for key, label in labels.items():
            if key in judged[result]:
                found[key].append(_said(by_id[result], judged[result][key], str(label)))
    return dict(found)


def _bands(judged: Sequence[Judged], policy: Policy) -> Suggestion | None:
    """Return the best bands for what a score decided and the rules, not a person, brought in."""
    reviewed = [
        Reviewed(one.score, one.pair.person, one.pair.sampling_rate)
        for one in judged
        if one.score is not None and one.pair.sampling_rate is not None
    ]
    return suggest_bands(
        reviewed,
        pass_threshold=policy.pass_threshold,
        borderline_threshold=policy.borderline_threshold,
    )
