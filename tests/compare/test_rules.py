"""The rules of a comparison: which differences of two runs are regressions."""

from __future__ import annotations

import math

import pytest

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import ScoreOutOfRangeError, Verdict
from evaluators.templatetags.figures import delta
from runs.compare.rules import (
    CaseSide,
    RunFacts,
    RunSide,
    Tolerances,
    by_harm,
    compare_case,
    compare_cases,
    compare_runs,
    differences,
)

PASS, BORDERLINE, FAIL = Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL
BASELINE = RunSide(passed=9, total=10, mean_score=0.9, mean_latency_ms=1000)


def test_the_same_figures_are_no_regression() -> None:
    found = compare_runs(BASELINE, BASELINE)
    assert (found.regression_detected, found.reasons) == (False, ())
    assert (found.pass_rate_change, found.score_change, found.latency_change_pct) == (0, 0, 0)


def test_any_drop_of_the_pass_rate_is_one() -> None:
    found = compare_runs(BASELINE, RunSide(8, 10, 0.99, 500))
    assert [(r.measure, r.change, r.limit) for r in found.reasons] == [("pass rate", -0.1, 0.0)]
    assert found.reasons[0].text == (
        "pass rate fell by 10.0 pts, from 90.0% to 80.0% (limit: no drop)"
    )
    assert found.score_change == 0.09
    assert found.latency_change_pct == -50


@pytest.mark.parametrize(
    ("score", "is_regression"), [(0.85, False), (0.8499999, True), (1.0, False)]
)
def test_the_mean_score_may_fall_by_five_points(score: float, is_regression: bool) -> None:
    found = compare_runs(BASELINE, RunSide(9, 10, score, 1000))
    assert found.regression_detected == is_regression
    assert [reason.measure for reason in found.reasons] == ["mean score"] * is_regression


@pytest.mark.parametrize(
    ("before", "after", "is_regression"),
    [
        (1000, 1200, False),
        (1000, 1200.1, True),
        (0.7, 0.84, False),
        (0, 1000, False),
        (None, 1000, False),
        (1000, None, False),
    ],
)
def test_the_latency_may_grow_by_a_fifth(
    before: float | None, after: float | None, is_regression: bool
) -> None:
    found = compare_runs(RunSide(1, 1, 0.9, before), RunSide(1, 1, 0.9, after))
    assert found.regression_detected == is_regression


def test_the_latency_reason_names_both_figures() -> None:
    found = compare_runs(BASELINE, RunSide(9, 10, 0.9, 1500))
    assert found.reasons[0].text == (
        "mean latency grew by 50.0%, from 1.0\u00a0s to 1.5\u00a0s (limit: +20%)"
    )


def test_a_reason_is_spelt_finely_enough_to_exceed_what_is_tolerated() -> None:
    baseline = RunSide(2000, 2000, 0.9, 1000)
    found = compare_runs(baseline, RunSide(1999, 2000, 0.84996, 1200.1))
    assert [reason.text for reason in found.reasons] == [
        "pass rate fell by 0.05 pts, from 100.00% to 99.95% (limit: no drop)",
        "mean score fell by 5.004 pts, from 90.000% to 84.996% (limit: drop of 5\u00a0pts)",
        "mean latency grew by 20.01%, from 1.0\u00a0s to 1.2\u00a0s (limit: +20%)",
    ]


def test_a_reason_spells_its_change_as_the_headline_does_and_its_figures_rounded_down() -> None:
    found = compare_runs(RunSide(3, 3, 0.9, 1000), RunSide(1, 3, 0.7334, 1628.57))
    reasons = [reason.text.partition(" (")[0] for reason in found.reasons]
    assert reasons == [
        "pass rate fell by 66.7 pts, from 100.0% to 33.3%",
        "mean score fell by 16.7 pts, from 90.0% to 73.3%",
        "mean latency grew by 62.9%, from 1.0\u00a0s to 1.6\u00a0s",
    ]
    shown = [delta(found.pass_rate_change, "pts"), delta(found.score_change, "pts")]
    assert shown == ["−66.7\u00a0pts", "−16.7\u00a0pts"]
    assert found.latency_change_pct is not None
    assert delta(found.latency_change_pct / 100, "pct") == "+62.9%"


def test_every_breach_is_named() -> None:
    found = compare_runs(BASELINE, RunSide(1, 10, 0.1, 9000))
    assert [reason.measure for reason in found.reasons] == [
        "pass rate",
        "mean score",
        "mean latency",
    ]


def test_a_run_without_figures_breaches_nothing() -> None:
    found = compare_runs(BASELINE, RunSide(0, 0))
    assert (found.regression_detected, found.pass_rate_change, found.score_change) == (
        False,
        None,
        None,
    )


def test_tolerances_may_be_given_or_come_from_the_policy() -> None:
    wide = Tolerances(max_pass_rate_drop=0.1, max_avg_score_drop=0.1, max_latency_increase_pct=50)
    assert not compare_runs(BASELINE, RunSide(8, 10, 0.8, 1500), wide).regression_detected
    policy = PolicySpec(
        max_pass_rate_drop=0.2, max_avg_score_drop=0.0, max_latency_increase_pct=0.0
    )
    assert Tolerances.from_policy(policy) == Tolerances(0.2, 0.0, 0.0)


@pytest.mark.parametrize(
    "name", ["max_pass_rate_drop", "max_avg_score_drop", "max_latency_increase_pct"]
)
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_a_tolerance_that_is_none_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ScoreOutOfRangeError, match=name):
        Tolerances(**{name: value})


@pytest.mark.parametrize(
    ("before", "after", "status", "flipped"),
    [
        (CaseSide(PASS, 0.9), CaseSide(FAIL, 0.9), "regression", True),
        (CaseSide(PASS, 0.9), CaseSide(BORDERLINE, 0.99), "regression", True),
        (CaseSide(BORDERLINE, 0.7), CaseSide(PASS, 0.7), "improvement", True),
        (CaseSide(BORDERLINE, 0.7), CaseSide(FAIL, 0.7), "unchanged", False),
        (CaseSide(PASS, 0.8), CaseSide(PASS, 0.75), "unchanged", False),
        (CaseSide(PASS, 0.8), CaseSide(PASS, 0.7499999), "regression", False),
        (CaseSide(FAIL, 0.4), CaseSide(FAIL, 0.45), "unchanged", False),
        (CaseSide(FAIL, 0.4), CaseSide(FAIL, 0.6), "improvement", False),
        (CaseSide(PASS, None), CaseSide(PASS, 0.9), "unchanged", False),
        (CaseSide(None), CaseSide(PASS, 0.9), "error", False),
        (CaseSide(PASS, 0.9), CaseSide(None), "error", False),
    ],
)
def test_a_shared_case_by_verdict_then_by_five_points(
    before: CaseSide, after: CaseSide, status: str, flipped: bool
) -> None:
    found = compare_case("a", before, after)
    assert (found.status, found.has_flipped) == (status, flipped)


def test_cases_of_one_side_are_added_or_removed() -> None:
    side = CaseSide(PASS, 0.9)
    found = compare_cases({"gone": side, "both": side}, {"new": side, "both": CaseSide(FAIL, 0.1)})
    assert [(change.case, change.status) for change in found] == [
        ("new", "added"),
        ("both", "regression"),
        ("gone", "removed"),
    ]
    assert found[1].score_change == -0.8


def side(verdict: Verdict | None, score: float | None) -> CaseSide:
    return CaseSide(verdict, score)


def test_the_worst_cases_come_first() -> None:
    before = {name: side(PASS, 0.9) for name in "abcdef"}
    after = {
        "a": side(PASS, 0.9),
        "b": side(PASS, 0.8),
        "c": side(BORDERLINE, 0.7),
        "d": side(FAIL, 0.5),
        "e": side(None, None),
        "f": side(FAIL, 0.1),
        "g": side(PASS, 1.0),
    }
    assert [one.case for one in by_harm(compare_cases(before, after))] == list("fdcbeag")


SNAPSHOT = {
    "suite": {"slug": "support", "version": 1},
    "policy": PolicySpec().as_json(),
    "evaluators": {
        "name": "all",
        "kind": "composite",
        "children": [{"name": "tone", "kind": "llm_judge", "config": {"prompt": "Kind?"}}],
    },
    "target": {"name": "agent", "model": "agent-model"},
    "judge": {
        "slug": "j",
        "name": "Juno",
        "base_url": "http://j:1/v1",
        "model_id": "j",
        "prices": 1,
    },
    "models": {"agent-model": {"model_id": "a"}, "extra": {"model_id": "x"}},
    "files": {"a.md": "1"},
}
FACTS = RunFacts(SNAPSHOT, 1, {"a": "1", "b": "2"})


def changed(**parts) -> RunFacts:
    return RunFacts({**SNAPSHOT, **parts}, 1, {"a": "1", "b": "2"})


def test_runs_that_differ_in_their_target_alone_are_comparable() -> None:
    judge = {**SNAPSHOT["judge"], "base_url": "http://J:1/v1/", "prices": 2, "name": "June"}
    models = {**SNAPSHOT["models"], "agent-model": {"model_id": "b"}}
    gates = {**SNAPSHOT["policy"], "cases_pass_threshold": 0.1}
    other = changed(target={"name": "b"}, judge=judge, models=models, policy=gates)
    assert differences(FACTS, FACTS) == differences(FACTS, other) == ()


@pytest.mark.parametrize(
    ("other", "what", "text", "spoils"),
    [
        (
            changed(suite={"slug": "other", "version": 2}),
            "suite",
            "support and other",
            True,
        ),
        (
            changed(suite={"slug": "support", "version": 2}),
            "suite version",
            "version 1 and version 2",
            False,
        ),
        (RunFacts(SNAPSHOT, 3, FACTS.cases), "repetitions", "1 and 3", False),
        (
            RunFacts(SNAPSHOT, 1, {"b": "3", "c": "4"}),
            "cases",
            "1 added (“c”), 1 removed (“a”), 1 changed (“b”)",
            True,
        ),
        (changed(files={"a.md": "2"}), "files", "“a.md” changed", True),
        (changed(judge=None), "judge", "Juno and none", True),
        (
            changed(judge={**SNAPSHOT["judge"], "base_url": "http://k:1/v1", "name": "June"}),
            "judge",
            "Juno and June",
            True,
        ),
        (
            # Most likely the same server, started again; a change of its model is read from its replies.
            changed(judge={**SNAPSHOT["judge"], "base_url": "http://j:2/v1"}),
            "judge",
            "Juno at another port",
            False,
        ),
        (
            changed(models={**SNAPSHOT["models"], "extra": {"model_id": "y"}}),
            "judge",
            "settings of the model extra differ",
            True,
        ),
        (
            changed(
                evaluators={**SNAPSHOT["evaluators"], "config": {"aggregator": {"type": "minimum"}}}
            ),
            "evaluators",
            "“the whole” changed",
            True,
        ),
    ],
)
def test_what_differs_is_told(other: RunFacts, what: str, text: str, spoils: bool) -> None:
    [found] = differences(FACTS, other)
    assert (found.what, found.text, found.spoils) == (what, text, spoils)


def test_what_was_changed_for_one_run_alone_is_told_beside_what_it_moves() -> None:
    gate = {"evaluator": None, "name": "cases_pass_threshold", "old": 1.0, "new": 0.9}
    weight = {"evaluator": "tone", "name": "weight", "old": 2.0, "new": 3.0}
    found = differences(FACTS, RunFacts({**SNAPSHOT, "changed": [gate, weight]}, 1, FACTS.cases))
    assert [(one.what, one.spoils) for one in found] == [("this run only", False)]
    assert "candidate: cases pass threshold 1.0 → 0.9" in found[0].text
    assert "tone weight 2.0 → 3.0" in found[0].text
