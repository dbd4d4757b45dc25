"""Which bands would have agreed best with what people decided, and what they would change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluators.scoring.numbers import rounded
from runs.reviewing.agreement import FEWEST, VERDICTS, kappas

# Thresholds that a person would choose.
STEPS = 100
TIE = 1e-9
AGREEMENT, KAPPA = "agreement", "kappa"

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One output whose verdict its score decided: the score, 0 to 1, and what people say of it."""

    score: float
    person: str
    sampling_rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Bands:
    """Two thresholds, 0 to 1, and how far the verdicts they make agree with people.

    `agreement` is a share of 0 to 1, `kappa` −1 to 1 or None, both weighted back by sampling rate.
    """

    pass_threshold: float
    borderline_threshold: float
    agreement: float
    kappa: float | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The bands as they are and the best ones, over `n` reviewed outputs; `changed` of them move to another band."""

    now: Bands
    best: Bands
    n: int
    changed: int

    @property
    def is_few(self) -> bool:
        """Tell whether under 20 decisions speak for it."""
        return self.n < FEWEST

    @property
    def is_change(self) -> bool:
        """Tell whether other bands than the present ones agree better."""
        return self.now != self.best


def suggest_bands(
    reviewed: Sequence[Reviewed],
    *,
    pass_threshold: float,
    borderline_threshold: float,
    by: str = AGREEMENT,
) -> Suggestion | None:
    """Return the bands on whole hundredths that agree best with people, the present ones among them; None of nothing.

    `by` is agreement or kappa. Of bands that agree alike those nearest to the present ones are taken, so that
    nothing is suggested without a gain. Only outputs whose verdict a score decided belong here: bands do not
    move what a rule forced, nor what outcomes decided.
    """
    if not reviewed:
        return None
    present = (rounded(pass_threshold), rounded(borderline_threshold))
    limits = sorted({*(rounded(step / STEPS) for step in range(STEPS + 1)), *present})
    tables = _tables(reviewed, np.asarray(limits))
    highs, lows = (place.ravel() for place in np.indices((len(limits), len(limits))))
    is_order = lows <= highs
    highs, lows = highs[is_order], lows[is_order]
    found = tables[highs, lows]
    kappa = kappas(found)
    agreement = np.trace(found, axis1=1, axis2=2) / found.sum(axis=(1, 2))
    aim = agreement if by == AGREEMENT else np.nan_to_num(kappa, nan=-1.0)
    steps = np.asarray(limits)
    moved = np.abs(steps[highs] - present[0]) + np.abs(steps[lows] - present[1])
    is_best = aim >= aim.max() - TIE
    best = int(np.flatnonzero(is_best)[np.argmin(moved[is_best])])
    now = int(np.argmin(moved))

    def bands(place: int) -> Bands:
        known = None if np.isnan(kappa[place]) else rounded(float(kappa[place]))
        pass_, borderline = (limits[int(side[place])] for side in (highs, lows))
        return Bands(pass_, borderline, rounded(float(agreement[place])), known)

    before, after = bands(now), bands(best)
    return Suggestion(before, after, len(reviewed), _changed(reviewed, before, after))


def _tables(reviewed: Sequence[Reviewed], limits: Table) -> Table:
    """Return by the places of pass and borderline threshold the weighted table of machine by person."""
    size = len(limits)
    # Of what people say: the weight at and above each limit.
    above = np.zeros((len(VERDICTS), size))
    for one in reviewed:
        reached = np.searchsorted(limits, rounded(one.score), side="right")
        above[VERDICTS.index(one.person), :reached] += 1 / one.sampling_rate
    total = above[:, :1]
    tables = np.zeros((size, size, len(VERDICTS), len(VERDICTS)))
    for person in range(len(VERDICTS)):
        at_pass, at_borderline = above[person][:, None], above[person][None, :]
        tables[:, :, 2, person] = at_pass
        tables[:, :, 1, person] = at_borderline - at_pass
        tables[:, :, 0, person] = total[person] - at_borderline
    return tables


def _changed(reviewed: Sequence[Reviewed], before: Bands, after: Bands) -> int:
    return sum(_band(one.score, before) != _band(one.score, after) for one in reviewed)


def _band(score: float, bands: Bands) -> int:
    limits = (bands.borderline_threshold, bands.pass_threshold)
    return sum(rounded(score) >= limit for limit in limits)
