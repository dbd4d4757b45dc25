"""Kappa and rates of agreement with their intervals, as pages spell them."""

from __future__ import annotations

from evaluators.templatetags.figures import MISSING, down, interval
from runs.reviewing import Agreement, Rate

MINUS = "−"
KAPPA_DIGITS = 2


def kappa_words(agreement: Agreement) -> str:
    """Spell kappa with its interval: `0.75 (0.51 to 0.92)`."""
    if agreement.kappa is None:
        return MISSING
    if agreement.low is None or agreement.high is None:
        return _signed(agreement.kappa)
    low, high = _signed(agreement.low), _signed(agreement.high)
    return f"{_signed(agreement.kappa)} ({low} to {high})"


def ends(rate: Rate) -> str:
    """Spell the interval of a rate: `71.2% to 88.9%`."""
    if rate.low is None or rate.high is None:
        return MISSING
    return interval((rate.low, rate.high))


def _signed(value: float) -> str:
    text = down(abs(value), KAPPA_DIGITS)
    return f"{MINUS}{text}" if value < 0 and float(text) else text
