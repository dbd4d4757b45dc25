"""How far a judge agrees with reviewers, and which bands would agree better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluators.scoring.intervals import RESAMPLES, percentile_interval, wilson_interval
from evaluators.scoring.numbers import rounded
from runs.engine.review_rules import VERDICTS

# Below this many decisions figures are marked as resting on few.
FEWEST = 20
MARKS = ("missed", "met")

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """The categories that machine and reviewers gave one output.

    `sampling_rate` is the probability of its review, above 0 and up to 1; None where a person picked the
    output, so it represents no others.
    """

    machine: str
    person: str
    sampling_rate: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of 0 to 1 with its 95% interval, over `of` decisions; None without any."""

    share: float | None
    low: float | None
    high: float | None
    of: int


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """How far one judge agrees with reviewers.

    `matrix` counts decisions by the machine's category (rows) and the person's (columns), in the order of
    `categories`; `stricter` are those in which the machine was below the person, `kinder` above. `agreement` and
    the two rates are weighted by inverse sampling rate, and so is `kappa` (−1 to 1), which is None where both
    gave everything one category; `low` and `high` are its 95% interval. `picked` decisions were on outputs
    that a person had picked: the matrix counts them, the figures do not. `true_positive` is the share of what
    people passed that the machine passed, `true_negative` of what they did not pass that it did not.
    """

    n: int
    categories: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]
    stricter: int
    kinder: int
    picked: int
    agreement: Rate
    kappa: float | None
    low: float | None
    high: float | None
    true_positive: Rate
    true_negative: Rate

    @property
    def is_few(self) -> bool:
        """Tell whether the figures rest on fewer than 20 decisions."""
        return self.agreement.of < FEWEST


def measure_agreement(
    pairs: Sequence[Pair],
    categories: Sequence[str] = VERDICTS,
    *,
    quadratic: bool = False,
    seed: int = 0,
) -> JudgeAgreement:
    """Measure how far the machine agrees with reviewers.

    A decision weighs 1 ÷ its sampling rate, so that the figures are those of all outputs the sample was drawn
    from (Horvitz and Thompson). Intervals of rates are Wilson's with the effective number of decisions
    (Σ weight)² ÷ Σ weight² (Kish), which is their number when all weigh alike; that of kappa is the percentile
    interval of 2,000 seeded resamples. `quadratic` weighs a disagreement of kappa by the square of its
    distance, as for labels from 0 to 5. The last category is the positive one. Raises ValueError for an
    unknown category and for a sampling rate outside 0 to 1.
    """
    names = tuple(categories)
    places = {name: place for place, name in enumerate(names)}
    if unknown := {category for entry in pairs for category in (entry.machine, entry.person)} - set(
        names
    ):
        raise ValueError(
            f"{min(unknown)!r} is not a category; the categories are {', '.join(names)}"
        )
    counted = [(places[entry.machine], places[entry.person], _weight(entry)) for entry in pairs]
    drawn = [(machine, person, weight) for machine, person, weight in counted if weight]
    table = np.zeros((len(names), len(names)))
    for machine, person, weight in drawn:
        table[machine, person] += weight
    matrix = np.zeros((len(names), len(names)), dtype=int)
    for machine, person, _ in counted:
        matrix[machine, person] += 1
    low, high = _kappa_interval(drawn, len(names), quadratic=quadratic, seed=seed)
    top = len(names) - 1
    return JudgeAgreement(
        n=len(counted),
        categories=names,
        matrix=tuple(tuple(int(count) for count in row) for row in matrix),
        stricter=sum(machine < person for machine, person, _ in counted),
        kinder=sum(machine > person for machine, person, _ in counted),
        picked=len(counted) - len(drawn),
        agreement=_rate([(entry[2], entry[0] == entry[1]) for entry in drawn]),
        kappa=_number(kappas(table[None], quadratic=quadratic)[0]),
        low=low,
        high=high,
        true_positive=_rate([(entry[2], entry[0] == top) for entry in drawn if entry[1] == top]),
        true_negative=_rate([(entry[2], entry[0] != top) for entry in drawn if entry[1] != top]),
    )


def kappas(tables: FloatArray, *, quadratic: bool = False) -> FloatArray:
    """Return Cohen's kappa of each table of a stack, rows by columns; nan where agreement by chance is complete."""
    size = tables.shape[-1]
    places = np.arange(size)
    apart = (places[:, None] - places[None, :]).astype(float)
    cost = apart**2 if quadratic else (apart != 0).astype(float)
    total = tables.sum(axis=(1, 2))
    by_chance = tables.sum(axis=2)[:, :, None] * tables.sum(axis=1)[:, None, :]
    expected = (by_chance * cost).sum(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = 1 - (tables * cost).sum(axis=(1, 2)) * total / expected
    known: FloatArray = np.where(expected > 0, kappa, np.nan)
    return known


def _weight(pair: Pair) -> float:
    """Return the weight of a decision, 0 for an output that a person picked."""
    if pair.sampling_rate is None:
        return 0.0
    if not 0 < pair.sampling_rate <= 1:
        raise ValueError(f"the sampling rate {pair.sampling_rate!r} is not above 0, to 1")
    return 1 / pair.sampling_rate


def _rate(weighed: Sequence[tuple[float, bool]]) -> Rate:
    total = sum(weight for weight, _ in weighed)
    if not weighed or not total:
        return Rate(None, None, None, 0)
    share = sum(weight for weight, is_so in weighed if is_so) / total
    effective = total**2 / sum(weight**2 for weight, _ in weighed)
    low, high = wilson_interval(share * effective, effective) or (0.0, 1.0)
    return Rate(rounded(share), rounded(low), rounded(high), len(weighed))


def _kappa_interval(
    drawn: Sequence[tuple[int, int, float]], size: int, *, quadratic: bool, seed: int
) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the kappas of resampled decisions.

    It is None where all decisions are equal: resampling cannot vary them, which proves nothing.
    """
    if not drawn:
        return None, None
    # Equal decisions are drawn together, for there are few different ones.
    kinds, times = np.unique(np.asarray(drawn, dtype=float), axis=0, return_counts=True)
    if len(kinds) == 1:
        return None, None
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(len(drawn), times / len(drawn), RESAMPLES)
    into = np.zeros((len(kinds), size, size))
    into[np.arange(len(kinds)), kinds[:, 0].astype(int), kinds[:, 1].astype(int)] = kinds[:, 2]
    values = kappas(np.tensordot(counts, into, axes=1), quadratic=quadratic)
    return rounded_interval(values)


def rounded_interval(values: FloatArray) -> tuple[float | None, float | None]:
    """Return the rounded ends of the percentile interval of resampled values, None without any."""
    ends = percentile_interval(values)
    return (rounded(ends[0]), rounded(ends[1])) if ends else (None, None)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else rounded(float(value))


# Suggested thresholds are hundredths.
STEPS = 100
TIE = 1e-9
AGREEMENT, KAPPA = "agreement", "kappa"


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One output whose score decided: the score, 0 to 1, and the verdict of reviewers."""

    score: float
    person: str
    sampling_rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Bands:
    """Two thresholds, 0 to 1, and how far their verdicts agree with reviewers.

    `agreement` is a share of 0 to 1, `kappa` −1 to 1 or None, both weighted back by sampling rate.
    """

    pass_threshold: float
    borderline_threshold: float
    agreement: float
    kappa: float | None


@dataclass(frozen=True, slots=True)
class SuggestedBands:
    """The present and the best bands over `n` reviewed outputs, of which `changed` move to another band."""

    now: Bands
    best: Bands
    n: int
    changed: int

    @property
    def is_few(self) -> bool:
        """Tell whether it rests on fewer than 20 decisions."""
        return self.n < FEWEST

    @property
    def is_change(self) -> bool:
        """Tell whether other bands agree better than the present ones."""
        return self.now != self.best


def suggest_bands(
    reviewed: Sequence[Reviewed],
    *,
    pass_threshold: float,
    borderline_threshold: float,
    by: str = AGREEMENT,
) -> SuggestedBands | None:
    """Return the bands in hundredths that agree best with reviewers; None without outputs.

    `by` is agreement or kappa. Of bands that agree equally well the nearest to the present ones win, so nothing
    is suggested without a gain. Pass only outputs whose score decided: bands do not change what a rule
    forced or what outcomes decided.
    """
    if not reviewed:
        return None
    present = (rounded(pass_threshold), rounded(borderline_threshold))
    limits = sorted({*(rounded(step / STEPS) for step in range(STEPS + 1)), *present})
    tables = _tables(reviewed, np.asarray(limits))
    highs, lows = (place.ravel() for place in np.indices((len(limits), len(limits))))
    is_order = lows <= highs
    highs, lows = highs[is_order], lows[is_order]
    table = tables[highs, lows]
    kappa = kappas(table)
    agreement = np.trace(table, axis1=1, axis2=2) / table.sum(axis=(1, 2))
    aim = agreement if by == AGREEMENT else np.nan_to_num(kappa, nan=-1.0)
    steps = np.asarray(limits)
    moved = np.abs(steps[highs] - present[0]) + np.abs(steps[lows] - present[1])
    is_best = aim >= aim.max() - TIE
    best = int(np.flatnonzero(is_best)[np.argmin(moved[is_best])])
    now = int(np.argmin(moved))

    def bands(place: int) -> Bands:
        known = None if np.isnan(kappa[place]) else rounded(float(kappa[place]))
        pass_, borderline = (limits[int(side[place])] for side in (highs, lows))
        return Bands(pass_, borderline, rounded(float(agreement[place])), known)

    before, after = bands(now), bands(best)
    return SuggestedBands(before, after, len(reviewed), _changed(reviewed, before, after))


def _tables(reviewed: Sequence[Reviewed], limits: FloatArray) -> FloatArray:
    """Return by the places of pass and borderline threshold the weighted table of machine by person."""
    size = len(limits)
    # By the verdict of reviewers: the weight at and above each limit.
    above = np.zeros((len(VERDICTS), size))
    for entry in reviewed:
        reached = np.searchsorted(limits, rounded(entry.score), side="right")
        above[VERDICTS.index(entry.person), :reached] += 1 / entry.sampling_rate
    total = above[:, :1]
    tables = np.zeros((size, size, len(VERDICTS), len(VERDICTS)))
    for person in range(len(VERDICTS)):
        at_pass, at_borderline = above[person][:, None], above[person][None, :]
        tables[:, :, 2, person] = at_pass
        tables[:, :, 1, person] = at_borderline - at_pass
        tables[:, :, 0, person] = total[person] - at_borderline
    return tables


def _changed(reviewed: Sequence[Reviewed], before: Bands, after: Bands) -> int:
    return sum(_band(entry.score, before) != _band(entry.score, after) for entry in reviewed)


def _band(score: float, bands: Bands) -> int:
    limits = (bands.borderline_threshold, bands.pass_threshold)
    return sum(rounded(score) >= limit for limit in limits)
