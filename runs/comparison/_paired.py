"""What the differences of the shared cases say of a figure: an interval, a p, and what could be seen at all (SCORING §9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from evaluators.scoring.numbers import rounded
from runs.comparison._evidence import FEWEST_CASES, LEVEL, RESAMPLES, Evidence

POWER = 0.8
# How many resamples are drawn at once: enough to be fast, few enough for ten thousand cases.
AT_ONCE = 100
REGRESSED, IMPROVED = "regressed", "improved"
NO_CLEAR_CHANGE, TOO_FEW_CASES = "no clear change", "too few cases"


@dataclass(frozen=True, slots=True)
class Paired:
    """A figure of the shared cases, candidate minus baseline, a case's share of it being one number.

    `mean`, `low` and `high` are −1 to 1; without a case all are None. `p` is two-sided, None where
    there are fewer than ten cases. `smallest` is the least change that so many cases as spread as
    these show with 80 % power, None where there are too few or all changed alike.
    """

    cases: int
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    smallest: float | None

    @property
    def change(self) -> str:
        """Return the class of SCORING §9: regressed, improved, no clear change or too few cases."""
        if self.p is None or self.mean is None:
            return TOO_FEW_CASES
        if self.p >= LEVEL or not self.mean:
            return NO_CLEAR_CHANGE
        return REGRESSED if self.mean < 0 else IMPROVED


def paired(differences: Sequence[float], *, seed: int, tested: Evidence | None = None) -> Paired:
    """Return what the cases' differences say; `tested` brings a p of another test than sign flips."""
    values = np.asarray(differences, dtype=float)
    if not values.size:
        return Paired(0, None, None, None, None, None)
    low, high = bootstrap(values, seed=seed)
    is_enough = values.size >= FEWEST_CASES
    p = tested.p if tested else sign_flip(values, seed=seed) if is_enough else None
    smallest = smallest_detectable(values) if is_enough else None
    return Paired(int(values.size), rounded(float(values.mean())), low, high, p, smallest)


def bootstrap(values: NDArray[np.float64], *, seed: int) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean over 2,000 resamples of the cases."""
    generator = np.random.default_rng(seed)
    means = [
        values[generator.integers(0, values.size, (AT_ONCE, values.size), dtype=np.int32)].mean(1)
        for _ in range(RESAMPLES // AT_ONCE)
    ]
    low, high = np.quantile(np.concatenate(means), (LEVEL / 2, 1 - LEVEL / 2))
    return rounded(float(low)), rounded(float(high))


def sign_flip(values: NDArray[np.float64], *, seed: int) -> float:
    """Return the two-sided p of the mean when each difference keeps or changes its sign at random."""
    generator = np.random.default_rng(seed)
    seen, as_far = abs(float(values.sum())), 0
    for _ in range(RESAMPLES // AT_ONCE):
        signs = generator.integers(0, 2, (AT_ONCE, values.size), dtype=np.int8) * 2 - 1
        as_far += int((np.abs(signs @ values) >= seen - 1e-9).sum())
    return (as_far + 1) / (RESAMPLES + 1)


def smallest_detectable(values: NDArray[np.float64]) -> float | None:
    """Return the least mean change that a two-sided test at 0.05 shows with 80 % power; None without spread."""
    spread = float(values.std(ddof=1))
    if not spread > 0:
        return None
    normal = NormalDist()
    factor = normal.inv_cdf(1 - LEVEL / 2) + normal.inv_cdf(POWER)
    return rounded(factor * spread / math.sqrt(values.size))
