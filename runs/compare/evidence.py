"""Statistical evidence for a change between two runs, from the cases that both share (SCORING §9)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from evaluators.scoring.intervals import RESAMPLES, SIGNIFICANCE
from evaluators.scoring.numbers import mean, rounded
from evaluators.scoring.significance import (
    MIN_CASES,
    NO_DISTANCE,
    Evidence,
    evidence,
    holm,
)
from runs.compare.rules import ADDED, ERROR, REMOVED, CaseChange, CaseSide

# How many resamples are drawn at once: enough to be fast, few enough to hold ten thousand cases.
AT_ONCE = 100
# Above this many cases, batches of cases are resampled instead of single cases.
MAX_SINGLE_CASES = 1000
BITS = 8

Columns = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Units:
    """What is resampled, a row each, with a column for each figure: its sum over the unit, and of how many cases.

    A unit is a single case, or a batch where there are many.
    """

    sums: Columns
    counts: Columns

    @classmethod
    def make(cls, figures: Columns, *, seed: int) -> Units:
        """Return the units of figures, a row each, with a column for each case; NaN where a case lacks one."""
        order, starts = _batches(figures.shape[1], seed)
        figures = figures[:, order]
        present = ~np.isnan(figures)
        filled = np.where(present, figures, 0.0)
        return cls(
            np.add.reduceat(filled, starts, axis=1).T,
            np.add.reduceat(present, starts, axis=1, dtype=float).T,
        )

    @classmethod
    def of_groups(cls, figure: Columns, groups: Sequence[Places], *, seed: int) -> Units:
        """Return the units of one figure, with a column for each group of cases, which all have the figure."""
        order, starts = _batches(figure.size, seed)
        units = np.empty(figure.size, dtype=int)
        units[order] = np.repeat(np.arange(starts.size), np.diff(starts, append=figure.size))
        sums = [np.bincount(units[at], figure[at], starts.size) for at in groups]
        counts = [np.bincount(units[at], minlength=starts.size) for at in groups]
        return cls(np.array(sums, dtype=float).T, np.array(counts, dtype=float).T)

    def bootstrap(self, *, level: float, seed: int) -> tuple[Columns, Columns]:
        """Return low and high ends of the mean of each figure; a share of `level` of the resamples lies outside."""
        means = []
        for drawn in _draws(len(self.sums), seed):
            with np.errstate(invalid="ignore", divide="ignore"):
                means.append((drawn @ self.sums) / (drawn @ self.counts))
        low, high = np.nanquantile(np.concatenate(means), (level / 2, 1 - level / 2), axis=0)
        return low, high

    def sign_flip(self, *, seed: int) -> Columns:
        """Return the two-sided p of the mean of each figure under random signs of the units."""
        whole = self.sums.sum(axis=0)
        as_far = np.zeros(len(whole))
        for kept in _signs(len(self.sums), seed):
            # The sum with signs is twice the sum of those that kept theirs, minus the whole sum.
            flipped = 2 * (kept @ self.sums) - whole
            as_far += (np.abs(flipped) >= np.abs(whole) - NO_DISTANCE).sum(axis=0)
        return (as_far + 1) / (RESAMPLES + 1)


def _batches(cases: int, seed: int) -> tuple[Places, Places]:
    """Return an order of cases, and the places in it where each unit begins."""
    order = np.arange(cases)
    if cases > MAX_SINGLE_CASES:
        order = np.random.default_rng(seed).permutation(cases)
    starts = np.linspace(0, cases, min(cases, MAX_SINGLE_CASES), endpoint=False).astype(int)
    return order, starts


def _draws(cases: int, seed: int) -> Iterator[Columns]:
    """Yield how often each case was drawn with replacement, one row a resample."""
    generator = np.random.default_rng(seed)
    rows = np.arange(AT_ONCE, dtype=np.int64)[:, None] * cases
    for _ in range(RESAMPLES // AT_ONCE):
        drawn = generator.integers(0, cases, (AT_ONCE, cases), dtype=np.int32) + rows
        counts = np.bincount(drawn.ravel(), minlength=AT_ONCE * cases)
        yield counts.reshape(AT_ONCE, cases).astype(float)


def _signs(cases: int, seed: int) -> Iterator[Columns]:
    """Yield which cases keep their sign, one row a resample."""
    generator = np.random.default_rng(seed)
    width = -(-cases // BITS)
    for _ in range(RESAMPLES // AT_ONCE):
        bits = np.frombuffer(generator.bytes(AT_ONCE * width), dtype=np.uint8)
        yield np.unpackbits(bits.reshape(AT_ONCE, width), axis=1, count=cases).astype(float)


POWER = 0.8
REGRESSED, IMPROVED = "regressed", "improved"
NO_CLEAR_CHANGE, TOO_FEW_CASES = "no clear change", "too few cases"


@dataclass(frozen=True, slots=True)
class Paired:
    """The change of one figure over the shared cases, candidate minus baseline.

    `mean`, `low` and `high` are in the unit of the figure, None without a case. The two-sided `p` is
    None for fewer than ten cases. `smallest` is the smallest change that a test of as many cases with
    the same spread shows with 80 % power; None where there are too few or all changed alike.
    """

    cases: int
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    smallest: float | None

    @classmethod
    def without_interval(cls, changes: Columns, p: float | None) -> Paired:
        """Return the change of cases that all have the figure, with its p."""
        cases = changes.size
        average = rounded(math.fsum(changes.tolist()) / cases) if cases else None
        return cls(cases, average, None, None, p if cases >= MIN_CASES else None, None)

    @property
    def change(self) -> str:
        """Return the class of SCORING §9: regressed, improved, no clear change or too few cases."""
        if self.p is None or self.mean is None:
            return TOO_FEW_CASES
        if self.p >= SIGNIFICANCE or not self.mean:
            return NO_CLEAR_CHANGE
        return REGRESSED if self.mean < 0 else IMPROVED

    @property
    def excludes_zero(self) -> bool:
        """Tell whether the interval of ten cases or more lies on one side of 0."""
        if self.low is None or self.high is None or self.cases < MIN_CASES:
            return False
        return self.low > 0 or self.high < 0


NOTHING = Paired(0, None, None, None, None, None)


def paired_figures(
    figures: Sequence[Sequence[float | None] | Columns], *, seed: int
) -> tuple[Paired, ...]:
    """Return the change of several figures from their differences case by case, in one order of cases.

    A difference is None or NaN where the case lacks the figure. The cases are resampled 2,000 times by `seed`,
    once for all figures.
    """
    if not figures or not len(figures[0]):
        return tuple(NOTHING for _ in figures)
    rows = np.array(figures, dtype=float)
    # A figure that no case has gets zeros, for the resampling cannot handle nothing but NaN.
    nothing = np.isnan(rows).all(axis=1, keepdims=True)
    units = Units.make(np.where(nothing, 0.0, rows), seed=seed)
    low, high = units.bootstrap(level=SIGNIFICANCE, seed=seed)
    p = units.sign_flip(seed=seed)
    return tuple(
        _figure(row, float(low[place]), float(high[place]), float(p[place]))
        for place, row in enumerate(rows)
    )


def paired_groups(figure: Columns, groups: Sequence[Places], *, seed: int) -> Sequence[Paired]:
    """Return the change of one figure in groups of cases, from its differences and the places of cases.

    A difference is NaN where the case lacks the figure. The signs of the cases are resampled once for all groups.
    Without intervals, whose resampling takes far longer.
    """
    known = [at[~np.isnan(figure[at])] for at in groups]
    if not known:
        return ()
    p = Units.of_groups(figure, known, seed=seed).sign_flip(seed=seed)
    return [
        Paired.without_interval(figure[at], float(found))
        for at, found in zip(known, p, strict=True)
    ]


def correct_by_holm(figures: Sequence[Paired]) -> tuple[Paired, ...]:
    """Return the figures with each p corrected by Holm's method for the number of tests."""
    corrected = holm([Evidence(figure.cases, figure.p) for figure in figures])
    pairs = zip(figures, corrected, strict=True)
    return tuple(replace(figure, p=test.p) for figure, test in pairs)


def _figure(column: NDArray[np.float64], low: float, high: float, p: float) -> Paired:
    values = column[~np.isnan(column)]
    if not values.size:
        return NOTHING
    is_enough = values.size >= MIN_CASES
    return Paired(
        cases=int(values.size),
        mean=rounded(math.fsum(values.tolist()) / values.size),
        low=rounded(low),
        high=rounded(high),
        p=p if is_enough else None,
        smallest=smallest_detectable(values) if is_enough else None,
    )


def smallest_detectable(values: NDArray[np.float64]) -> float | None:
    """Return the smallest mean change that a two-sided test at 0.05 shows with 80 % power; None without spread."""
    spread = float(values.std(ddof=1))
    if not spread > 0:
        return None
    normal = NormalDist()
    factor = normal.inv_cdf(1 - SIGNIFICANCE / 2) + normal.inv_cdf(POWER)
    return rounded(factor * spread / math.sqrt(values.size))


METRIC, DIMENSION, EVALUATOR = "metric", "dimension", "evaluator"
# The maximum of a figure of each kind.
SCALES = {METRIC: 5, DIMENSION: 10, EVALUATOR: 1}


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """A measured figure: a metric 0 to 5, a dimension 0 to 10, or an evaluator 0 to 1.

    `path` is the evaluator's place in the tree; `key` names a part of it, "" for its own score.
    """

    kind: str
    path: str
    key: str = ""

    @property
    def is_inner(self) -> bool:
        """Tell whether it is the score of an evaluator inside a composite."""
        return self.kind == EVALUATOR and "/" in self.path


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of one run: the `mean` over all `executions` that have it, on the figure's scale.

    `by_case` has the mean over those of each case that has it, whose places are `at`, in their order. Others take no
    room: of thousands of cases each may have an evaluator of its own.
    """

    name: str
    at: Places
    by_case: Columns
    mean: float
    executions: int

    @classmethod
    def make(cls, name: str, at: Places, scores: Columns, *, cases: int) -> Measured:
        """Return the figure from the scores of one execution or more, each of the case `at` a place."""
        by_case = np.full(cases, np.nan)
        by_case[at] = scores
        counts = np.bincount(at, minlength=cases)
        if (counts > 1).any():
            in_order, ends = np.argsort(at, kind="stable"), np.cumsum(counts)
            for place in np.flatnonzero(counts > 1):
                of_case = in_order[ends[place] - counts[place] : ends[place]]
                by_case[place] = mean(scores[of_case].tolist())
        average = rounded(math.fsum(scores.tolist()) / scores.size)
        having = np.flatnonzero(counts)
        return cls(name, having, by_case[having], average, scores.size)

    @property
    def cases(self) -> int:
        """Return how many cases have it."""
        return self.at.size


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The figures of one run; `places` are those of its cases by key."""

    places: Mapping[str, int]
    figures: Mapping[MeasuredFigure, Measured]

    def columns(self, cases: Sequence[str]) -> Mapping[MeasuredFigure, Columns]:
        """Return each figure for these cases; NaN where one lacks it or is not in the run."""
        asked = np.array([self.places.get(case, -1) for case in cases], dtype=int)
        columns = {}
        for figure, measured in self.figures.items():
            place = np.minimum(np.searchsorted(measured.at, asked), measured.cases - 1)
            has_it = measured.at[place] == asked
            columns[figure] = np.where(has_it, measured.by_case[place], np.nan)
        return columns


@dataclass(frozen=True, slots=True)
class OwnMean:
    """The mean of a figure over the `executions` of a run that have it; None without any."""

    mean: float | None = None
    executions: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """How one figure changed, on its own scale.

    `before` and `after` are the means of the shared cases that have it on both sides, so they differ by
    the mean of `paired`; `own` holds the means of both runs over all their executions.
    """

    figure: MeasuredFigure
    name: str
    before: float | None
    after: float | None
    paired: Paired
    own: tuple[OwnMean, OwnMean]

    @property
    def scale(self) -> int:
        """Return the maximum of the figure."""
        return SCALES[self.figure.kind]


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """A figure of both runs, case by case over the shared cases; NaN where a case lacks it."""

    figure: MeasuredFigure
    name: str
    before: Columns
    after: Columns
    own: tuple[OwnMean, OwnMean]

    @property
    def differences(self) -> Columns:
        """Return candidate minus baseline for every case, NaN where one lacks it."""
        return self.after - self.before

    @property
    def is_known(self) -> bool:
        """Tell whether any of the cases has it, on either side."""
        return not (np.isnan(self.before) & np.isnan(self.after)).all()

    def of_case(self, place: int) -> tuple[float | None, float | None]:
        """Return both sides of the case at a place; None where it lacks the figure."""
        before, after = self.before[place], self.after[place]
        return (
            None if np.isnan(before) else float(before),
            None if np.isnan(after) else float(after),
        )

    def change(self, paired: Paired) -> MeasuredChange:
        """Return the change of the figure."""
        has_both = ~np.isnan(self.differences)
        before, after = (
            _rounded_mean(side[has_both].tolist()) for side in (self.before, self.after)
        )
        return MeasuredChange(self.figure, self.name, before, after, paired, self.own)


def measured_pairs(
    baseline: MeasuredRun, candidate: MeasuredRun, shared: Sequence[str]
) -> tuple[MeasuredPair, ...]:
    """Return every figure of either run over the shared cases, in the candidate's order.

    The value of a case is the mean over those of its executions that have the figure.
    """
    sides = baseline.figures, candidate.figures
    before, after = baseline.columns(shared), candidate.columns(shared)
    nothing = np.full(len(shared), np.nan)
    pairs = []
    for figure in dict.fromkeys((*candidate.figures, *baseline.figures)):
        measured = [side.get(figure) for side in sides]
        own = [OwnMean(run.mean, run.executions) if run else OwnMean() for run in measured]
        name = next(run.name for run in reversed(measured) if run)
        columns = before.get(figure, nothing), after.get(figure, nothing)
        pairs.append(MeasuredPair(figure, name, *columns, (own[0], own[1])))
    return tuple(pairs)


def _rounded_mean(values: Sequence[float]) -> float | None:
    average = mean(values)
    return None if average is None else rounded(average)


@dataclass(frozen=True, slots=True)
class Significance:
    """Pass rate, mean score and every measured figure of the shared cases, each p corrected by Holm's method.

    Pass rate and mean score, which show whether a run is worse, are one family of tests. The `measured`
    figures, which show where, are two others, those of evaluators inside composites apart: so a tree with
    many evaluators weakens neither the first two nor what stands at its top.
    """

    pass_rate: Paired
    mean_score: Paired
    measured: tuple[MeasuredChange, ...] = ()
    is_exact: bool = True
    seed: int = 0

    @property
    def test(self) -> str:
        """Return the name of the test for the pass rate."""
        return "exact McNemar test" if self.is_exact else "paired permutation test"

    @property
    def measured_tested(self) -> int:
        """Return the number of measured figures in their family of tests, without inner evaluators."""
        return self._tested(is_inner=False)

    @property
    def inner_tested(self) -> int:
        """Return the number of evaluators inside composites in their family of tests."""
        return self._tested(is_inner=True)

    def _tested(self, *, is_inner: bool) -> int:
        measured = (change for change in self.measured if change.figure.is_inner is is_inner)
        return sum(change.paired.p is not None for change in measured)


def shared_changes(changes: Sequence[CaseChange]) -> tuple[CaseChange, ...]:
    """Return the cases that have a verdict on both sides, on which the evidence rests."""
    return tuple(change for change in changes if change.status not in (ERROR, ADDED, REMOVED))


@dataclass(frozen=True, slots=True)
class SharedFigure:
    """One figure of the shared cases in both runs, and its change; NaN for a case that lacks it."""

    before: Columns
    after: Columns
    change: Columns

    @classmethod
    def pass_shares(cls, shared: Sequence[CaseChange]) -> SharedFigure:
        """Return the shares of the cases' executions that passed."""
        before, after = (
            np.array([side and side.pass_share for side in sides], dtype=float)
            for sides in _sides(shared)
        )
        return cls(before, after, after - before)

    @classmethod
    def mean_scores(cls, shared: Sequence[CaseChange]) -> SharedFigure:
        """Return the mean scores of the cases."""
        before, after = (
            np.array([side and side.mean_score for side in sides], dtype=float)
            for sides in _sides(shared)
        )
        change = np.array([change.score_change for change in shared], dtype=float)
        return cls(before, after, change)

    def only(self, at: Places) -> SharedFigure:
        """Return the figure of the cases at some places."""
        return SharedFigure(self.before[at], self.after[at], self.change[at])

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Return the means of both runs, each over the cases that have it there; None without one."""
        return mean(_known(self.before)), mean(_known(self.after))

    @property
    def changes(self) -> Counter[float]:
        """Return how many cases changed by how much."""
        return Counter(_known(self.change))


def _sides(shared: Sequence[CaseChange]) -> tuple[Sequence[CaseSide | None], ...]:
    return [change.baseline for change in shared], [change.candidate for change in shared]


def _known(column: Columns) -> list[float]:
    known: list[float] = column[~np.isnan(column)].tolist()
    return known


def significance(
    shared: Sequence[CaseChange], pairs: Sequence[MeasuredPair], *, seed: int
) -> Significance:
    """Return the evidence of the shared cases; `pairs` holds their figures in the same order."""
    shares, scores = SharedFigure.pass_shares(shared), SharedFigure.mean_scores(shared)
    rate, score, *others = paired_figures(
        [shares.change, scores.change, *(pair.differences for pair in pairs)], seed=seed
    )
    rate = replace(rate, p=evidence(shares.changes, seed=seed).p)
    rate, score = correct_by_holm([rate, score])
    return Significance(
        pass_rate=rate,
        mean_score=score,
        measured=tuple(
            pair.change(paired)
            for pair, paired in zip(pairs, _corrected_by_family(pairs, others), strict=True)
        ),
        is_exact=shares.changes.keys() <= {-1.0, 0.0, 1.0},
        seed=seed,
    )


def _corrected_by_family(
    pairs: Sequence[MeasuredPair], figures: Sequence[Paired]
) -> Sequence[Paired]:
    """Return the figures with each p corrected within its family: inner evaluators, or all others."""
    corrected = dict(enumerate(figures))
    for is_inner in (False, True):
        places = [place for place, pair in enumerate(pairs) if pair.figure.is_inner is is_inner]
        family = correct_by_holm([figures[place] for place in places])
        corrected |= dict(zip(places, family, strict=True))
    return list(corrected.values())
