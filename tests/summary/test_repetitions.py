"""What repetitions come to together: the rule that decided, spread, all k, any of k, and dimensions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.summary.cases import ExecutionRecord, case_decision, measure_latencies, summarise_case
from runs.summary.metrics import DimensionMean, SideMean, dimension_means, finals_by_key
from runs.summary.run import Summary, summarise

POLICY, OUTCOMES = PolicySpec(), PolicySpec(case_gate="expected_outcomes")
REVIEWED = PolicySpec(count_reviews=True)
PASS, BORDERLINE, FAIL = Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL


def scored(score: float | None, *, case: str = "a", **more: Any) -> ExecutionRecord:
    verdict = more.pop("verdict", POLICY.verdict_for(score) if score is not None else PASS)
    return ExecutionRecord(case, "scored", verdict, score, **more)


def errored(case: str = "a") -> ExecutionRecord:
    return ExecutionRecord(case, "error")


def of(rows: Sequence[ExecutionRecord], policy: PolicySpec = POLICY) -> Summary:
    return summarise(rows, policy, is_completed=True, seed=1)


@pytest.mark.parametrize(
    ("rows", "policy", "verdict", "rule", "text"),
    [
        ([scored(0.9), scored(0.8)], POLICY, PASS, "mean_score", "mean 0.85 ≥ 0.80"),
        ([scored(0.9), scored(0.5)], POLICY, BORDERLINE, "mean_score", "0.60 ≤ mean 0.70 < 0.80"),
        ([scored(0.9), scored(0.1)], POLICY, FAIL, "mean_score", "mean 0.50 < 0.60"),
        (
            [scored(0.7999), scored(0.8)],
            POLICY,
            BORDERLINE,
            "mean_score",
            "0.60 ≤ mean 0.79 < 0.80",
        ),
        # A result that a file brought keeps the file's verdict.
        ([scored(0.5, verdict=PASS)], POLICY, PASS, "mean_score", "its only repetition: pass"),
        ([scored(0.6), errored()], POLICY, BORDERLINE, "mean_score", "0.60 ≤ mean 0.60 < 0.80"),
        (
            [scored(1.0), scored(0.9, verdict=FAIL, is_forced=True)],
            POLICY,
            FAIL,
            "forced_fail",
            "fail forced in 1 of 2 repetitions",
        ),
        ([scored(None), scored(None)], OUTCOMES, PASS, "outcomes", "outcomes: all of 2 passed"),
        (
            [scored(None), scored(None, verdict=FAIL), errored()],
            OUTCOMES,
            BORDERLINE,
            "outcomes",
            "outcomes: some passed, 1 of 2",
        ),
        ([scored(1.0, verdict=FAIL)], OUTCOMES, FAIL, "outcomes", "outcomes: none of 1 passed"),
        (
            [scored(0.1, reviewed_verdict=PASS), scored(0.9)],
            REVIEWED,
            PASS,
            "reviews",
            "with reviews, all 2 pass",
        ),
        (
            [scored(0.1, reviewed_verdict=PASS), scored(0.1)],
            REVIEWED,
            BORDERLINE,
            "reviews",
            "with reviews, verdicts differ",
        ),
        ([errored(), errored()], POLICY, None, "", ""),
    ],
)
def test_a_case_says_by_which_rule_it_came_to_its_verdict(
    rows: list[ExecutionRecord], policy: PolicySpec, verdict: Verdict | None, rule: str, text: str
) -> None:
    found = case_decision(rows, policy)
    assert (found.verdict, found.rule, found.text) == (verdict, rule, text)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_words_never_contradict_the_verdict(scores: list[float]) -> None:
    found = case_decision([scored(score) for score in scores], POLICY)
    mean = float(found.text.split("mean ")[1].split()[0])
    assert POLICY.verdict_for(mean) is found.verdict


@pytest.mark.parametrize(
    ("rows", "spread"),
    [
        ([scored(0.9), scored(0.7), scored(0.8)], 0.2),
        ([scored(0.5), scored(0.5)], 0.0),
        ([scored(0.9), errored()], None),
        ([scored(0.9)], None),
        ([scored(None, verdict=PASS), scored(0.5)], None),
    ],
)
def test_the_spread_is_the_highest_less_the_lowest_of_two_scores_or_more(
    rows: list[ExecutionRecord], spread: float | None
) -> None:
    assert summarise_case("a", rows, POLICY).spread == spread


def test_a_run_counts_all_k_any_of_k_and_flaky_each_over_the_cases_that_can_tell() -> None:
    rows = [
        *(scored(0.9, case="all"), scored(0.9, case="all")),
        *(scored(0.9, case="some"), scored(0.3, case="some")),
        *(scored(0.9, case="half errored"), errored("half errored")),
        *(errored("errored"), errored("errored")),
        *(scored(0.9, case="unfinished"), ExecutionRecord("unfinished", "cancelled")),
    ]
    found = of(rows)
    assert (found.all_passed, found.any_passed, found.settled) == (1, 3, 4)
    assert (found.flaky, found.comparable) == (1, 2)
    assert (found.spread, found.spread_cases) == (0.3, 2)


@pytest.mark.parametrize(
    ("latencies", "found"),
    [
        ([], (0, None, None)),
        ([7], (1, 7, 7)),
        ([400, 100, None, 300, 200], (4, 200, 400)),
        (range(1, 101), (100, 50, 95)),
    ],
)
def test_latencies_are_told_by_nearest_ranks(latencies: Any, found: tuple[Any, ...]) -> None:
    measured = measure_latencies([scored(0.9, latency_ms=ms) for ms in latencies])
    assert (measured.timed, measured.latency_p50_ms, measured.latency_p95_ms) == found


def dimension(key: str, **sides: float | None) -> dict[str, Any]:
    return {"key": key, "name": key.capitalize(), **sides}


def test_dimensions_have_a_mean_on_each_side_over_the_executions_that_have_it() -> None:
    judged = [
        (3, "b", [dimension("task", deterministic=None, judge=2.0, final=2.0)]),
        (
            1,
            "a",
            [
                dimension("task", deterministic=10.0, judge=8.5, final=8.5),
                dimension("spark", deterministic=None, judge=6.0, final=6.0),
            ],
        ),
        (1, "a", [dimension("task", deterministic=0.0, judge=7.5, final=7.5)]),
    ]
    found = dimension_means(judged)
    assert [(one.path, one.key) for one in found] == [("a", "task"), ("a", "spark"), ("b", "task")]
    assert found[0].deterministic == SideMean(5.0, 2)
    assert found[0].final == SideMean(8.0, 2)
    assert found[1].deterministic == SideMean(None, 0)
    assert finals_by_key(found) == {"task": 8.0, "spark": 6.0}
    assert [DimensionMean.from_json(json.loads(json.dumps(one.as_json()))) for one in found] == [
        *found
    ]


def test_a_summary_written_before_a_figure_was_kept_reads_back_without_it() -> None:
    found = of([scored(0.9), scored(0.3)])
    written = json.loads(json.dumps(found.as_json()))
    assert Summary.from_json(written).spread == found.spread
    for name in ("spread", "spread_cases", "settled", "comparable", "timed", "latency_p95_ms"):
        del written[name]
    older = Summary.from_json(written)
    assert (older.spread, older.settled, older.flaky) == (None, 0, 1)
