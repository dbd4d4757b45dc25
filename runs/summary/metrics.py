"""The means of metrics and dimensions over the executions of a run, by the evaluator that judges them."""

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
        """Return the mean that as_json wrote."""
        return cls(**values)


@dataclass(slots=True)
class _Sum:
    facts: Mapping[str, Any]
    scores: list[float] = field(default_factory=list)


def metric_means(
    judged: Iterable[tuple[int, str, Sequence[Mapping[str, Any]]]],
) -> tuple[MetricMean, ...]:
    """Return the means by evaluator in tree order, each of its metrics in the order it judges them.

    `judged` has the evaluator's position in the tree, its path and its stored metrics for every score.
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
            mean=rounded(math.fsum(sum_.scores) / len(sum_.scores)),
            judged=len(sum_.scores),
            **sum_.facts,
        )
        for path in sorted(found, key=lambda path: (places[path], path))
        for sum_ in found[path].values()
    )


def means_by_key(metrics: Iterable[MetricMean]) -> dict[str, float]:
    """Return the mean of every key, from the first evaluator that judges it."""
    found: dict[str, float] = {}
    for metric in metrics:
        found.setdefault(metric.key, metric.mean)
    return found


SIDES = ("deterministic", "judge", "final")


@dataclass(frozen=True, slots=True)
class SideMean:
    """The mean of one side, 0 to 10, over the `counted` executions that have it; None without any."""

    mean: float | None
    counted: int


@dataclass(frozen=True, slots=True)
class DimensionMean:
    """One dimension of the evaluator at a path: the means of the checks, the judge and both together."""

    path: str
    key: str
    name: str
    deterministic: SideMean
    judge: SideMean
    final: SideMean

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> DimensionMean:
        """Return the mean that as_json wrote."""
        return cls(**{**values, **{side: SideMean(**values[side]) for side in SIDES}})


@dataclass(slots=True)
class _Sums:
    name: str
    sides: dict[str, list[float]] = field(default_factory=lambda: {side: [] for side in SIDES})


def dimension_means(
    judged: Iterable[tuple[int, str, Sequence[Mapping[str, Any]]]],
) -> tuple[DimensionMean, ...]:
    """Return the means by evaluator in tree order, each of its dimensions in the order it has them.

    `judged` has the evaluator's position in the tree, its path and its stored dimensions for every
    score. A side that is missing in an execution is left out, never 0.
    """
    places: dict[str, int] = {}
    found: dict[str, dict[str, _Sums]] = {}
    for position, path, dimensions in judged:
        places[path] = min(position, places.get(path, position))
        sums = found.setdefault(path, {})
        for part in dimensions or ():
            known = sums.setdefault(part["key"], _Sums(part["name"]))
            for side in SIDES:
                if part.get(side) is not None:
                    known.sides[side].append(part[side])
    return tuple(
        DimensionMean(
            path=path,
            key=key,
            name=sums.name,
            **{side: _mean(values) for side, values in sums.sides.items()},
        )
        for path in sorted(found, key=lambda path: (places[path], path))
        for key, sums in found[path].items()
    )


def finals_by_key(dimensions: Iterable[DimensionMean]) -> dict[str, float]:
    """Return the final mean of every key, from the first evaluator that has it."""
    found: dict[str, float] = {}
    for dimension in dimensions:
        if dimension.final.mean is not None:
            found.setdefault(dimension.key, dimension.final.mean)
    return found


def _mean(values: Sequence[float]) -> SideMean:
    return SideMean(rounded(math.fsum(values) / len(values)) if values else None, len(values))
