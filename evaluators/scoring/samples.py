"""Make one score of several samples of the same judge, and say how far they lie apart (SCORING §7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from evaluators.scoring.numbers import mean, rounded
from evaluators.scoring.types import DomainError

MEDIAN, MEAN, MAJORITY = "median", "mean", "majority"
WAYS = (MEDIAN, MEAN, MAJORITY)


class SamplesError(DomainError):
    """Samples cannot be combined as they stand."""

    code = "invalid_samples"


@dataclass(frozen=True, slots=True)
class Combined:
    """One score of many, 0 to 1; `spread` is the highest minus the lowest sample."""

    score: float
    spread: float
    samples: tuple[float, ...]


def combine_samples(scores: Sequence[float], way: str = MEDIAN) -> Combined:
    """Return the median, the mean or the most frequent score; ties of frequency go to the lowest.

    Raises SamplesError without samples and for an unknown way.
    """
    if not scores:
        raise SamplesError("there are no samples")
    return Combined(_one(scores, way), max(scores) - min(scores), tuple(scores))


def _one(scores: Sequence[float], way: str) -> float:
    if way == MEDIAN:
        return median(scores)
    if way == MEAN:
        return mean(scores) or 0.0
    if way == MAJORITY:
        counts = Counter(rounded(score) for score in scores)
        most = max(counts.values())
        return min(score for score, count in counts.items() if count == most)
    raise SamplesError(f"samples are combined by {', '.join(WAYS)}, not by {way!r}")
