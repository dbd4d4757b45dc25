"""The one place where numbers are rounded before they are compared, and spelt (SCORING §1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import mul

from evaluators.scoring.types import SCORE_DIGITS, ScoreOutOfRangeError

# How many decimals a score has on each scale: a hundredth of the whole, or as near to it as reads well.
SCALE_DIGITS = {1: 2, 5: 1, 10: 1, 100: 0}


def rounded(value: float) -> float:
    """Return the value as every comparison sees it: to 9 decimals."""
    return round(value, SCORE_DIGITS)


def is_at_least(value: float, limit: float) -> bool:
    """Tell whether the value reaches the limit, both to 9 decimals."""
    return rounded(value) >= rounded(limit)


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean, the same in any order; None of nothing."""
    return math.fsum(values) / len(values) if values else None


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float | None:
    """Return Σ value×weight / Σ weight, the same in any order; None when no weight is left.

    The mean lies between the lowest and the highest value, whatever floats make of it.
    """
    total = math.fsum(weights)
    if total <= 0:
        return None
    average = math.fsum(map(mul, values, weights)) / total
    counted = [value for value, weight in zip(values, weights, strict=True) if weight > 0]
    return min(max(average, min(counted)), max(counted))


def require_weight(value: float, owner: str) -> float:
    """Return the weight; raises ScoreOutOfRangeError naming the owner for NaN, ∞ and negative ones."""
    if not (math.isfinite(value) and value >= 0):
        raise ScoreOutOfRangeError(f"{owner}: weight {value!r} is not a number of 0 or more")
    return value


def require_share(value: float, owner: str) -> float:
    """Return the value; raises ScoreOutOfRangeError naming the owner outside 0 to 1."""
    if not (math.isfinite(value) and 0.0 <= value <= 1.0):
        raise ScoreOutOfRangeError(f"{owner} {value!r} is not a number from 0 to 1")
    return value


def on_scale(value: float, scale: float, owner: str) -> float:
    """Return value ÷ scale; raises ScoreOutOfRangeError naming the owner outside 0 to scale."""
    # Without a look at whether it is finite, which a whole number too large for a float cannot bear.
    if not 0.0 <= value <= scale:
        raise ScoreOutOfRangeError(f"{owner}: {value!r:.40} is not a number from 0 to {scale:g}")
    return value / scale


def format_number(score: float, digits: int | None = None, *, scale: int = 1) -> str:
    """Return a score on a scale, rounded down: it never shows a band it missed.

    `score` is 0 to 1. It has as many decimals as the scale usually shows, or more: 0.78 of 1, 7.8 of
    10, 78 of 100.
    """
    shown = SCALE_DIGITS[scale] if digits is None else digits
    return f"{math.floor(_shifted(score, shown, scale)) / 10.0**shown:.{shown}f}"


def format_rounded_up(score: float, *, scale: int = 1) -> str:
    """Return a score on a scale, rounded up, so that reaching it is enough."""
    shown = SCALE_DIGITS[scale]
    return f"{math.ceil(_shifted(score, shown, scale)) / 10**shown:.{shown}f}"


def format_limit(limit: float, *, scale: int = 1) -> str:
    """Return a threshold of 0 to 1 on a scale, with all the decimals it has up to nine."""
    short = f"{rounded(rounded(limit) * scale):.9f}".rstrip("0")
    whole, _, decimals = short.partition(".")
    decimals = decimals.ljust(SCALE_DIGITS[scale], "0")
    return f"{whole}.{decimals}" if decimals else whole


def percent(share: float) -> float:
    """Return a share of 0 to 1 in percent, to 9 decimals: 57.0, never 56.99999999999999."""
    return rounded(share * 100)


def format_weight(weight: float) -> str:
    """Return a weight without needless zeros."""
    return f"{weight:g}"


def _shifted(score: float, digits: int, scale: int) -> float:
    """Return score × scale × 10^digits without what floats add to it, the score being one of 9 decimals."""
    return round(rounded(score) * scale * 10.0**digits, SCORE_DIGITS - digits)


def quote_names(names: Iterable[str]) -> str:
    """Return names in quotes, separated by commas."""
    return ", ".join(f"“{name}”" for name in names)
