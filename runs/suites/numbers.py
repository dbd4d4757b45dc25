"""Numbers as people type them, on a form or after an option."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from runs.suites.edits import MAX_WEIGHT

MAX_NUMBER_LENGTH = 40


class WrongNumberError(ValueError):
    """A text is not a number in the range; the message says what to enter."""


def number_text(number: float | Decimal) -> str:
    """Return a number as a form field holds it, without trailing zeros."""
    text = f"{Decimal(str(number)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def share_text(share: float, scale: int) -> str:
    """Return a share of 0 to 1 on a scale, as a form field holds it."""
    return number_text(Decimal(str(share)) * scale)


def read_share(text: str, scale: int) -> float:
    """Return a number from 0 to the scale as a share from 0 to 1; raises WrongNumberError."""
    number = _number(text)
    if number is None or not 0 <= number <= scale:
        raise WrongNumberError(f"Enter a number from 0 to {scale}.")
    return float(number / scale)


def read_weight(text: str) -> float:
    """Return a weight; raises WrongNumberError unless it is a number of 0 or more, not too large (SCORING §1)."""
    number = _number(text)
    if number is None or number < 0:
        raise WrongNumberError("Enter a number of 0 or more.")
    if number > MAX_WEIGHT:
        raise WrongNumberError(f"Enter at most {MAX_WEIGHT:,}; only the ratio of weights counts.")
    return float(number)


def read_percent(text: str, most: int) -> float:
    """Return a number from 0 to a maximum; raises WrongNumberError."""
    number = _number(text)
    if number is None or not 0 <= number <= most:
        raise WrongNumberError(f"Enter a number from 0 to {most:,}.")
    return float(number)


def _number(text: str) -> Decimal | None:
    """Return the number a text holds, None unless it is finite."""
    try:
        number = Decimal(text.strip()) if len(text) <= MAX_NUMBER_LENGTH else None
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None
