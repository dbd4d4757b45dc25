"""Test whether shares differ by more than chance (SCORING §9).

Two sides of the same cases: McNemar's test, sign flips. A group and the other cases: Fisher's test, permutations.
Several tests: Holm's method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluators.scoring.intervals import RESAMPLES, SIGNIFICANCE
from evaluators.scoring.numbers import rounded

MIN_CASES = 10
# Sums of the same floats in another order may differ by this much.
NO_DISTANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Evidence:
    """Whether two shares differ over the cases that both sides have, such as the pass rates of two runs.

    `shared` cases have a verdict on both sides; the two-sided `p` is None where they are too few.
    """

    shared: int
    p: float | None

    @property
    def is_clear(self) -> bool:
        """Tell whether the difference is significant."""
        return self.p is not None and self.p < SIGNIFICANCE

    @property
    def is_too_little(self) -> bool:
        """Tell whether there are too few shared cases for a test."""
        return self.p is None


def evidence(differences: Mapping[float, int], *, seed: int) -> Evidence:
    """Test the differences of shares; `differences` maps each difference to its number of cases.

    The share of a case is that of its repetitions, for example of those that passed, so differences lie
    from −1 to 1. With one repetition the test is the exact McNemar test; with several it is a sign-flip test with
    2,000 resamples seeded by `seed`.
    """
    counts: dict[float, int] = {}
    for difference, count in differences.items():
        if count:
            counts[rounded(difference)] = counts.get(rounded(difference), 0) + count
    shared = sum(counts.values())
    if shared < MIN_CASES:
        return Evidence(shared, None)
    if set(counts) <= {-1.0, 0.0, 1.0}:
        return Evidence(shared, mcnemar(counts.get(1.0, 0), counts.get(-1.0, 0)))
    return Evidence(shared, _sign_flip(counts, seed))


def evidence_apart(
    group: Mapping[float, int], others: Mapping[float, int], *, seed: int
) -> Evidence:
    """Test whether a group of cases has other shares than all other cases of the same run.

    Both map each share, such as that of the repetitions that passed, to its number of cases. With one repetition the
    test is Fisher's exact test; with several it is a permutation test with 2,000 resamples seeded by `seed`. `shared`
    of the evidence is the number of cases on the smaller side.
    """
    size, total = sum(group.values()), sum(group.values()) + sum(others.values())
    smaller = min(size, total - size)
    if smaller < MIN_CASES:
        return Evidence(smaller, None)
    shares = sorted({*group, *others})
    if set(shares) <= {0.0, 1.0}:
        passed = group.get(1.0, 0)
        return Evidence(smaller, fisher(passed, size, passed + others.get(1.0, 0), total))
    counts = [group.get(share, 0) + others.get(share, 0) for share in shares]
    generator = np.random.default_rng(seed)
    drawn = generator.multivariate_hypergeometric(counts, size, RESAMPLES, method="marginals")
    usual = size * np.dot(counts, shares) / total
    observed = abs(sum(share * count for share, count in group.items()) - usual)
    as_far = int((np.abs(drawn @ np.array(shares) - usual) >= observed - NO_DISTANCE).sum())
    return Evidence(smaller, (as_far + 1) / (RESAMPLES + 1))


def fisher(passed: int, size: int, all_passed: int, total: int) -> float:
    """Return the two-sided p of Fisher's exact test: `passed` of `size` cases, of `all_passed` of `total`."""
    lowest = max(0, size - (total - all_passed))
    counts = np.arange(lowest, min(size, all_passed))
    ratios = (
        (all_passed - counts)
        * (size - counts)
        / ((counts + 1) * (total - all_passed - size + counts + 1))
    )
    chances = np.concatenate(([0.0], np.cumsum(np.log(ratios))))
    chances = np.exp(chances - chances.max())
    # Those as unlikely as the observed one count, whatever their last digits are.
    as_far = chances <= chances[passed - lowest] * (1 + 1e-7)
    return min(1.0, float(chances[as_far].sum() / chances.sum()))


def mcnemar(ours: int, theirs: int) -> float:
    """Return the exact two-sided p from the numbers of cases that only one side passed."""
    total, fewer = ours + theirs, min(ours, theirs)
    ways = term = 1
    for number in range(fewer):
        term = term * (total - number) // (number + 1)
        ways += term
    return min(1.0, 2 * ways / (1 << total))


def holm(tests: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return the evidence of several comparisons with each p corrected by Holm's method."""
    by_p = sorted((test.p, place) for place, test in enumerate(tests) if test.p is not None)
    corrected: dict[int, float] = {}
    highest = 0.0
    for rank, (p, place) in enumerate(by_p):
        highest = max(highest, min(1.0, p * (len(by_p) - rank)))
        corrected[place] = highest
    return tuple(Evidence(test.shared, corrected.get(place)) for place, test in enumerate(tests))


def _sign_flip(counts: Mapping[float, int], seed: int) -> float:
    """Return the p of the sum of differences under random signs."""
    sizes: dict[float, int] = {}
    for difference, count in counts.items():
        if difference:
            sizes[abs(difference)] = sizes.get(abs(difference), 0) + count
    observed = abs(sum(difference * count for difference, count in counts.items()))
    generator = np.random.default_rng(seed)
    sums = np.zeros(RESAMPLES)
    for size in sorted(sizes):
        # Of cases with the same difference only the number that keep their sign matters.
        kept = generator.binomial(sizes[size], 0.5, RESAMPLES)
        sums += size * (2 * kept - sizes[size])
    as_far = int((np.abs(sums) >= observed - NO_DISTANCE).sum())
    return (as_far + 1) / (RESAMPLES + 1)
