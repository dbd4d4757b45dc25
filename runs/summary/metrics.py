"""The mean of every judged metric over a run, 0 to 5 (SCORING §5)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from evaluators.scoring.numbers import rounded

FACTS = ("key", "name", "tier", "weight", "binary")


@dataclass(frozen=True, slots=True)
class MetricMean:
    """One metric of the evaluator at a path: the mean of the executions it was judged in, 0 to 5.

    `weight` is its share of the evaluator's score, 0 to 1. A mean takes the label of its nearest
    whole score, halves up; one that is `binary` is pass or fail.
    """

    path: str
    key: str
    name: str
    tier: str
    weight: float
    binary: bool
    mean: float
    judged: int

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MetricMean:
        """Return what as_json wrote."""
        return cls(**values)


@dataclass(slots=True)
class _Sum:
    facts: Mapping[str, Any]
    scores: list[float] = field(default_factory=list)


def metric_means(
    judged: Iterable[tuple[int, str, Sequence[Mapping[str, Any]]]],
) -> tuple[MetricMean, ...]:
    """Return the means by evaluator in tree order, each of its metrics in the order it judges them.

    `judged` holds for every score its evaluator's position in the tree and path, and its metrics as
    the evaluator keeps them.
    """
    places: dict[str, int] = {}
    found: dict[str, dict[str, _Sum]] = {}
    for position, path, metrics in judged:
        places[path] = min(position, places.get(path, position))
        sums = found.setdefault(path, {})
        for metric in metrics or ():
            known = sums.get(metric["key"])
            if known is None:
                known = sums[metric["key"]] = _Sum({name: metric[name] for name in FACTS})
            known.scores.append(metric["score"])
    return tuple(
        MetricMean(
            path=path,
            mean=rounded(math.fsum(one.scores) / len(one.scores)),
            judged=len(one.scores),
            **one.facts,
        )
        for path in sorted(found, key=lambda path: (places[path], path))
        for one in found[path].values()
    )


def means_by_key(metrics: Iterable[MetricMean]) -> dict[str, float]:
    """Return the mean of every key; of two evaluators that judge it the first speaks."""
    found: dict[str, float] = {}
    for metric in metrics:
        found.setdefault(metric.key, metric.mean)
    return found
