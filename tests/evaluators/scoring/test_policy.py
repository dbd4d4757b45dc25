"""The thresholds and tolerances of a policy."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from evaluators.scoring.policy import PolicySpec, UnknownPolicyError
from evaluators.scoring.types import ScoreOutOfRangeError, Verdict

SHARES = (
    "pass_threshold",
    "borderline_threshold",
    "fallback_threshold",
    "metrics_pass_threshold",
    "cases_pass_threshold",
    "max_pass_rate_drop",
    "max_avg_score_drop",
)


@pytest.mark.parametrize(
    ("score", "verdict"),
    [
        (1.0, "pass"),
        (0.8, "pass"),
        (0.79999999999, "pass"),
        (0.7999999, "borderline"),
        (0.6, "borderline"),
        (0.5999999, "fail"),
        (0.0, "fail"),
    ],
)
def test_bands(score: float, verdict: str) -> None:
    assert PolicySpec().verdict_for(score) == verdict


def test_bands_of_zero_mean_what_they_say() -> None:
    policy = PolicySpec(pass_threshold=0.0, borderline_threshold=0.0)
    assert policy.verdict_for(0.0) is Verdict.PASS
    assert PolicySpec(borderline_threshold=0.0).verdict_for(0.0) is Verdict.BORDERLINE


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_a_share_outside_its_range_is_refused_by_name(name: str, value: float) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ScoreOutOfRangeError, match=name):
        PolicySpec(**settings)


def test_bands_out_of_order_are_refused() -> None:
    with pytest.raises(
        ScoreOutOfRangeError, match=r"borderline_threshold 0\.9 is above pass_threshold"
    ):
        PolicySpec(borderline_threshold=0.9)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_latency_tolerance_is_zero_or_more(value: float) -> None:
    with pytest.raises(ScoreOutOfRangeError, match="max_latency_increase_pct"):
        PolicySpec(max_latency_increase_pct=value)


@pytest.mark.parametrize(
    "settings",
    [{"case_gate": "vibes"}, {"final_score": "best"}, {"on_unscored": "ignore"}, {"scale": 7}],
)
def test_an_unknown_word_is_refused_with_the_choices(settings: dict[str, Any]) -> None:
    with pytest.raises(UnknownPolicyError, match="is not one of"):
        PolicySpec(**settings)


def test_a_policy_survives_json() -> None:
    policy = PolicySpec(
        pass_threshold=0.9, case_gate="expected_outcomes", count_reviews=True, scale=10
    )
    assert PolicySpec.model_validate(json.loads(json.dumps(policy.as_json()))) == policy
