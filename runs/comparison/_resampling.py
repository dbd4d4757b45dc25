"""Resample the differences of cases, of many figures at once (SCORING §9).

A figure is a column, a case a row; a case without it is NaN there and counts for nothing in that
column. All columns are resampled together, so one draw of the cases serves every figure. More than
a thousand cases are dealt at random into a thousand hands, which are resampled in their place: the
spread of the hands' means is that of the cases', and ten thousand cases answer within a page's time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
# How many resamples are drawn at once: enough to be fast, few enough for ten thousand cases.
AT_ONCE = 100
# Sums of the same numbers in another order may differ by what floats cannot hold.
NO_DISTANCE = 1e-9
MOST_APART = 1000
BITS = 8

Columns = NDArray[np.float64]


def bootstrap(columns: Columns, *, level: float, seed: int) -> tuple[Columns, Columns]:
    """Return both ends of the percentile interval of every column's mean, `level` of the resamples outside."""
    filled, present = _hands(columns, seed)
    means = []
    for drawn in _draws(len(filled), seed):
        with np.errstate(invalid="ignore", divide="ignore"):
            means.append((drawn @ filled) / (drawn @ present))
    low, high = np.nanquantile(np.concatenate(means), (level / 2, 1 - level / 2), axis=0)
    return low, high


def sign_flip(columns: Columns, *, seed: int) -> Columns:
    """Return the two-sided p of every column's mean when each case keeps or changes its sign at random."""
    filled, _ = _hands(columns, seed)
    whole = filled.sum(axis=0)
    as_far = np.zeros(columns.shape[1])
    for kept in _signs(len(filled), seed):
        # The sum with signs is twice what kept its sign, less the whole.
        as_far += (np.abs(2 * (kept @ filled) - whole) >= np.abs(whole) - NO_DISTANCE).sum(axis=0)
    return (as_far + 1) / (RESAMPLES + 1)


def _hands(columns: Columns, seed: int) -> tuple[Columns, Columns]:
    """Return sums and counts of what is resampled: of each case, or of each hand of many cases."""
    present = ~np.isnan(columns)
    filled, counted = np.where(present, columns, 0.0), present.astype(float)
    if len(columns) <= MOST_APART:
        return filled, counted
    dealt = np.random.default_rng(seed).permutation(len(columns))
    starts = np.linspace(0, len(columns), MOST_APART, endpoint=False).astype(int)
    return np.add.reduceat(filled[dealt], starts), np.add.reduceat(counted[dealt], starts)


def _draws(cases: int, seed: int) -> Iterator[Columns]:
    """Yield how often each case was drawn, with replacement, a row a resample."""
    generator = np.random.default_rng(seed)
    rows = np.arange(AT_ONCE, dtype=np.int64)[:, None] * cases
    for _ in range(RESAMPLES // AT_ONCE):
        drawn = generator.integers(0, cases, (AT_ONCE, cases), dtype=np.int32) + rows
        counts = np.bincount(drawn.ravel(), minlength=AT_ONCE * cases)
        yield counts.reshape(AT_ONCE, cases).astype(float)


def _signs(cases: int, seed: int) -> Iterator[Columns]:
    """Yield which cases keep their sign, a row a resample."""
    generator = np.random.default_rng(seed)
    width = -(-cases // BITS)
    for _ in range(RESAMPLES // AT_ONCE):
        bits = np.frombuffer(generator.bytes(AT_ONCE * width), dtype=np.uint8)
        yield np.unpackbits(bits.reshape(AT_ONCE, width), axis=1, count=cases).astype(float)
