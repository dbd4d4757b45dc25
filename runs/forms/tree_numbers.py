"""Numbers as the page of the evaluator tree writes and reads them; what is no such number is refused in words."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from runs.drafting.settings import LARGEST_WEIGHT

LONGEST_NUMBER = 40
PERCENT = 100
BANDS_CROSSED = "Borderline begins above pass. Lower it."


class WrongNumberError(ValueError):
    """What was written is not a number of the range; the message says what to write."""


def spelt(number: float | Decimal) -> str:
    """Return a number with no more digits than it has, as a field of a form holds it."""
    text = f"{Decimal(str(number)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def spelt_share(share: float, scale: int) -> str:
    """Return a share of 0 to 1 on a scale, as a field of a form holds it."""
    return spelt(Decimal(str(share)) * scale)


def read_share(text: str, scale: int) -> float:
    """Return a number of 0 to the scale as a share of 0 to 1; raises WrongNumberError."""
    number = _number(text)
    if number is None or not 0 <= number <= scale:
        raise WrongNumberError(f"Write a number from 0 to {scale}.")
    return float(number / scale)


def read_weight(text: str) -> float:
    """Return a weight; raises WrongNumberError for what is negative, no number, or too large (SCORING §1)."""
    number = _number(text)
    if number is None or number < 0:
        raise WrongNumberError("Write a number of 0 or more.")
    if number > LARGEST_WEIGHT:
        raise WrongNumberError(
            f"Write at most {LARGEST_WEIGHT:,}; only the ratio of weights counts."
        )
    return float(number)


def read_percent(text: str, most: int) -> float:
    """Return a number of 0 to the most as it is; raises WrongNumberError."""
    number = _number(text)
    if number is None or not 0 <= number <= most:
        raise WrongNumberError(f"Write a number from 0 to {most:,}.")
    return float(number)


def _number(text: str) -> Decimal | None:
    """Return what a text says, None where that is no finite number."""
    try:
        found = Decimal(text.strip()) if len(text) <= LONGEST_NUMBER else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None
