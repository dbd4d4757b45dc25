"""Rank runs that were started together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluators.scoring.numbers import rounded


@dataclass(frozen=True, slots=True)
class Standing:
    """A completed run: its pass rate over all executions and its mean score, 0 to 1, None without one."""

    key: int
    rate: float
    score: float | None = None


def ranks(standings: Sequence[Standing]) -> Mapping[int, int]:
    """Return the rank of each run by its key, 1 for the best.

    The higher pass rate stands first, of equal ones the higher mean score, both to 9 decimals; equal
    in both share a rank, and the next one is as many places below. No score is below every score.
    """
    order = sorted((_place(one) for one in standings), reverse=True)
    return {one.key: order.index(_place(one)) + 1 for one in standings}


def _place(one: Standing) -> tuple[float, float]:
    return rounded(one.rate), -1.0 if one.score is None else rounded(one.score)
