"""The change from one figure to another."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

from evaluators.scoring.numbers import rounded

# Every float has fewer digits than this.
WIDE = Context(prec=400)


def difference(before: float | None, after: float | None) -> float | None:
    """Return after − before, to 9 decimals; None where a side has no figure."""
    return None if before is None or after is None else rounded(after - before)


def spelt_change(size: float, digits: int) -> str:
    """Return the size of a change with so many decimals, to the nearest, as every change is shown; halves away from zero."""
    exact = Decimal(repr(rounded(size)))
    return f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, context=WIDE):f}"
