"""The change from one figure to another."""

from __future__ import annotations

from evaluators.scoring.numbers import rounded


def difference(before: float | None, after: float | None) -> float | None:
    """Return after − before, to 9 decimals; None where a side has no figure."""
    return None if before is None or after is None else rounded(after - before)
