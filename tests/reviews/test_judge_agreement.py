"""The judges of a suite against what people decided, from the stored reviews."""

from __future__ import annotations

import pytest

from evaluators.scoring.types import Verdict
from runs.models.results import Result
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import Run
from runs.reviews.judge_agreement import suite_agreement
from runs.reviews.services import ReviewDecision, ask_for_review, decide, undo
from tests.support.factories import make_score, make_user
from tests.support.queue import item_of, queued_run
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db


def test_verdicts_evaluators_outcomes_metrics_and_bands() -> None:
    ann = make_user(role="reviewer")
    run = queued_run(["borderline", "borderline", "borderline", "pass"])
    run.results.update(outcome_marks="10")
    metrics = {"metrics": [{"key": "tone", "score": 4}]}
    for key, said, score in (
        ("C-001", "pass", 0.9),
        ("C-002", "borderline", 0.9),
        ("C-003", "fail", 0.1),
    ):
        item = item_of(run, key)
        make_score(result=item.result, path="tone", score=score)
        make_score(result=item.result, path="m", score=0.8, kind="metrics_judge", details=metrics)
        marks = "11" if key == "C-001" else "1-"
        decide(
            item,
            ReviewDecision(Verdict(said), outcome_marks=marks, metric_labels={"tone": 4}),
            by=ann,
        )
    ReviewItem.objects.filter(result__case__key="C-002").update(sampling_rate=0.5)
    picked = ask_for_review(run.results.get(case__key="C-004"), by=ann)
    decide(picked, ReviewDecision(Verdict.FAIL), by=ann)

    found = suite_agreement(run.suite)
    verdicts = found.verdicts.agreement
    assert verdicts.matrix == ((0, 0, 0), (1, 1, 1), (1, 0, 0))
    assert (verdicts.n, verdicts.picked, verdicts.is_few) == (4, 1, True)
    # 2 of 1 + 2 + 1: the one that was drawn by half stands for two.
    assert verdicts.agreement.share == 0.5
    assert [(one.case, one.pair.person) for one in found.verdicts.judged] == [
        ("C-001", "pass"),
        ("C-002", "borderline"),
        ("C-003", "fail"),
        ("C-004", "fail"),
    ]
    tone = next(one for one in found.evaluators if one.path == "tone")
    assert tone.agreement.matrix == ((1, 0, 0), (0, 0, 0), (0, 1, 1))
    # Of C-001 both outcomes were marked, of the others the first alone.
    assert found.outcomes.agreement.matrix == ((0, 1), (0, 3))
    assert found.metrics["tone"].agreement.matrix[4][4] == 3
    assert found.bands is not None
    assert (found.bands.n, found.bands.now.agreement) == (3, 0.5)


def test_only_consensus_counts_and_a_copy_does_not_count_twice() -> None:
    ann = make_user(role="reviewer")
    run = queued_run(review_reviewers=2)
    decide(item_of(run), ReviewDecision(Verdict.PASS), by=ann)
    assert suite_agreement(run.suite).verdicts.agreement.n == 0
    ben = make_user(role="reviewer")
    decide(item_of(run), ReviewDecision(Verdict.PASS), by=ben)
    assert suite_agreement(run.suite).verdicts.agreement.n == 1
    copied = Result.objects.get(case__key="C-002", run=run)
    Result.objects.filter(pk=copied.pk).update(reviewed_verdict="pass")
    Review.objects.create(result=copied, reviewer=ann, verdict="pass")
    assert suite_agreement(run.suite).verdicts.agreement.n == 1
    undo(item_of(run), by=ben)
    assert suite_agreement(run.suite).verdicts.agreement.n == 0


def test_nothing_reviewed_and_a_snapshot_that_cannot_be_read() -> None:
    run = queued_run(["borderline"])
    found = suite_agreement(run.suite)
    assert (found.verdicts.agreement.n, found.evaluators, found.bands) == (0, (), None)
    decide(item_of(run), ReviewDecision(Verdict.PASS), by=make_user(role="reviewer"))
    Run.objects.filter(pk=run.pk).update(snapshot={"version": 99})
    assert suite_agreement(run.suite).verdicts.agreement.n == 0


def test_a_negated_evaluator_counts_as_its_parent_counted_it() -> None:
    """SCORING: what a judge said is stored as it was said, what arithmetic came to as it came to."""
    ann = make_user(role="reviewer")
    by_judge = {"type": "llm_judge", "prompt": "Is it rude?"}
    negated = [
        {**CHECK, "name": "no_slang", "negate": True},
        {**tree(CHECK), "name": "risky", "negate": True},
        {**tree(CHECK, aggregator=by_judge), "name": "rude", "negate": True},
    ]
    run = queued_run(["borderline"])
    Run.objects.update(snapshot=run.snapshot | {"evaluators": tree(*negated)})
    item = item_of(run)
    for path in ("no_slang", "risky", "rude"):
        make_score(result=item.result, path=path, score=0.9)
    decide(item, ReviewDecision(Verdict.FAIL), by=ann)

    said = {one.path: one.judged[0].pair.machine for one in suite_agreement(run.suite).evaluators}

    assert said == {"no_slang": "fail", "risky": "pass", "rude": "fail"}
