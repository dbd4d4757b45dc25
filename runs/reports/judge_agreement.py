"""The judges of a suite against people: what was decided of each, and what it comes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node, walk
from evaluators.scoring.types import DomainError
from runs.models import Case, CaseGate, Result, Review, Run, Score, ScoreState, Suite
from runs.plan import METRICS_KIND, Plan, read_plan, tree_of_case
from runs.reviewing import (
    LABELS,
    MARKS,
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


@dataclass(frozen=True, slots=True)
class JudgeFigures:
    """How far one judge agrees with people: `path` is "" for the verdict of the whole."""

    path: str
    agreement: Agreement
    judged: tuple[Judged, ...] = ()


@dataclass(frozen=True, slots=True)
class SuiteAgreement:
    """The verdicts, each evaluator, the outcomes and the metrics of a suite against people's decisions.

    An evaluator's own verdict is the band of its score. `outcomes` count marks of single outcomes, `metrics` labels
    of 0 to 5 by their key, with quadratic weights. `bands` is None where no score decided what was reviewed.
    """

    verdicts: JudgeFigures
    evaluators: tuple[JudgeFigures, ...]
    outcomes: Agreement
    metrics: Mapping[str, Agreement]
    bands: Suggestion | None


def suite_agreement(suite: Suite) -> SuiteAgreement:
    """Return how far the judges of a suite agree with what people decided and settled, over all its runs.

    A result that was copied into another run with its review counts once, where it was reviewed. Runs whose
    snapshot cannot be read are left out.
    """
    rows = list(_reviewed(suite))
    plans = dict(_plans({row.run_id for row in rows}))
    rows = [row for row in rows if row.run_id in plans]
    verdicts = tuple(_by_verdict(row, plans[row.run_id].policy) for row in rows if row.verdict)
    scores = _by_evaluator(rows, plans)
    policy = suite.policy()
    return SuiteAgreement(
        verdicts=_figures("", verdicts, suite.pk),
        evaluators=tuple(_figures(path, found, suite.pk) for path, found in scores.items()),
        outcomes=agreement_of(list(_outcome_marks(rows)), MARKS, seed=suite.pk),
        metrics={
            key: agreement_of(pairs, LABELS, quadratic=True, seed=suite.pk)
            for key, pairs in _metric_labels(rows).items()
        },
        bands=_bands(verdicts, policy),
    )


def _figures(path: str, judged: Sequence[Judged], seed: int) -> JudgeFigures:
    return JudgeFigures(path, agreement_of([one.pair for one in judged], seed=seed), tuple(judged))


def _reviewed(suite: Suite) -> Iterator[Result]:
    """Yield the results whose review is settled; those of a copy have no item in the queue."""
    rows = Result.objects.filter(run__suite=suite, review_item__closed_at__isnull=False)
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
    rate = row.review_item.sampling_rate
    pair = Pair(machine, row.reviewed_verdict, rate)
    return Judged(row.pk, row.run.number, row.case.key, pair, score)


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
        # The row of a composite has its score after negation.
        own = 1 - score if node.negate and not node.is_composite else score
        verdict = plan.policy.verdict_of(own).value
        found.setdefault(path, []).append(_judged(row, verdict, own))
    return found


def _nodes(root: Node, case: Case) -> dict[str, Node]:
    return dict(walk(tree_of_case(root, case.evaluators, append=case.evaluators_append)))


def _outcome_marks(rows: Sequence[Result]) -> Iterator[Pair]:
    by_id = {row.pk: row for row in rows}
    reviews = Review.objects.standing().filter(result__in=by_id).exclude(outcome_marks="")
    for result, marks in reviews.order_by("id").values_list("result_id", "outcome_marks"):
        row = by_id[result]
        for machine, person in zip(row.outcome_marks, marks, strict=False):
            if machine in MARK_WORDS and person in MARK_WORDS:
                rate = row.review_item.sampling_rate
                yield Pair(MARK_WORDS[machine], MARK_WORDS[person], rate)


def _metric_labels(rows: Sequence[Result]) -> dict[str, list[Pair]]:
    """Return by metric the judge's whole numbers and people's; the first metrics judge of a result speaks."""
    by_id = {row.pk: row for row in rows}
    scores = Score.objects.filter(
        result__in=by_id, kind=METRICS_KIND, state=ScoreState.SCORED
    ).order_by("result_id", "position")
    judged: dict[int, dict[str, str]] = {}
    for result, metrics in scores.values_list("result_id", "details__metrics"):
        judged.setdefault(result, {one["key"]: str(round(one["score"])) for one in metrics or ()})
    found: dict[str, list[Pair]] = defaultdict(list)
    reviews = Review.objects.standing().filter(result__in=judged).order_by("id")
    for result, labels in reviews.values_list("result_id", "metric_labels"):
        for key, label in labels.items():
            if key in judged[result]:
                rate = by_id[result].review_item.sampling_rate
                found[key].append(Pair(judged[result][key], str(label), rate))
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
