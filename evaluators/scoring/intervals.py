"""Compute 95% confidence intervals of rates and means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RESAMPLES = 2000
LEVEL = 0.95
# A smaller p is unlikely to be chance.
SIGNIFICANCE = 0.05
Z = 1.959963984540054
# Drawing a kind of case takes about this many times as long as drawing one case.
KIND_COST = 4
MAX_DRAWN = 100_000


def wilson_interval(passed: float, total: float) -> tuple[float, float] | None:
    """Return the Wilson score interval of a share at 95%, 0 to 1; None if the total is 0.

    For weighted counts `total` is their effective number, which need not be whole.
    """
    if total == 0:
        return None
    share, spread = passed / total, Z * Z / total
    centre = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap_interval(
    groups: Sequence[tuple[float, int]], *, seed: int, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return the 95% percentile interval of Σ sum ÷ Σ count when whole groups are resampled.

    A group is one case: the number of its executions that passed, or the sum of their scores, and
    how many there are. The same seed gives the same interval. None if there is nothing to draw.
    """
    # Imported here: most commands compute no interval, and loading it takes longer than they do.
    import numpy as np

    counts = np.asarray([group for group in groups if group[1] > 0], dtype=np.float64)
    if len(counts) == 0:
        return None
    kinds, times = np.unique(counts, axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    # Draw identical cases together: where checks score them, few of thousands differ.
    if len(kinds) <= len(counts) / KIND_COST:
        drawn = generator.multinomial(len(counts), times / len(counts), resamples) @ kinds
    else:
        drawn = _draw(counts, generator, resamples)
    return percentile_interval(drawn[:, 0] / drawn[:, 1])


def percentile_interval(values: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the 95% percentile interval of a figure of resamples, leaving out nan; None without any."""
    import numpy as np

    known = values[~np.isnan(values)]
    if not known.size:
        return None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _draw(
    counts: npt.NDArray[np.float64], generator: np.random.Generator, resamples: int
) -> npt.NDArray[np.float64]:
    """Return the sums of samples, drawn some at a time: small ones take no call each, large ones no gigabytes."""
    import numpy as np

    size = len(counts)
    at_once = max(1, MAX_DRAWN // size)
    parts = [
        counts[generator.integers(0, size, (min(at_once, resamples - start), size))].sum(axis=1)
        for start in range(0, resamples, at_once)
    ]
    return np.concatenate(parts)
