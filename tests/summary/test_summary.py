"""The summary of a run: cases, reviews, gates, distribution."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.summary.cases import ExecutionRecord, case_verdict, compute_means, summarise_case
from runs.summary.metrics import MetricMean, means_by_key, metric_means
from runs.summary.run import (
    Summary,
    SummaryProgress,
    cases_forecast,
    metrics_forecast,
    shares,
    summarise,
)

POLICY = PolicySpec()
OUTCOMES = PolicySpec(case_gate="expected_outcomes")
PASS, BORDERLINE, FAIL = Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL


def done(
    case: str = "a", verdict: Verdict = PASS, score: float | None = 0.9, **more: Any
) -> ExecutionRecord:
    return ExecutionRecord(case, "scored", verdict, score, **more)


def errored(case: str = "a", **more: Any) -> ExecutionRecord:
    return ExecutionRecord(case, "error", **more)


def of(
    rows: Sequence[ExecutionRecord], policy: PolicySpec = POLICY, *, completed: bool = True
) -> Summary:
    return summarise(rows, policy, is_completed=completed, seed=41)


class TestCase:
    @pytest.mark.parametrize(
        ("scores", "verdict"),
        [([0.8], PASS), ([0.9, 0.8, 0.7], PASS), ([0.9, 0.6], BORDERLINE), ([0.9, 0.1], FAIL)],
    )
    def test_under_the_score_gate_the_mean_score_decides(
        self, scores: list[float], verdict: Verdict
    ) -> None:
        rows = [done(verdict=POLICY.verdict_for(score), score=score) for score in scores]
        assert summarise_case("a", rows, POLICY).verdict is verdict

    def test_a_forced_fail_of_any_repetition_fails_the_case(self) -> None:
        rows = [done(score=1.0), done(verdict=FAIL, score=0.95, is_forced=True), done(score=1.0)]
        found = summarise_case("a", rows, POLICY)
        assert (found.verdict, found.state, found.is_flaky) == (FAIL, "fail", True)

    @pytest.mark.parametrize(
        ("verdicts", "verdict"),
        [([PASS, PASS], PASS), ([FAIL, FAIL], FAIL), ([PASS, FAIL, FAIL], BORDERLINE)],
    )
    def test_under_the_outcomes_gate_all_some_or_none_decide(
        self, verdicts: list[Verdict], verdict: Verdict
    ) -> None:
        rows = [done(verdict=one, score=None) for one in verdicts]
        assert summarise_case("a", rows, OUTCOMES).verdict is verdict

    def test_an_errored_repetition_is_left_out_of_the_verdict_and_counted_in_n_of_n(self) -> None:
        found = summarise_case("a", [done(score=0.9), errored(), done(score=0.9)], POLICY)
        assert (found.verdict, found.scored, found.executions, found.passed) == (PASS, 2, 3, 2)
        assert (found.all_passed, found.any_passed, found.is_flaky) == (False, True, False)

    def test_it_is_errored_only_when_none_scored(self) -> None:
        assert summarise_case("a", [errored(), errored()], POLICY).state == "error"
        assert summarise_case("a", [errored(), done()], POLICY).state == "pass"

    @pytest.mark.parametrize("status", ["pending", "running"])
    def test_it_waits_while_it_may_still_be_scored(self, status: str) -> None:
        rows = [errored(), ExecutionRecord("a", status)]
        assert summarise_case("a", rows, POLICY).state == "waiting"
        assert summarise_case("a", [done(), ExecutionRecord("a", status)], POLICY).state == "pass"

    def test_one_that_never_ran_has_no_state_of_its_own(self) -> None:
        assert summarise_case("a", [ExecutionRecord("a", "cancelled")], POLICY).state == "not_run"

    def test_all_and_any_of_k(self) -> None:
        all_of = summarise_case("a", [done(), done()], POLICY)
        assert (all_of.all_passed, all_of.any_passed) == (True, True)
        none_of = summarise_case("a", [done(verdict=FAIL, score=0.1)], POLICY)
        assert (none_of.all_passed, none_of.any_passed) == (False, False)
        assert not summarise_case("a", [], POLICY).all_passed

    def test_means_are_over_what_has_a_value_and_sums_over_all_that_ran(self) -> None:
        rows = [
            done(
                score=0.8,
                latency_ms=1000,
                input_tokens=100,
                output_tokens=10,
                run_cost_usd=Decimal("0.1"),
                evaluation_cost_usd=Decimal("0.02"),
                metrics={"tool_routing": 5},
                dimensions={"task": 8.0},
            ),
            done(score=0.6, latency_ms=3000, metrics={"tool_routing": 2, "grounding": 4}),
            errored(run_cost_usd=Decimal("0.2"), input_tokens=50, score=0.0),
        ]
        means = compute_means(rows)
        assert means.score == pytest.approx(0.7)
        assert (means.scored, means.latency_ms) == (2, 2000)
        assert means.metrics == {"tool_routing": 3.5, "grounding": 4.0}
        assert means.dimensions == {"task": 8.0}
        assert (means.input_tokens, means.output_tokens) == (150, 10)
        assert (means.run_cost_usd, means.evaluation_cost_usd) == (Decimal("0.3"), Decimal("0.02"))
        assert means.total_cost_usd == Decimal("0.32")

    def test_what_nobody_reported_is_not_zero(self) -> None:
        means = compute_means([errored()])
        assert (means.score, means.latency_ms, means.input_tokens) == (None, None, None)
        assert (means.run_cost_usd, means.total_cost_usd) == (None, None)


class TestReviews:
    policy = PolicySpec(count_reviews=True)

    def test_count_only_where_the_policy_says_so(self) -> None:
        rows = [done(verdict=FAIL, score=0.1, reviewed_verdict=PASS)]
        assert of(rows).passed == 0
        assert of(rows).reviews == 0
        counted = of(rows, self.policy)
        assert (counted.passed, counted.reviews, counted.distribution["pass"]) == (1, 1, 1)

    def test_count_in_the_place_of_an_error_and_touch_no_score(self) -> None:
        found = of([errored(reviewed_verdict=PASS), done("b", score=0.8)], self.policy)
        assert (found.passed, found.errors, found.distribution["pass"]) == (2, 0, 2)
        assert found.metrics_gate.so_far == 0.8

    def test_of_a_borderline_is_the_case(self) -> None:
        for policy in (self.policy, PolicySpec(count_reviews=True, case_gate="expected_outcomes")):
            rows = [done(verdict=FAIL, score=0.1, reviewed_verdict=BORDERLINE)]
            assert case_verdict(rows, policy) is BORDERLINE

    def test_among_repetitions_lift_a_forced_fail(self) -> None:
        rows = [done(), done(verdict=FAIL, score=0.9, is_forced=True, reviewed_verdict=PASS)]
        assert case_verdict(rows, self.policy) is PASS
        mixed = [done(), done(verdict=PASS, reviewed_verdict=FAIL)]
        assert case_verdict(mixed, self.policy) is BORDERLINE

    @pytest.mark.parametrize("case_gate", ["score", "expected_outcomes"])
    def test_that_agree_with_the_machine_change_nothing(self, case_gate: str) -> None:
        policy = PolicySpec(count_reviews=True, case_gate=case_gate)
        machine = PolicySpec(case_gate=case_gate)
        for first, second in (
            (done(score=0.9), done(verdict=BORDERLINE, score=0.75)),
            (done(score=0.9), done(verdict=FAIL, score=0.9, is_forced=True)),
        ):
            reviewed = [replace(first, reviewed_verdict=first.verdict), second]
            assert case_verdict(reviewed, policy) is case_verdict(reviewed, machine)

    def test_leave_another_repetitions_forced_fail_standing(self) -> None:
        forced = done(verdict=FAIL, score=0.9, is_forced=True)
        rows = [done(verdict=BORDERLINE, score=0.7, reviewed_verdict=PASS), forced]
        assert case_verdict(rows, self.policy) is FAIL

    def test_of_which_none_passes_fail_the_case_under_the_outcomes_gate(self) -> None:
        policy = PolicySpec(count_reviews=True, case_gate="expected_outcomes")
        rows = [done(verdict=FAIL, reviewed_verdict=BORDERLINE), done(verdict=FAIL)]
        assert case_verdict(rows, policy) is FAIL

    def test_of_what_did_not_run_count_nothing(self) -> None:
        rows = [ExecutionRecord("a", "cancelled", reviewed_verdict=PASS)]
        assert of(rows, self.policy).reviews == 0


class TestGates:
    def test_are_independent(self) -> None:
        found = of([done("a", score=0.7999), done("b", score=0.7999)])
        assert (found.metrics_gate.passed, found.cases_gate.passed) == (False, True)

    def test_errors_are_not_passed_and_have_no_score(self) -> None:
        found = of([*(done(str(n)) for n in range(3)), errored("x")])
        assert (found.cases_gate.share, found.cases_gate.passed) == (0.75, False)
        assert (found.metrics_gate.share, found.metrics_gate.passed) == (pytest.approx(0.9), True)
        assert (found.metrics_gate.counted, found.metrics_gate.total) == (3, 4)
        assert (found.cases_gate.counted, found.errors) == (4, 1)

    def test_a_mean_of_exactly_the_threshold_passes(self) -> None:
        found = of([done(str(n), score=s) for n, s in enumerate((0.773, 0.791, 0.836))])
        assert found.metrics_gate.passed is True

    def test_of_zero_means_what_it_says(self) -> None:
        policy = PolicySpec(metrics_pass_threshold=0.0, cases_pass_threshold=0.0)
        found = of([done(verdict=FAIL, score=0.0)], policy)
        assert (found.metrics_gate.passed, found.cases_gate.passed) == (True, True)

    def test_of_no_execution_are_both_open(self) -> None:
        written = of([]).as_json()
        assert [written[name] for name in ("metrics_passed", "cases_passed")] == [None, None]
        assert written["cases_pass_rate_pct"] is None
        assert written["weighted_metrics_score_pct"] is None
        assert of([]).interval is None

    def test_stay_open_until_the_run_is_completed(self) -> None:
        rows = [
            done(),
            errored("b"),
            ExecutionRecord("c", "pending"),
            ExecutionRecord("d", "cancelled"),
        ]
        found = of(rows, completed=False)
        assert (found.cases_gate.share, found.cases_gate.passed) == (None, None)
        assert (found.metrics_gate.share, found.metrics_gate.passed) == (None, None)
        assert (found.cases_gate.so_far, found.metrics_gate.so_far) == (0.5, 0.9)
        assert (found.cases_gate.counted, found.cases_gate.total, found.ended) == (2, 4, 2)

    def test_of_all_errors(self) -> None:
        found = of([errored("a"), errored("b")])
        assert (found.metrics_gate.share, found.metrics_gate.passed) == (None, None)
        assert (found.cases_gate.share, found.cases_gate.passed) == (0.0, False)


def test_the_distribution_counts_cases_with_shares() -> None:
    rows = [
        *(done("a"), done("a")),
        done("b", BORDERLINE, 0.7),
        done("c", FAIL, 0.1),
        errored("d"),
        ExecutionRecord("e", "pending"),
    ]
    found = of(rows, completed=False)
    assert found.distribution == {"pass": 1, "borderline": 1, "fail": 1, "error": 1, "waiting": 1}
    assert (found.case_count, found.executions) == (5, 6)
    assert found.as_json()["distribution"]["total"] == 5
    assert found.as_json()["shares"]["pass"] == 0.2
    assert shares({"pass": 0}) == {"pass": 0.0}


def test_flaky_cases_and_pass_of_k_are_counted() -> None:
    rows = [done("a"), done("a", FAIL, 0.2), done("b"), done("b"), errored("c"), done("c")]
    found = of(rows)
    assert (found.flaky, found.all_passed, found.any_passed) == (1, 1, 3)


def test_the_interval_is_wilson_for_single_runs_and_over_cases_for_repeated_ones() -> None:
    once = of([done(str(n), PASS if n < 90 else FAIL) for n in range(120)])
    assert once.interval == pytest.approx((0.6656, 0.8190), abs=1e-4)
    repeated = [done(str(n % 40), PASS if n % 40 < 30 else FAIL) for n in range(120)]
    assert of(repeated).interval == of(repeated).interval
    interval = of(repeated).interval
    assert interval is not None
    assert interval[0] < 0.65


def test_the_mean_score_has_an_interval_over_the_cases_that_have_one() -> None:
    found = of([*(done(str(n), score=n / 40) for n in range(40)), errored("none")])
    assert found.score_interval is not None
    low, high = found.score_interval
    assert low < 39 / 80 < high
    repeated = of([done(str(n % 20), score=(n % 20) / 20) for n in range(80)])
    assert repeated.score_interval is not None
    # Repetitions that agree tell no more than one would.
    assert repeated.score_interval[1] - repeated.score_interval[0] > 0.2
    assert of([errored("none")]).score_interval is None


def test_a_summary_of_before_there_were_intervals_of_scores_is_read() -> None:
    written = of([done()]).as_json()
    del written["score_interval"]
    assert Summary.from_json(written).score_interval is None


def test_a_summary_survives_json() -> None:
    rows = [
        done(run_cost_usd=Decimal("0.1"), evaluation_cost_usd=Decimal("0.02"), latency_ms=12.0),
        done("b", metrics={"m": 3.0}),
        errored("c"),
    ]
    for found in (of(rows), of(rows[:1]), of([])):
        read = Summary.from_json(json.loads(json.dumps(found.as_json())))
        assert read.as_json() == found.as_json()
        assert read.means == found.means


def test_percentages_read_as_they_were_set() -> None:
    policy = PolicySpec(metrics_pass_threshold=0.57, cases_pass_threshold=0.29)
    written = of([done(score=0.57)], policy).as_json()
    assert written["metrics_pass_threshold"] == written["weighted_metrics_score_pct"] == 57
    assert written["cases_pass_threshold"] == 29


def test_money_never_becomes_a_float() -> None:
    written = of([done(run_cost_usd=Decimal("0.1")), done(run_cost_usd=Decimal("0.2"))]).as_json()
    assert written["means"]["run_cost_usd"] == "0.3"
    assert written["means"]["evaluation_cost_usd"] is None


rows_of_a_run = st.lists(
    st.builds(
        ExecutionRecord,
        case=st.sampled_from("abcd"),
        status=st.sampled_from(["scored", "error"]),
        verdict=st.sampled_from([PASS, BORDERLINE, FAIL]),
        score=st.one_of(st.none(), st.floats(0, 1)),
        is_forced=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(derandomize=True)
@given(rows_of_a_run, st.data(), st.sampled_from(["score", "expected_outcomes"]))
def test_the_order_of_executions_changes_nothing(
    rows: list[ExecutionRecord], data: st.DataObject, gate: str
) -> None:
    policy = PolicySpec(case_gate=gate)
    one, other = of(rows, policy), of(data.draw(st.permutations(rows)), policy)
    assert one.distribution == other.distribution
    assert (one.cases_gate, one.metrics_gate) == (other.cases_gate, other.metrics_gate)
    assert sum(one.distribution.values()) == len({row.case for row in rows})
    assert one.cases_gate.share is not None
    assert 0.0 <= one.cases_gate.share <= 1.0


def progress(**changes: Any) -> SummaryProgress:
    settings = {"total": 360, "ended": 246, "passed": 200, "score_sum": 204.67, "score_count": 246}
    return SummaryProgress(**{**settings, "repetitions": 3, **changes})


class TestMetricsOutlook:
    def test_on_course_says_what_the_rest_must_average(self) -> None:
        found = metrics_forecast(progress(), POLICY)
        assert (found.state, found.remaining) == ("on_course", 114)
        assert found.needed == pytest.approx((0.8 * 360 - 204.67) / 114)
        assert found.text == "The remaining 38 cases must average 73.1%"

    def test_what_the_rest_must_average_is_rounded_up(self) -> None:
        found = metrics_forecast(
            progress(total=2, ended=1, score_sum=0.899999999, score_count=1, repetitions=1), POLICY
        )
        assert found.text == "The remaining case must average 70.1%"

    def test_at_risk_below_the_threshold(self) -> None:
        found = metrics_forecast(progress(score_sum=190.0), POLICY)
        assert (found.state, found.so_far) == ("at_risk", pytest.approx(190 / 246))

    def test_out_of_reach_when_full_marks_are_too_few(self) -> None:
        found = metrics_forecast(progress(score_sum=150.0), POLICY)
        assert found.state == "out_of_reach"
        assert found.text.startswith(
            "Can't be reached: the remaining 38 cases would have to average 121"
        )

    def test_nothing_more_is_needed(self) -> None:
        found = metrics_forecast(progress(total=247, score_sum=240.0, repetitions=1), POLICY)
        assert (found.state, found.needed) == ("on_course", 0.0)
        assert found.text == "Passed whatever the remaining case scores"

    def test_parts_of_cases_are_counted_in_executions(self) -> None:
        assert metrics_forecast(progress(ended=247), POLICY).text.startswith(
            "The remaining 113 results"
        )
        one = metrics_forecast(progress(ended=359, score_count=359, score_sum=290.0), POLICY)
        assert one.text.startswith(("The remaining result", "Passed whatever the remaining result"))

    def test_before_anything_has_ended_everything_is_possible(self) -> None:
        found = metrics_forecast(progress(ended=0, passed=0, score_sum=0.0, score_count=0), POLICY)
        assert (found.state, found.so_far, found.needed) == ("on_course", None, 0.8)

    @pytest.mark.parametrize(
        ("score_sum", "state"), [(288.0, "on_course"), (287.0, "out_of_reach")]
    )
    def test_at_the_end_there_is_consensus(self, score_sum: float, state: str) -> None:
        found = metrics_forecast(progress(ended=360, score_count=360, score_sum=score_sum), POLICY)
        assert (found.state, found.needed, found.text) == (state, None, "All results are in")


class TestCasesOutlook:
    policy = PolicySpec(cases_pass_threshold=0.85)

    def test_at_risk_says_how_many_of_the_last_must_pass(self) -> None:
        found = cases_forecast(progress(), self.policy)
        assert (found.state, found.needed, found.remaining) == ("at_risk", 106, 114)
        assert found.text == "106 of the remaining 114 must pass"

    def test_on_course_at_the_threshold(self) -> None:
        assert cases_forecast(progress(passed=230), self.policy).state == "on_course"

    def test_out_of_reach(self) -> None:
        found = cases_forecast(progress(passed=190), self.policy)
        assert (found.state, found.text) == (
            "out_of_reach",
            "Can't be reached: 116 more must pass, 114 are left",
        )
        last = cases_forecast(progress(ended=359, passed=300), self.policy)
        assert last.text == "Can't be reached: 6 more must pass, 1 is left"

    def test_enough_have_passed(self) -> None:
        found = cases_forecast(progress(passed=10), PolicySpec(cases_pass_threshold=0.0))
        assert (found.state, found.needed, found.text) == (
            "on_course",
            0,
            "Enough have passed already",
        )

    def test_thresholds_are_met_exactly(self) -> None:
        found = cases_forecast(
            SummaryProgress(total=10, ended=5, passed=3, score_sum=0, score_count=0),
            PolicySpec(cases_pass_threshold=0.7),
        )
        assert found.needed == 4

    def test_before_and_after(self) -> None:
        before = cases_forecast(progress(ended=0, passed=0), self.policy)
        assert (before.state, before.so_far) == ("on_course", None)
        after = cases_forecast(progress(ended=360, passed=306), self.policy)
        assert (after.state, after.needed) == ("on_course", None)


def test_metrics_have_their_means_by_evaluator_in_tree_order() -> None:
    def judged(key: str, score: float, *, binary: bool = False) -> dict[str, Any]:
        return {
            "key": key,
            "name": key,
            "tier": "",
            "weight": 0.5,
            "binary": binary,
            "score": score,
        }

    means = metric_means(
        [
            (2, "later", [judged("a", 1)]),
            (1, "first", [judged("a", 5), judged("done", 5, binary=True)]),
            (1, "first", [judged("a", 4)]),
        ]
    )

    assert [(one.path, one.key, one.mean, one.judged, one.binary) for one in means] == [
        ("first", "a", 4.5, 2, False),
        ("first", "done", 5, 1, True),
        ("later", "a", 1, 1, False),
    ]
    assert means_by_key(means) == {"a": 4.5, "done": 5}
    assert [MetricMean.from_json(json.loads(json.dumps(one.as_json()))) for one in means] == [
        *means
    ]
    assert metric_means([]) == ()
