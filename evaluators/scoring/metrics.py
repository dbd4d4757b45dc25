"""The arithmetic of the metrics judge: scores 0 to 5, weights, labels (SCORING §5)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaluators.scoring.numbers import quote_names, require_weight, rounded
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError

HIGHEST = 5
LABELS = ("critical_fail", "fail", "poor", "acceptable", "good", "excellent")
BINARY_LABELS = ("fail", "pass")


class MetricsError(DomainError):
    """A set of metrics cannot be scored."""

    code = "invalid_metrics"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric that a judge scores: 0 to 5, or pass and fail if it is binary."""

    key: str
    name: str
    weight: float
    tier: str = ""
    description: str = ""
    binary: bool = False


DEFAULT_METRICS = (
    Metric(
        "tool_routing", "Tool Routing", 0.15, "Execution",
        "The agent calls the right tools, in a sensible order, and no needless ones.",
    ),
    Metric(
        "parameter_extraction", "Parameter Extraction", 0.15, "Execution",
        "The arguments given to tools are what the conversation and earlier results say.",
    ),
    Metric(
        "result_interpretation", "Result Interpretation", 0.15, "Execution",
        "The agent reads what tools return correctly and draws the right conclusions.",
    ),
    Metric(
        "grounding_fidelity", "Grounding Fidelity", 0.125, "Knowledge",
        "Every claim rests on what the agent was given or found; nothing is made up.",
    ),
    Metric(
        "instruction_compliance", "Instruction Compliance", 0.125, "Knowledge",
        "The agent keeps to its instructions, to policy and to what it was asked for.",
    ),
    Metric(
        "information_gathering", "Information Gathering", 0.10, "Process",
        "The agent finds out what it needs before acting, and asks for nothing it has.",
    ),
    Metric(
        "conversation_management", "Conversation Management", 0.10, "Process",
        "The agent keeps track of the conversation and leads it to an end.",
    ),
    Metric(
        "response_delivery", "Response Delivery", 0.10, "Delivery",
        "The answer is clear, complete, of fitting length and in a fitting tone.",
    ),
)  # fmt: skip


def normalize(metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """Return the metrics with their weights scaled to a sum of 1.

    Raises MetricsError for no metrics, duplicate keys and weights that sum to 0, and
    ScoreOutOfRangeError for a weight that is NaN, infinite or negative.
    """
    if not metrics:
        raise MetricsError("there are no metrics")
    keys = [metric.key for metric in metrics]
    duplicates = sorted(key for key, count in Counter(keys).items() if count > 1)
    if duplicates:
        raise MetricsError(f"more than one metric is named {quote_names(duplicates)}")
    total = math.fsum(require_weight(metric.weight, f"metric “{metric.key}”") for metric in metrics)
    if total <= 0:
        raise MetricsError("the weights of the metrics sum to 0")
    return tuple(replace(metric, weight=metric.weight / total) for metric in metrics)


def overall_score(metrics: Sequence[Metric], scores: Mapping[str, int | bool]) -> float:
    """Return Σ (score ÷ 5 × weight), weights summing to 1: 0 to 1 (×100 is `overall_score`).

    `scores` holds a whole score from 0 to 5 for every metric; for a binary one True or False, or 5 or 0.
    Raises MetricsError for a missing or an unknown metric, and ScoreOutOfRangeError for a score outside
    its scale.
    """
    weighted_metrics = normalize(metrics)
    known = {metric.key for metric in weighted_metrics}
    missing = [metric.key for metric in weighted_metrics if metric.key not in scores]
    if missing:
        raise MetricsError(f"metrics without a score: {quote_names(missing)}")
    unknown = [key for key in scores if key not in known]
    if unknown:
        raise MetricsError(f"scores of unknown metrics: {quote_names(unknown)}")
    overall = math.fsum(
        metric_score(metric, scores[metric.key]) / HIGHEST * metric.weight
        for metric in weighted_metrics
    )
    return min(max(overall, 0.0), 1.0)


def metric_score(metric: Metric, value: int | bool) -> int:
    """Return the score of a metric, 0 to 5; a pass is 5, a fail 0. Raises ScoreOutOfRangeError."""
    if metric.binary:
        return binary_score(value, metric.key)
    if value is True or value is False or value not in range(HIGHEST + 1):
        raise ScoreOutOfRangeError(
            f"metric “{metric.key}”: {value!r} is not a whole number from 0 to 5"
        )
    return value


def binary_score(passed: int | bool, key: str = "") -> int:
    """Return 5 for a pass, 0 for a fail; raises ScoreOutOfRangeError for anything else."""
    if isinstance(passed, bool):
        return HIGHEST if passed else 0
    if passed not in (0, HIGHEST):
        raise ScoreOutOfRangeError(
            f"binary metric “{key}”: {passed!r} is neither passed nor failed"
        )
    return passed


def metric_label(score: float, *, binary: bool = False) -> str:
    """Return the label of the nearest whole score, 0 to 5, halves up.

    A binary metric passes in the upper half of its scale. Raises ScoreOutOfRangeError outside 0 to 5.
    """
    if not (math.isfinite(score) and 0 <= score <= HIGHEST):
        raise ScoreOutOfRangeError(f"metric score {score!r} is not a number from 0 to 5")
    if binary:
        return BINARY_LABELS[rounded(score) >= HIGHEST / 2]
    return LABELS[math.floor(rounded(score) + 0.5)]
