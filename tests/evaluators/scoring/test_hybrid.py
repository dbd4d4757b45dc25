"""The two sides of a hybrid evaluator, dimension by dimension."""

from __future__ import annotations

import math

import pytest

from evaluators.scoring.hybrid import (
    Check,
    DimensionPolicy,
    HybridError,
    JudgeOpinion,
    check_counts,
    deterministic_dimensions,
    evaluate_hybrid,
    final_dimensions,
    median_opinion,
)
from evaluators.scoring.types import ScoreOutOfRangeError


def check(outcome: str, *dimensions: str) -> Check:
    return Check(outcome, dimensions, name=outcome)


def test_a_dimension_is_the_mean_of_its_checks() -> None:
    checks = [check("passed", "task", "process"), check("failed", "task"), check("passed", "task")]
    dimensions, warnings = deterministic_dimensions(checks)
    assert dimensions == pytest.approx({"task": 20 / 3, "process": 10.0})
    assert warnings == ()


def test_a_check_that_errors_is_left_out_with_a_warning() -> None:
    checks = [check("passed", "task"), check("error", "task"), Check("error", ("spark",))]
    dimensions, warnings = deterministic_dimensions(checks)
    assert dimensions == {"task": 10.0}
    assert warnings == ("check error errored and is left out", "check 3 errored and is left out")


def test_counts() -> None:
    checks = [check("passed"), check("failed"), check("error"), check("passed")]
    assert check_counts(checks, judge_successes=2, judge_failures=1) == {
        "deterministic_passed_checks": 2,
        "deterministic_failed_checks": 1,
        "deterministic_error_checks": 1,
        "judge_successful_iterations": 2,
        "judge_failed_iterations": 1,
    }


def test_iterations_give_the_median_per_dimension_and_overall() -> None:
    opinions = [
        JudgeOpinion(8.0, {"task": 9.0, "spark": 1.0}, ("a",)),
        JudgeOpinion(2.0, {"task": 5.0}, ("b",)),
        JudgeOpinion(9.0, {"task": 6.0, "spark": 2.0}),
    ]
    found = median_opinion(opinions)
    assert found == JudgeOpinion(8.0, {"task": 6.0, "spark": 1.5}, ("a", "b"))
    assert median_opinion([]) is None


def test_the_final_score_is_the_judges_overall_one_and_dimensions_mirror_the_judge() -> None:
    opinion = JudgeOpinion(8.5, {"task": 9.0, "spark": 6.0}, ("did it",))
    found = evaluate_hybrid([check("failed", "task")], [opinion], failed_iterations=1)
    assert found.as_json() == {
        "schema_version": 1,
        "deterministic_dimensions": {"task": 0.0},
        "judge_dimensions": {"task": 9.0, "spark": 6.0},
        "judge_overall": {"score": 8.5, "evidence": ["did it"]},
        "final_dimensions": {"task": 9.0, "spark": 6.0},
        "final_score": 8.5,
        "summary": {
            "deterministic_passed_checks": 0,
            "deterministic_failed_checks": 1,
            "deterministic_error_checks": 0,
            "judge_successful_iterations": 1,
            "judge_failed_iterations": 1,
        },
        "warnings": [],
    }


def test_without_a_judge_there_is_no_final_score() -> None:
    found = evaluate_hybrid([check("passed", "task")], [], failed_iterations=2)
    assert (found.final_score, found.judge_overall, found.final_dimensions) == (None, None, {})
    assert found.as_json()["judge_overall"] is None


def test_every_dimension_follows_its_policy() -> None:
    deterministic = {"task": 10.0, "process": 0.0, "checked": 5.0, "spark": 10.0}
    judged = {"task": 6.0, "process": 8.0, "autonomy": 7.0, "closeness": 4.0, "spark": 2.0}
    policies = {
        "task": DimensionPolicy("weighted", 0.25),
        "process": DimensionPolicy("deterministic_only"),
        "autonomy": DimensionPolicy("deterministic_only"),
        "closeness": DimensionPolicy("weighted"),
        "checked": DimensionPolicy("weighted"),
    }
    final, warnings = final_dimensions(deterministic, judged, policies)
    assert final == {
        "task": 9.0,
        "process": 0.0,
        "autonomy": 7.0,
        "closeness": 4.0,
        "spark": 2.0,
        "checked": 5.0,
    }
    assert warnings == (
        "autonomy: no check covers it, the judge's score counts",
        "closeness: no check covers it, only the judge's score counts",
        "checked: the judge gave no score, only the checks count",
    )


def test_a_dimension_that_only_the_judge_decides_has_no_score_without_it() -> None:
    final, warnings = final_dimensions({"task": 10.0}, {}, {"task": DimensionPolicy()})
    assert (final, warnings) == ({}, ())


def test_the_final_score_may_come_from_dimension_weights() -> None:
    opinion = JudgeOpinion(1.0, {"task": 8.0, "spark": 2.0, "process": 10.0})
    weights = {"task": 3.0, "spark": 1.0, "closeness": 5.0}
    assert evaluate_hybrid([], [opinion], dimension_weights=weights).final_score == 6.5
    assert evaluate_hybrid([], [opinion], dimension_weights={}).final_score is None
    with pytest.raises(ScoreOutOfRangeError, match="dimension “task”"):
        evaluate_hybrid([], [opinion], dimension_weights={"task": -1.0})


def test_what_lies_outside_the_scale_or_is_no_word_of_ours_is_refused() -> None:
    with pytest.raises(ScoreOutOfRangeError, match=r"overall: 10\.1"):
        JudgeOpinion(10.1)
    with pytest.raises(ScoreOutOfRangeError, match="dimension “task”: nan"):
        JudgeOpinion(1.0, {"task": math.nan})
    with pytest.raises(HybridError, match="'maybe' is not passed, failed or error"):
        Check("maybe", ("task",), name="c")
    with pytest.raises(HybridError, match="'both' is not one of judge_only"):
        DimensionPolicy("both")
    with pytest.raises(ScoreOutOfRangeError, match=r"judge_weight 1\.5"):
        DimensionPolicy("weighted", 1.5)
    with pytest.raises(ScoreOutOfRangeError, match="judge_weight nan"):
        DimensionPolicy("weighted", math.nan)
