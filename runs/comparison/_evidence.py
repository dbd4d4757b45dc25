"""Whether two runs can be told apart by the cases they share (SCORING §9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluators.scoring.numbers import rounded
from runs.comparison._resampling import RESAMPLES

LEVEL = 0.05
FEWEST_CASES = 10


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the cases that two runs share say of them.

    `shared` cases have a verdict on both sides; `p` is two-sided, None where these are too few.
    """

    shared: int
    p: float | None

    @property
    def is_clear(self) -> bool:
        """Tell whether the two can be told apart."""
        return self.p is not None and self.p < LEVEL

    @property
    def is_too_little(self) -> bool:
        """Tell whether there are too few shared cases to say anything."""
        return self.p is None


def evidence(differences: Mapping[float, int], *, seed: int) -> Evidence:
    """Return what the differences of the cases' pass shares say, each given with its number of cases.

    A share is that of a case's repetitions that passed, so a difference is −1 to 1 and 0 counts as
    shared. With one repetition the test is McNemar's, exact; with several the signs of the
    differences are flipped at random, 2,000 times by `seed`.
    """
    counts: dict[float, int] = {}
    for difference, count in differences.items():
        if count:
            counts[rounded(difference)] = counts.get(rounded(difference), 0) + count
    shared = sum(counts.values())
    if shared < FEWEST_CASES:
        return Evidence(shared, None)
    if set(counts) <= {-1.0, 0.0, 1.0}:
        return Evidence(shared, mcnemar(counts.get(1.0, 0), counts.get(-1.0, 0)))
    return Evidence(shared, _sign_flip(counts, seed))


def mcnemar(ours: int, theirs: int) -> float:
    """Return the exact two-sided p of cases that only one side passed."""
    total, fewer = ours + theirs, min(ours, theirs)
    ways = term = 1
    for number in range(fewer):
        term = term * (total - number) // (number + 1)
        ways += term
    return min(1.0, 2 * ways / (1 << total))


def holm(found: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return the evidence of several comparisons, each p raised by Holm's rule for their number."""
    tested = sorted((one.p, place) for place, one in enumerate(found) if one.p is not None)
    raised: dict[int, float] = {}
    highest = 0.0
    for rank, (p, place) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        raised[place] = highest
    return tuple(Evidence(one.shared, raised.get(place)) for place, one in enumerate(found))


def _sign_flip(counts: Mapping[float, int], seed: int) -> float:
    """Return the p of the sum of differences when each keeps or changes its sign at random."""
    sizes: dict[float, int] = {}
    for difference, count in counts.items():
        if difference:
            sizes[abs(difference)] = sizes.get(abs(difference), 0) + count
    seen = abs(sum(difference * count for difference, count in counts.items()))
    generator = np.random.default_rng(seed)
    sums = np.zeros(RESAMPLES)
    for size in sorted(sizes):
        # Cases with the same difference are alike: how many keep their sign is all that counts.
        kept = generator.binomial(sizes[size], 0.5, RESAMPLES)
        sums += size * (2 * kept - sizes[size])
    as_far = int((np.abs(sums) >= seen - 1e-9).sum())
    return (as_far + 1) / (RESAMPLES + 1)
