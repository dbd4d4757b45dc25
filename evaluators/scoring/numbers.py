"""Round numbers before they are compared, check their range, format them, average, rank and add them up (SCORING §1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from operator import mul

from evaluators.scoring.types import SCORE_DIGITS, ScoreOutOfRangeError

# The decimals a score has on each scale, so that it shows about a hundredth of the whole.
SCALE_DIGITS = {1: 2, 5: 1, 10: 1, 100: 0}


def rounded(value: float) -> float:
    """Round to 9 decimals, as every comparison does."""
    return round(value, SCORE_DIGITS)


def is_at_least(value: float, limit: float) -> bool:
    """Tell whether the value reaches the limit, both to 9 decimals."""
    return rounded(value) >= rounded(limit)


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean, the same in any order; None for no values."""
    return math.fsum(values) / len(values) if values else None


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float | None:
    """Return Σ value×weight / Σ weight, the same in any order; None if all weights are 0.

    The mean always lies between the lowest and the highest value, in spite of floating-point errors.
    """
    total = math.fsum(weights)
    if total <= 0:
        return None
    average = math.fsum(map(mul, values, weights)) / total
    counted = [value for value, weight in zip(values, weights, strict=True) if weight > 0]
    return min(max(average, min(counted)), max(counted))


def nearest_rank(ordered: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least a share of all values do not exceed; None without any."""
    return ordered[rank_index(share, len(ordered))] if ordered else None


def rank_index(share: float, count: int) -> int:
    """Return the index of the nearest rank of a share among `count` values in order."""
    return max(0, math.ceil(rounded(share * count)) - 1)


def require_weight(value: float, owner: str) -> float:
    """Return the weight; raises ScoreOutOfRangeError naming the owner, for NaN, ∞ and negative ones."""
    if not (math.isfinite(value) and value >= 0):
        raise ScoreOutOfRangeError(f"{owner}: weight {value!r} is not a number of 0 or more")
    return value


def require_share(value: float, owner: str) -> float:
    """Return the value; raises ScoreOutOfRangeError naming the owner, outside 0 to 1."""
    if not (math.isfinite(value) and 0.0 <= value <= 1.0):
        raise ScoreOutOfRangeError(f"{owner} {value!r} is not a number from 0 to 1")
    return value


def on_scale(value: float, scale: float, owner: str) -> float:
    """Return value ÷ scale; raises ScoreOutOfRangeError naming the owner, outside 0 to scale."""
    # No math.isfinite, which fails for whole numbers too large for a float.
    if not 0.0 <= value <= scale:
        raise ScoreOutOfRangeError(f"{owner}: {value!r:.40} is not a number from 0 to {scale:g}")
    return value / scale


def format_number(score: float, digits: int | None = None, *, scale: int = 1) -> str:
    """Format a score of 0 to 1 on a scale, rounded down so that it never shows a band it missed.

    Without `digits` it has the usual decimals of the scale: 0.78 of 1, 7.8 of 10, 78 of 100.
    """
    shown = SCALE_DIGITS[scale] if digits is None else digits
    return f"{math.floor(_shifted(score, shown, scale)) / 10.0**shown:.{shown}f}"


def format_rounded_up(score: float, *, scale: int = 1) -> str:
    """Format a score on a scale, rounded up, so that reaching it is enough."""
    shown = SCALE_DIGITS[scale]
    return f"{math.ceil(_shifted(score, shown, scale)) / 10**shown:.{shown}f}"


def format_limit(limit: float, *, scale: int = 1) -> str:
    """Format a threshold of 0 to 1 on a scale, with all its decimals up to nine."""
    short = f"{rounded(rounded(limit) * scale):.9f}".rstrip("0")
    whole, _, decimals = short.partition(".")
    decimals = decimals.ljust(SCALE_DIGITS[scale], "0")
    return f"{whole}.{decimals}" if decimals else whole


def percent(share: float) -> float:
    """Return a share of 0 to 1 in percent, to 9 decimals: 57.0, never 56.99999999999999."""
    return rounded(share * 100)


def format_weight(weight: float) -> str:
    """Format a weight without needless zeros."""
    return f"{weight:g}"


def _shifted(score: float, digits: int, scale: int) -> float:
    """Return score × scale × 10^digits without floating-point noise; the score counts to 9 decimals."""
    return round(rounded(score) * scale * 10.0**digits, SCORE_DIGITS - digits)


def quote_names(names: Iterable[str]) -> str:
    """Return names in quotes, separated by commas."""
    return ", ".join(f"“{name}”" for name in names)


def sum_known(costs: Iterable[Decimal | None]) -> Decimal | None:
    """Return the sum of the known costs, None without any."""
    total: Decimal | None = None
    # A loop, for tables sum up ten thousand times, mostly one cost.
    for cost in costs:
        if cost is not None:
            total = cost if total is None else total + cost
    return total


def combined_cost(*costs: Decimal | None) -> Decimal | None:
    """Return the sum of the known costs; None when it is zero and a cost is unknown."""
    total = sum_known(costs)
    return None if not total and None in costs else total
