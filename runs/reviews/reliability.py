"""How far people agree among themselves: Krippendorff's alpha, and Cohen's kappa of two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from evaluators.scoring.intervals import RESAMPLES
from evaluators.scoring.numbers import rounded
from runs.reviews.agreement import (
    FEWEST,
    FloatArray,
    JudgeAgreement,
    Pair,
    Rate,
    measure_agreement,
    rounded_interval,
)

# From this many decisions on one thing, they can differ.
FEWEST_DECISIONS = 2


@dataclass(frozen=True, slots=True)
class DecidedUnit:
    """What people decided about one thing: a result, one of its outcomes or one of its metrics.

    `decisions` has the category by reviewer, `machine` is the category of the automatic verdict, "" for none. The
    units of one `case` resemble each other, so intervals draw them together.
    """

    case: str
    decisions: Mapping[str, str]
    machine: str = ""


@dataclass(frozen=True, slots=True)
class PeopleAgreement:
    """How far people agree with each other about `n` units, those of `of` that two or more decided.

    `share` is that of pairs of decisions that are equal, `alpha` Krippendorff's (1 is all, 0 is chance, below it
    they contradict each other), None where everybody gave everything one category; `low` and `high` are its 95%
    interval. `machine` is the share of these decisions that the automatic verdict equals.
    """

    n: int
    of: int
    decisions: int
    reviewers: tuple[str, ...]
    share: Rate
    alpha: float | None
    low: float | None
    high: float | None
    machine: Rate

    @property
    def is_few(self) -> bool:
        """Tell whether the figures rest on fewer than 20 units."""
        return self.n < FEWEST


def measure_people(
    units: Sequence[DecidedUnit], categories: Sequence[str], *, is_ordinal: bool, seed: int = 0
) -> PeopleAgreement:
    """Measure how far people agree about units, over all that two or more of them decided.

    Alpha is Krippendorff's of any number of reviewers with missing decisions (Content Analysis, 4th edition, 2018,
    chapter 12; Computing Krippendorff's Alpha-Reliability, 2011), with his ordinal or nominal difference. The share
    is that of his coincidences. Intervals are percentiles of 2,000 seeded resamples of cases.
    """
    places = {name: place for place, name in enumerate(categories)}
    size = len(categories)
    shared = [unit for unit in units if len(unit.decisions) >= FEWEST_DECISIONS]
    by_case: dict[str, FloatArray] = {}
    for unit in shared:
        counts = np.zeros(size)
        for category in unit.decisions.values():
            counts[places[category]] += 1
        equal = counts[places[unit.machine]] if unit.machine else 0.0
        judged = counts.sum() if unit.machine else 0.0
        row = np.concatenate([coincidences(counts).ravel(), [equal, judged]])
        by_case[unit.case] = by_case.get(unit.case, 0.0) + row
    rows = np.asarray([by_case[case] for case in sorted(by_case)]).reshape(-1, size * size + 2)
    tables, resampled = (
        sums.reshape(-1, size, size) for sums in _sums_and_resamples(rows[:, :-2], seed)
    )
    alpha = alphas(tables, is_ordinal=is_ordinal)[0]
    low, high = rounded_interval(alphas(resampled, is_ordinal=is_ordinal))
    machine, machine_resampled = _sums_and_resamples(rows[:, -2:], seed)
    return PeopleAgreement(
        n=len(shared),
        of=len(units),
        decisions=sum(len(unit.decisions) for unit in shared),
        reviewers=tuple(sorted({name for unit in shared for name in unit.decisions})),
        share=_rate(_equal_shares(tables), _equal_shares(resampled), len(shared)),
        alpha=None if np.isnan(alpha) else rounded(float(alpha)),
        low=low,
        high=high,
        machine=_rate(
            _machine_shares(machine), _machine_shares(machine_resampled), int(machine[0, -1])
        ),
    )


def coincidences(counts: FloatArray) -> FloatArray:
    """Return the coincidence matrix of one unit from how many of its decisions are in each category."""
    pairs = np.outer(counts, counts) - np.diag(counts)
    matrix: FloatArray = pairs / (counts.sum() - 1)
    return matrix


def alphas(tables: FloatArray, *, is_ordinal: bool) -> FloatArray:
    """Return Krippendorff's alpha of each coincidence matrix of a stack; nan where only one category occurs."""
    counts = tables.sum(axis=2)
    total = counts.sum(axis=1)
    if is_ordinal:
        # The ranks between two categories: half of each, and all of those in between.
        ranks = counts.cumsum(axis=1) - counts / 2
        apart = (ranks[:, :, None] - ranks[:, None, :]) ** 2
    else:
        apart = np.broadcast_to(1.0 - np.eye(tables.shape[-1]), tables.shape)
    observed = (tables * apart).sum(axis=(1, 2))
    expected = (counts[:, :, None] * counts[:, None, :] * apart).sum(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = 1 - (total - 1) * observed / expected
    known: FloatArray = np.where(expected > 0, alpha, np.nan)
    return known


def _equal_shares(tables: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        shares: FloatArray = np.trace(tables, axis1=1, axis2=2) / tables.sum(axis=(1, 2))
    return shares


def _machine_shares(rows: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        shares: FloatArray = rows[:, 0] / rows[:, 1]
    return shares


def _sums_and_resamples(rows: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return the sum of the rows of all cases, and the sums of resampled cases.

    There are none of these where all cases are equal: resampling cannot vary them, which proves nothing.
    """
    total = rows.sum(axis=0, keepdims=True)
    kinds, times = np.unique(rows, axis=0, return_counts=True)
    if len(kinds) <= 1:
        return total, np.zeros((0, rows.shape[1]))
    generator = np.random.default_rng(seed)
    resamples: FloatArray = generator.multinomial(len(rows), times / len(rows), RESAMPLES) @ kinds
    return total, resamples


def _rate(share: FloatArray, resampled: FloatArray, count: int) -> Rate:
    if not count:
        return Rate(None, None, None, 0)
    return Rate(rounded(float(share[0])), *rounded_interval(resampled), count)


@dataclass(frozen=True, slots=True)
class ReviewerPair:
    """How far two people agree about what both decided; `agreement` has the first one as its machine."""

    first: str
    second: str
    agreement: JudgeAgreement


def measure_pairs(
    units: Sequence[DecidedUnit], categories: Sequence[str], *, is_quadratic: bool, seed: int = 0
) -> list[ReviewerPair]:
    """Measure each pair of people who decided a unit in common, those with the most first.

    Kappa is Cohen's, as between judge and people (`runs.reviews.agreement.measure_agreement`).
    """
    shared: dict[tuple[str, str], list[Pair]] = {}
    for unit in units:
        for first, second in combinations(sorted(unit.decisions), 2):
            decided = Pair(unit.decisions[first], unit.decisions[second])
            shared.setdefault((first, second), []).append(decided)
    pairs = [
        ReviewerPair(
            *names, measure_agreement(decided, categories, quadratic=is_quadratic, seed=seed)
        )
        for names, decided in shared.items()
    ]
    return sorted(pairs, key=lambda pair: (-pair.agreement.n, pair.first, pair.second))
