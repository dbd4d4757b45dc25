"""Say how far a pass rate can be trusted: 95% intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95
Z = 1.959963984540054


def wilson_interval(passed: int, total: int) -> tuple[float, float] | None:
    """Return the Wilson score interval of a share at 95%, 0 to 1; None of nothing."""
    if total == 0:
        return None
    share, spread = passed / total, Z * Z / total
    centre = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap_interval(
    groups: Sequence[tuple[int, int]], *, seed: int, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return the 95% percentile interval of Σ passed ÷ Σ total when whole groups are drawn again.

    A group is one case with how many of its executions passed and how many there are. The same
    seed gives the same interval. None when there is nothing to draw.
    """
    counts = np.asarray([group for group in groups if group[1] > 0], dtype=np.int64)
    if len(counts) == 0:
        return None
    generator = np.random.default_rng(seed)
    rates = np.empty(resamples)
    for number in range(resamples):
        drawn = counts[generator.integers(0, len(counts), len(counts))].sum(axis=0)
        rates[number] = drawn[0] / drawn[1]
    low, high = np.quantile(rates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
