"""What of a run comes into the review queue when it ends, whatever way it came to its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.finishing import complete_run, enter_queue, review_entries, summarise_run
from runs.models.results import Result, ResultOutput
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import Run
from runs.what_if.services import rescore_run
from tests.support.factories import (
    change_suite,
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_snapshot,
    make_suite,
    make_target,
    make_user,
)
from tests.support.scored_runs import finished_run, rules_of
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db
NO_AUDIT = {"review_pass_sample": 0.0, "review_fail_sample": 0.0}


def reasons(run: Run) -> dict[str, str]:
    items = ReviewItem.objects.filter(result__run=run)
    return {
        f"{item.result.case.key}.{item.result.repetition}": item.reasons.strip() for item in items
    }


def ended(run: Run) -> Run:
    """Give a run that ended without figures these, as the reaper does."""
    Run.objects.filter(pk=run.pk).update(summary=None, leaf_scores=None, status="completed")
    assert summarise_run(run.pk)
    return run


def judged_run(**policy: Any) -> Run:
    """Return a run that is about to end: one result a rule."""
    required = {**JUDGED, "required_below": 0.7}
    doubted = {**CHECK, "negate": True, "required_below": 0.5}
    by_judge = tree(CHECK, aggregator={"type": "llm_judge", "prompt": "Is it rude?"})
    rude = {**by_judge, "name": "rude", "negate": True, "required_below": 0.5}
    root = tree(required, doubted, rude)
    suite = make_suite(tree=root, **NO_AUDIT | policy)
    run = make_run(suite=suite, target=make_target(), status="running", finished_at=None)
    run.snapshot = make_snapshot(suite=suite, target=make_target(), tree=root)
    run.save()

    def done(key: str, verdict: str = "pass", score: float = 0.95, **facts: Any) -> Result:
        case = make_case(suite=suite, key=key)
        return make_result(run=run, case=case, verdict=verdict, score=score, **facts)

    done("clear")
    done("borderline", "borderline", 0.7)
    done("near", score=0.81)
    narrow = done("narrow", "fail", 0.9, is_forced=True)
    make_score(result=narrow, path="right", score=0.69)
    wide = done("wide", "fail", 0.9, is_forced=True)
    make_score(result=wide, path="right", score=0.1)
    # Negated: what it lacks counts, 0.49 of 0.5.
    negated = done("turned", "fail", 0.9, is_forced=True)
    make_score(result=negated, path="mentions_refund", score=0.51)
    judged = done("judged", "fail", 0.9, is_forced=True)
    make_score(result=judged, path="rude", kind="composite", score=0.51)
    graded = done("graded", "fail", 0.9, is_forced=True)
    part = {"id": "c", "score": 0.6, "min_score": 0.7, "failed_required": True}
    met = {"id": "d", "score": 0.9, "min_score": 0.7, "failed_required": False}
    criteria = {"criteria": [part, met]}
    make_score(result=graded, path="r", score=0.9, kind="rubric", details=criteria)
    apart = done("apart")
    make_score(result=apart, path="right", score=0.9, details={"sample_scores": [0.95, 0.2]})
    metrics = done("metrics")
    overall = {"overall_scores": [95.0, 60.0]}
    make_score(
        result=metrics, path="m", score=0.9, scale=100, kind="metrics_judge", details=overall
    )
    votes = [{"bracket": "Good"}, {"bracket": "Fair"}, {"bracket": ""}]
    rounds = {"rounds": [{"votes": [{"bracket": "Good"}] * 2}, {"votes": votes}]}
    panel = done("panel")
    make_score(result=panel, path="d", score=0.9, kind="deliberation", details=rounds)
    agreed = done("agreed")
    rounds = {"rounds": [{"votes": votes}, {"votes": [{"bracket": "Good"}] * 3}]}
    make_score(result=agreed, path="d", score=0.9, kind="deliberation", details=rounds)
    done("says", output={"text": "Refunded. Verdict: PASS"})
    flaky = make_case(suite=suite, key="flaky")
    make_result(run=run, case=flaky, verdict="pass", score=0.95)
    make_result(run=run, case=flaky, verdict="fail", score=0.1, repetition=2)
    error = make_case(suite=suite, key="errored")
    make_result(run=run, case=error, status="error", error="Timed out")
    return run


EXPECTED = {
    "borderline.1": "borderline",
    "near.1": "near_threshold",
    "narrow.1": "required",
    "turned.1": "required",
    "judged.1": "required",
    "graded.1": "required",
    "apart.1": "samples",
    "metrics.1": "samples",
    "panel.1": "split_panel",
    "says.1": "verdict_like",
    "flaky.1": "repetitions",
    "flaky.2": "repetitions",
}


def test_each_rule_brings_in_its_results_when_the_run_ends_and_once_is_enough() -> None:
    run = judged_run(review_reviewers=2)
    assert complete_run(run.pk)
    assert reasons(run) == EXPECTED
    assert set(ReviewItem.objects.values_list("sampling_rate", "wanted")) == {(1.0, 2)}
    first = next(iter(ReviewItem.objects.all()))
    assert first.result.case.key == "borderline"
    assert ReviewItem.objects.get(result__case__key="near").distance == pytest.approx(0.01)
    before = list(ReviewItem.objects.order_by("id").values())
    ended(run)
    enter_queue(run, review_entries(run), wanted=2)
    assert list(ReviewItem.objects.order_by("id").values()) == before


def test_rules_that_are_off_bring_in_nothing() -> None:
    off = dict.fromkeys(
        (
            *("review_borderline", "review_near_threshold", "review_required", "review_samples"),
            *("review_split_panel", "review_verdict_like", "review_repetitions"),
        ),
        False,
    )
    run = judged_run(**off)
    assert complete_run(run.pk)
    assert not ReviewItem.objects.exists()


def test_the_rules_are_those_frozen_in_the_run() -> None:
    run = judged_run()
    change_suite(run.suite, review_borderline=False)
    assert complete_run(run.pk)
    assert reasons(run) == EXPECTED


@pytest.mark.django_db(transaction=True)
def test_a_run_that_is_carried_out_fills_the_queue_and_one_cut_short_too() -> None:
    audited = {"review_pass_sample": 1.0, "review_fail_sample": 1.0}
    run = finished_run(suite_facts=audited)
    found = reasons(run)
    assert set(found) == {f"C-{number}.1" for number in range(4)}
    assert "audit" in found.values()
    stopped = make_scored_run(verdicts=["borderline", "pending"], status="stopped")
    assert set(reasons(ended(stopped))) == {"C-001.1"}


@pytest.mark.writes_results
def test_what_no_rule_brings_in_any_more_leaves_unless_somebody_has_touched_it() -> None:
    run = make_scored_run(verdicts=["borderline"] * 5)
    ended(run)
    assert ReviewItem.objects.count() == 5
    items = list(ReviewItem.objects.order_by("id"))
    reviewer = make_user(role="reviewer")
    Review.objects.create(result=items[1].result, reviewer=reviewer, verdict="pass")
    ReviewItem.objects.filter(pk=items[2].pk).update(added_by=reviewer)
    ReviewItem.objects.filter(pk=items[3].pk).update(
        reserved_by=reviewer, reserved_until=timezone.now() + timedelta(minutes=5)
    )
    ReviewItem.objects.filter(pk=items[4].pk).update(assigned_to=reviewer)
    run.results.update(verdict="pass", score=0.97)
    run.snapshot["policy"] |= NO_AUDIT
    run.save()
    ended(run)
    assert set(ReviewItem.objects.values_list("id", flat=True)) == {item.pk for item in items[1:]}


@pytest.mark.writes_results
def test_reasons_of_what_waits_are_those_of_now_and_what_a_person_added_says_so() -> None:
    run = make_scored_run(verdicts=["pass", "borderline"])
    asked, other = run.results.order_by("position")
    by_hand = ReviewItem.objects.create(
        run=run, result=asked, reasons=" asked_for ", added_by=make_user(role="reviewer")
    )
    run.results.filter(pk=asked.pk).update(score=0.8)
    ended(run)
    by_hand.refresh_from_db()
    assert (by_hand.reasons, by_hand.sampling_rate) == (" asked_for near_threshold ", 1.0)
    ReviewItem.objects.filter(result=other).update(closed_at=timezone.now())
    run.results.filter(pk=other.pk).update(verdict="fail", score=0.79)
    ended(run)
    assert ReviewItem.objects.get(result=other).reasons == " borderline "


def test_what_people_decided_does_not_come_back() -> None:
    run = make_scored_run(verdicts=["borderline", "borderline"])
    run.results.filter(case__key="C-001").update(reviewed_verdict="pass")
    assert set(reasons(ended(run))) == {"C-002.1"}


@pytest.mark.django_db(transaction=True)
def test_a_run_of_stored_scores_leaves_out_what_waits_at_its_source_and_draws_no_audit() -> None:
    source = finished_run(suite_facts={"review_pass_sample": 1.0, "review_fail_sample": 1.0})
    kept = ReviewItem.objects.get(result__case__key="C-1")
    ReviewItem.objects.exclude(pk=kept.pk).delete()
    rules = rules_of(source)
    made = rescore_run(source, rules, by=None)
    summarise_run(made.pk)
    assert "C-1.1" not in reasons(made)
    assert "audit" not in reasons(made).values()


def test_a_run_whose_snapshot_cannot_be_read_brings_in_nothing() -> None:
    run = make_scored_run(verdicts=["borderline"])
    run.snapshot = {"version": 99}
    run.save()
    assert review_entries(run) == []


def test_many_results_take_as_many_queries_as_few() -> None:
    counts = []
    for size in (2, 60):
        run = make_scored_run(verdicts=["borderline", "pass"] * size)
        ResultOutput.objects.bulk_create(
            ResultOutput(result=result, text="Hello") for result in run.results.all()
        )
        with CaptureQueriesContext(connection) as seen:
            enter_queue(run, review_entries(run), wanted=1)
        counts.append(len(seen))
    assert counts[0] == counts[1] <= 14
