"""The metrics of one result as its panel shows them: tier by tier, with what each weighs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.models import ScoreState
from runs.plan import METRICS_KIND
from runs.reports.result_tree import TreeNode, walk


@dataclass(frozen=True, slots=True)
class MetricBar:
    """One metric, 0 to 5, and its share of the weights, 0 to 1 (SCORING §5)."""

    name: str
    score: float
    binary: bool
    share: float


@dataclass(frozen=True, slots=True)
class MetricTier:
    """The metrics of one tier; "" where they have none."""

    name: str
    bars: tuple[MetricBar, ...]


@dataclass(frozen=True, slots=True)
class ResultMetrics:
    """What one evaluator gave, its score from 0 to 1; metrics without a tier stand last."""

    path: str
    score: float
    tiers: tuple[MetricTier, ...]


def result_metrics(tree: TreeNode) -> tuple[ResultMetrics, ...]:
    """Return the metrics of every evaluator that scored some, in tree order."""
    return tuple(
        ResultMetrics(node.path, node.row.score or 0.0, _tiers(node.details["metrics"]))
        for node in walk(tree)
        if node.state == ScoreState.SCORED
        and node.kind == METRICS_KIND
        and node.row
        and node.details.get("metrics")
    )


def _tiers(parts: Sequence[Mapping[str, Any]]) -> tuple[MetricTier, ...]:
    # A file of results may tell weights as they were set; what counts is their share.
    total = sum(part["weight"] for part in parts) or 1.0
    found: dict[str, list[MetricBar]] = {}
    for part in parts:
        bar = MetricBar(
            part["name"], part["score"], bool(part.get("binary")), part["weight"] / total
        )
        found.setdefault(part.get("tier") or "", []).append(bar)
    names = sorted(found, key=lambda name: not name)
    return tuple(MetricTier(name, tuple(found[name])) for name in names)
