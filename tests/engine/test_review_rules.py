"""Which executions enter the review queue, by which rules, and how likely that was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.policy import REVIEW_RULES, PolicySpec
from evaluators.scoring.types import Verdict
from runs.engine.review_rules import (
    FinishedExecution,
    MissedRequirement,
    ReviewReason,
    queue_entries,
    review_reasons,
    threshold_distance,
)

PASS, BORDERLINE, FAIL = Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL
OUTCOMES = PolicySpec(case_gate="expected_outcomes")
SCORE = PolicySpec()
NO_AUDIT: dict[str, Any] = {"review_pass_sample": 0.0, "review_fail_sample": 0.0}


def done(verdict: Verdict, score: float | None, **facts: Any) -> FinishedExecution:
    return FinishedExecution(**{"result": 1, "case": 1, "verdict": verdict, "score": score} | facts)


TABLE: dict[str, tuple[PolicySpec, FinishedExecution, set[str]]] = {
    "a clear pass": (SCORE, done(PASS, 0.95), set()),
    "a clear fail": (SCORE, done(FAIL, 0.2), set()),
    "a borderline verdict": (SCORE, done(BORDERLINE, 0.7), {"borderline"}),
    "just above pass": (SCORE, done(PASS, 0.82), {"near_threshold"}),
    "just too far above pass": (SCORE, done(PASS, 0.8200001), set()),
    "just below borderline": (SCORE, done(FAIL, 0.59), {"near_threshold"}),
    "both": (SCORE, done(BORDERLINE, 0.79), {"borderline", "near_threshold"}),
    "a forced fail near a band": (SCORE, done(FAIL, 0.81, is_forced=True), set()),
    "on the threshold, distance 0": (
        SCORE.replace(review_distance=0.0),
        done(PASS, 0.8),
        {"near_threshold"},
    ),
    "beside it, distance 0": (SCORE.replace(review_distance=0.0), done(PASS, 0.81), set()),
    "passed below the fallback": (OUTCOMES, done(PASS, 0.74, outcome_marks="11"), {"disagreement"}),
    "passed at it": (OUTCOMES, done(PASS, 0.75, outcome_marks="11"), set()),
    "failed at it": (OUTCOMES, done(FAIL, 0.75, outcome_marks="001"), {"disagreement"}),
    "failed below it": (OUTCOMES, done(FAIL, 0.749, outcome_marks="001"), set()),
    "a pass below it under the score gate": (
        SCORE.replace(pass_threshold=0.5, borderline_threshold=0.4),
        done(PASS, 0.6),
        set(),
    ),
    "outcomes without a score": (OUTCOMES, done(FAIL, None, outcome_marks="001"), set()),
    "all but one": (OUTCOMES, done(FAIL, 0.5, outcome_marks="1101"), {"one_missed"}),
    "all but one under the score gate": (SCORE, done(FAIL, 0.3, outcome_marks="10"), set()),
    "the only one": (OUTCOMES, done(FAIL, 0.5, outcome_marks="0"), set()),
    "two of three missed": (OUTCOMES, done(FAIL, 0.5, outcome_marks="100"), set()),
    "no outcomes near the fallback": (OUTCOMES, done(FAIL, 0.74), {"near_threshold"}),
    "outcomes near the fallback": (OUTCOMES, done(FAIL, 0.74, outcome_marks="00"), set()),
    "a split panel": (SCORE, done(PASS, 0.9, votes=(("Good", "Fair", "Good"),)), {"split_panel"}),
    "a panel of one mind": (SCORE, done(PASS, 0.9, votes=(("Good", "Good"),)), set()),
    "samples in two bands": (SCORE, done(PASS, 0.9, samples=((0.9, 0.9, 0.79),)), {"samples"}),
    "samples in one band": (SCORE, done(PASS, 0.9, samples=((0.99, 0.81),)), set()),
    "a minimum missed narrowly": (
        SCORE,
        done(FAIL, 0.9, is_forced=True, missed=(MissedRequirement(0.68, 0.7),)),
        {"required"},
    ),
    "a minimum missed widely": (
        SCORE,
        done(
            FAIL,
            0.9,
            is_forced=True,
            missed=(MissedRequirement(0.67, 0.7), MissedRequirement(0.0, 0.7)),
        ),
        set(),
    ),
    "missed by one grade": (
        SCORE,
        done(FAIL, 0.9, is_forced=True, missed=(MissedRequirement(0.6, 0.7, step=0.1),)),
        {"required"},
    ),
    "missed by two grades": (
        SCORE,
        done(FAIL, 0.9, is_forced=True, missed=(MissedRequirement(0.5, 0.7, step=0.1),)),
        set(),
    ),
    "an answer with a verdict": (SCORE, done(PASS, 0.95, says="verdict: pass"), {"verdict_like"}),
}


@pytest.mark.parametrize(("policy", "one", "reasons"), TABLE.values(), ids=TABLE.keys())
def test_the_rules(policy: PolicySpec, one: FinishedExecution, reasons: set[str]) -> None:
    assert set(review_reasons(one, policy)) == reasons


@pytest.mark.parametrize("rule", [rule for rule in REVIEW_RULES if rule != "review_repetitions"])
def test_each_rule_can_be_switched_off_alone(rule: str) -> None:
    reason = ReviewReason(rule.removeprefix("review_"))
    policy, one, _ = next(row for row in TABLE.values() if row[2] == {reason})
    assert review_reasons(one, policy.replace(**{rule: False})) == ()


def test_repetitions_of_a_case_that_differ_enter_all_and_others_do_not() -> None:
    rows = [
        done(PASS, 0.95, result=1, case=7),
        done(FAIL, 0.1, result=2, case=7),
        done(PASS, 0.95, result=3, case=8),
        done(PASS, 0.85, result=4, case=8),
    ]
    policy = SCORE.replace(**NO_AUDIT)
    found = {one.result: one.reasons for one in queue_entries(rows, policy, run=1)}
    assert found == {1: (ReviewReason.REPETITIONS,), 2: (ReviewReason.REPETITIONS,)}
    assert list(queue_entries(rows, policy.replace(review_repetitions=False), run=1)) == []


def test_reasons_stand_with_the_weightiest_first() -> None:
    one = done(BORDERLINE, 0.79, says="score: 9/10", samples=((0.9, 0.1),))
    found = review_reasons(one, SCORE)
    assert found == (
        ReviewReason.BORDERLINE,
        ReviewReason.SAMPLES,
        ReviewReason.NEAR_THRESHOLD,
        ReviewReason.VERDICT_LIKE,
    )
    assert threshold_distance(one, SCORE) == pytest.approx(0.01)


class TestTheRandomAudit:
    rows = tuple(
        done(PASS if number % 2 else FAIL, 0.95 if number % 2 else 0.1, result=number, case=number)
        for number in range(20_000)
    )
    policy = SCORE.replace(review_pass_sample=0.1, review_fail_sample=0.4)

    def test_passes_and_fails_are_drawn_with_their_rates_which_are_kept(self) -> None:
        found = list(queue_entries(self.rows, self.policy, run=3))
        rates = [one.sampling_rate for one in found]
        # Five standard deviations of 10,000 draws.
        assert rates.count(0.1) == pytest.approx(1000, abs=150)
        assert rates.count(0.4) == pytest.approx(4000, abs=250)
        assert {one.reasons for one in found} == {(ReviewReason.AUDIT,)}
        assert sum(1 / rate for rate in rates) == pytest.approx(20_000, rel=0.1)

    def test_a_run_draws_the_same_again_and_another_run_others(self) -> None:
        first, again, other = (
            {one.result for one in queue_entries(self.rows, self.policy, run=run)}
            for run in (3, 3, 4)
        )
        assert first == again != other

    def test_a_higher_rate_draws_the_same_and_more(self) -> None:
        more = self.policy.replace(review_pass_sample=0.2)
        few, many = (
            {one.result for one in queue_entries(self.rows, policy, run=3)}
            for policy in (self.policy, more)
        )
        assert few < many

    @pytest.mark.parametrize(("rate", "count"), [(0.0, 0), (1.0, 20_000)])
    def test_none_and_all(self, rate: float, count: int) -> None:
        policy = SCORE.replace(review_pass_sample=rate, review_fail_sample=rate)
        assert len(list(queue_entries(self.rows, policy, run=3))) == count

    def test_without_draws_only_the_rules_bring_in(self) -> None:
        rows = [*self.rows[:100], done(BORDERLINE, 0.7, result=-1, case=-1)]
        policy = SCORE.replace(review_pass_sample=1.0)
        found = list(queue_entries(rows, policy, run=3, draws=False))
        assert [(one.result, one.sampling_rate) for one in found] == [(-1, 1.0)]


@given(
    st.lists(
        st.builds(
            FinishedExecution,
            result=st.integers(1, 10**6),
            case=st.integers(1, 5),
            verdict=st.sampled_from([PASS, BORDERLINE, FAIL]),
            score=st.none() | st.floats(0, 1),
            is_forced=st.booleans(),
            outcome_marks=st.text("01", max_size=4),
        ),
        max_size=12,
    ),
    st.sampled_from([SCORE, OUTCOMES]),
)
def test_an_entry_has_a_reason_and_a_rate_that_can_be_divided_by(
    rows: list[FinishedExecution], policy: PolicySpec
) -> None:
    for one in queue_entries(rows, policy, run=1):
        assert one.reasons
        assert 0 < one.sampling_rate <= 1
        assert (ReviewReason.AUDIT in one.reasons) == (one.reasons == (ReviewReason.AUDIT,))
        assert one.sampling_rate == 1 or one.reasons == (ReviewReason.AUDIT,)
        assert 0 <= one.distance <= 1
