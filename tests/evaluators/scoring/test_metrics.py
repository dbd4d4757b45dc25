"""Metrics weighed by tier."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from evaluators.scoring.metrics import (
    DEFAULT_METRICS,
    Metric,
    MetricsError,
    binary_score,
    metric_label,
    metric_score,
    normalize,
    overall_score,
)
from evaluators.scoring.types import ScoreOutOfRangeError


def test_the_default_metrics_weigh_1_in_four_tiers() -> None:
    assert math.fsum(metric.weight for metric in DEFAULT_METRICS) == 1.0
    tiers: dict[str, list[str]] = {}
    for metric in DEFAULT_METRICS:
        tiers.setdefault(metric.tier, []).append(f"{metric.name} {metric.weight:.1%}")
    assert tiers == {
        "Execution": [
            "Tool Routing 15.0%",
            "Parameter Extraction 15.0%",
            "Result Interpretation 15.0%",
        ],
        "Knowledge": ["Grounding Fidelity 12.5%", "Instruction Compliance 12.5%"],
        "Process": ["Information Gathering 10.0%", "Conversation Management 10.0%"],
        "Delivery": ["Response Delivery 10.0%"],
    }
    assert all(metric.description for metric in DEFAULT_METRICS)


@pytest.mark.parametrize(("score", "overall"), [(5, 1.0), (3, 0.6), (0, 0.0)])
def test_the_same_everywhere_is_that_share(score: int, overall: float) -> None:
    scores = {metric.key: score for metric in DEFAULT_METRICS}
    assert overall_score(DEFAULT_METRICS, scores) == pytest.approx(overall)


def test_weights_are_renormalised_after_a_metric_is_removed() -> None:
    left = normalize([metric for metric in DEFAULT_METRICS if metric.tier == "Execution"])
    assert [metric.weight for metric in left] == pytest.approx([1 / 3] * 3)


def test_a_binary_metric_counts_as_5_or_0() -> None:
    metrics = [Metric("routing", "Routing", 1.0), Metric("done", "Done", 0.5, binary=True)]
    assert overall_score(metrics, {"routing": 3, "done": True}) == pytest.approx(0.7333333333)
    assert overall_score(metrics, {"routing": 3, "done": 5}) == pytest.approx(0.7333333333)
    assert overall_score(metrics, {"routing": 3, "done": False}) == pytest.approx(0.4)
    assert (binary_score(True), binary_score(False)) == (5, 0)


def test_a_weight_of_0_counts_nothing() -> None:
    metrics = [Metric("a", "A", 1.0), Metric("b", "B", 0.0)]
    assert overall_score(metrics, {"a": 4, "b": 0}) == 0.8


def test_what_a_reply_lacks_or_invents_is_refused_by_name() -> None:
    metrics = [Metric("a", "A", 1.0), Metric("b", "B", 1.0)]
    with pytest.raises(MetricsError, match="without a score: “b”"):
        overall_score(metrics, {"a": 1})
    with pytest.raises(MetricsError, match="unknown metrics: “c”"):
        overall_score(metrics, {"a": 1, "b": 1, "c": 1})


@pytest.mark.parametrize("value", [-1, 6, 2.5, math.nan, "5", None, True])
def test_a_score_is_a_whole_number_from_0_to_5(value: int) -> None:
    with pytest.raises(ScoreOutOfRangeError, match="metric “a”"):
        metric_score(Metric("a", "A", 1.0), value)


@pytest.mark.parametrize("value", [1, 3, "yes", None])
def test_a_binary_metric_is_passed_or_failed(value: int) -> None:
    with pytest.raises(ScoreOutOfRangeError, match="neither passed nor failed"):
        metric_score(Metric("a", "A", 1.0, binary=True), value)


def test_metrics_that_cannot_be_weighed_are_refused() -> None:
    one = Metric("a", "A", 1.0)
    with pytest.raises(MetricsError, match="there are no metrics"):
        normalize([])
    with pytest.raises(MetricsError, match="more than one metric is named “a”"):
        normalize([one, one])
    with pytest.raises(MetricsError, match="sum to 0"):
        normalize([replace(one, weight=0.0)])
    with pytest.raises(ScoreOutOfRangeError, match="metric “a”"):
        normalize([replace(one, weight=-1.0)])
    with pytest.raises(ScoreOutOfRangeError, match="metric “a”"):
        normalize([replace(one, weight=math.nan)])


@pytest.mark.parametrize(
    ("score", "label"),
    [
        (0, "critical_fail"),
        (1, "fail"),
        (2, "poor"),
        (3, "acceptable"),
        (4, "good"),
        (5, "excellent"),
        (0.5, "fail"),
        (2.4999999, "poor"),
        (2.49999999999, "acceptable"),
        (3.7, "good"),
        (4.5, "excellent"),
    ],
)
def test_labels_are_those_of_the_nearest_whole_score_halves_up(score: float, label: str) -> None:
    assert metric_label(score) == label


def test_a_binary_metric_never_gets_one_of_the_six() -> None:
    assert [metric_label(score, binary=True) for score in (5, 0, 2.5, 2.4)] == [
        "pass",
        "fail",
        "pass",
        "fail",
    ]


@pytest.mark.parametrize("score", [-0.1, 5.1, math.nan])
def test_there_is_no_label_outside_the_scale(score: float) -> None:
    with pytest.raises(ScoreOutOfRangeError):
        metric_label(score)
