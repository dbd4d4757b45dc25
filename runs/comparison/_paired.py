"""What the differences of the shared cases say of a figure: an interval, a p, and what could be seen at all (SCORING §9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluators.scoring.numbers import rounded
from runs.comparison._evidence import FEWEST_CASES, LEVEL, Evidence, holm
from runs.comparison._resampling import bootstrap, sign_flip

POWER = 0.8
REGRESSED, IMPROVED = "regressed", "improved"
NO_CLEAR_CHANGE, TOO_FEW_CASES = "no clear change", "too few cases"


@dataclass(frozen=True, slots=True)
class Paired:
    """A figure of the shared cases, candidate minus baseline, a case's share of it being one number.

    `mean`, `low` and `high` are in the unit of the figure; without a case all are None. `p` is
    two-sided, None where there are fewer than ten cases. `smallest` is the least change that so many
    cases as spread as these show with 80 % power, None where there are too few or all changed alike.
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

    @property
    def excludes_zero(self) -> bool:
        """Tell whether ten cases or more have an interval that lies on one side of 0."""
        if self.low is None or self.high is None or self.cases < FEWEST_CASES:
            return False
        return self.low > 0 or self.high < 0

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, the class among them."""
        return asdict(self) | {"class": self.change}


NOTHING = Paired(0, None, None, None, None, None)


def paired(differences: Sequence[float], *, seed: int, tested: Evidence | None = None) -> Paired:
    """Return what the cases' differences say; `tested` brings a p of another test than sign flips."""
    (found,) = paired_figures([differences], seed=seed)
    return replace(found, p=tested.p) if tested else found


def paired_figures(figures: Sequence[Sequence[float | None]], *, seed: int) -> tuple[Paired, ...]:
    """Return what the differences of several figures say, each given case by case in the same order.

    A case is None where it lacks the figure. The cases are resampled 2,000 times by `seed`, once for
    all figures.
    """
    if not figures or not len(figures[0]):
        return tuple(NOTHING for _ in figures)
    columns = np.array(figures, dtype=float).T
    # Nothing comes of a figure that no case has, whatever is resampled in its place.
    drawn = np.where(np.isnan(columns).all(axis=0), 0.0, columns)
    low, high = bootstrap(drawn, level=LEVEL, seed=seed)
    p = sign_flip(drawn, seed=seed)
    return tuple(
        _figure(columns[:, place], float(low[place]), float(high[place]), float(p[place]))
        for place in range(len(figures))
    )


def raised(found: Sequence[Paired]) -> tuple[Paired, ...]:
    """Return the figures with each p raised by Holm's rule for how many of them were tested."""
    told = holm([Evidence(one.cases, one.p) for one in found])
    return tuple(replace(one, p=other.p) for one, other in zip(found, told, strict=True))


def _figure(column: NDArray[np.float64], low: float, high: float, p: float) -> Paired:
    values = column[~np.isnan(column)]
    if not values.size:
        return NOTHING
    is_enough = values.size >= FEWEST_CASES
    return Paired(
        cases=int(values.size),
        mean=rounded(math.fsum(values) / values.size),
        low=rounded(low),
        high=rounded(high),
        p=p if is_enough else None,
        smallest=smallest_detectable(values) if is_enough else None,
    )


def smallest_detectable(values: NDArray[np.float64]) -> float | None:
    """Return the least mean change that a two-sided test at 0.05 shows with 80 % power; None without spread."""
    spread = float(values.std(ddof=1))
    if not spread > 0:
        return None
    normal = NormalDist()
    factor = normal.inv_cdf(1 - LEVEL / 2) + normal.inv_cdf(POWER)
    return rounded(factor * spread / math.sqrt(values.size))
