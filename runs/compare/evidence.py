"""Whether two runs can be told apart by the cases they share, and by every figure measured there (SCORING §9)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from evaluators.scoring.numbers import mean, rounded
from runs.compare.cases import ADDED, ERROR, REMOVED, CaseChange

RESAMPLES = 2000
# How many resamples are drawn at once: enough to be fast, few enough for ten thousand cases.
AT_ONCE = 100
# Sums of the same numbers in another order may differ by what floats cannot hold.
NO_DISTANCE = 1e-9
MAX_APART = 1000
BITS = 8

Columns = NDArray[np.float64]


def bootstrap(columns: Columns, *, level: float, seed: int) -> tuple[Columns, Columns]:
    """Return both ends of the percentile interval of every column's mean, `level` of the resamples outside."""
    filled, present = _run_workers(columns, seed)
    means = []
    for drawn in _draws(len(filled), seed):
        with np.errstate(invalid="ignore", divide="ignore"):
            means.append((drawn @ filled) / (drawn @ present))
    low, high = np.nanquantile(np.concatenate(means), (level / 2, 1 - level / 2), axis=0)
    return low, high


def sign_flip(columns: Columns, *, seed: int) -> Columns:
    """Return the two-sided p of every column's mean when each case keeps or changes its sign at random."""
    filled, _ = _run_workers(columns, seed)
    whole = filled.sum(axis=0)
    as_far = np.zeros(columns.shape[1])
    for kept in _signs(len(filled), seed):
        # The sum with signs is twice what kept its sign, less the whole.
        as_far += (np.abs(2 * (kept @ filled) - whole) >= np.abs(whole) - NO_DISTANCE).sum(axis=0)
    return (as_far + 1) / (RESAMPLES + 1)


def _run_workers(columns: Columns, seed: int) -> tuple[Columns, Columns]:
    """Return sums and counts of what is resampled: of each case, or of each batch of many cases."""
    present = ~np.isnan(columns)
    filled, counted = np.where(present, columns, 0.0), present.astype(float)
    if len(columns) <= MAX_APART:
        return filled, counted
    dealt = np.random.default_rng(seed).permutation(len(columns))
    starts = np.linspace(0, len(columns), MAX_APART, endpoint=False).astype(int)
    return np.add.reduceat(filled[dealt], starts), np.add.reduceat(counted[dealt], starts)


def _draws(cases: int, seed: int) -> Iterator[Columns]:
    """Yield how often each case was drawn, with replacement, a row a resample."""
    generator = np.random.default_rng(seed)
    rows = np.arange(AT_ONCE, dtype=np.int64)[:, None] * cases
    for _ in range(RESAMPLES // AT_ONCE):
        drawn = generator.integers(0, cases, (AT_ONCE, cases), dtype=np.int32) + rows
        counts = np.bincount(drawn.ravel(), minlength=AT_ONCE * cases)
        yield counts.reshape(AT_ONCE, cases).astype(float)


def _signs(cases: int, seed: int) -> Iterator[Columns]:
    """Yield which cases keep their sign, a row a resample."""
    generator = np.random.default_rng(seed)
    width = -(-cases // BITS)
    for _ in range(RESAMPLES // AT_ONCE):
        bits = np.frombuffer(generator.bytes(AT_ONCE * width), dtype=np.uint8)
        yield np.unpackbits(bits.reshape(AT_ONCE, width), axis=1, count=cases).astype(float)


LEVEL = 0.05
MIN_CASES = 10


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
    if shared < MIN_CASES:
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


POWER = 0.8
REGRESSED, IMPROVED = "regressed", "improved"
NO_CLEAR_CHANGE, TOO_FEW_CASES = "no clear change", "too few cases"


@dataclass(frozen=True, slots=True)
class Paired:
    """A figure of the shared cases, candidate minus baseline, a case's share of it being one number.

    `mean`, `low` and `high` are in the unit of the figure; without a case all are None. `p` is
    two-sided, None where there are fewer than ten cases. `smallest` is the least change that so many
    cases as spread as these show with 80 % power, None where there are too few or all changed alike.
    """

    cases: int
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    smallest: float | None

    @property
    def change(self) -> str:
        """Return the class of SCORING §9: regressed, improved, no clear change or too few cases."""
        if self.p is None or self.mean is None:
            return TOO_FEW_CASES
        if self.p >= LEVEL or not self.mean:
            return NO_CLEAR_CHANGE
        return REGRESSED if self.mean < 0 else IMPROVED

    @property
    def excludes_zero(self) -> bool:
        """Tell whether ten cases or more have an interval that lies on one side of 0."""
        if self.low is None or self.high is None or self.cases < MIN_CASES:
            return False
        return self.low > 0 or self.high < 0


NOTHING = Paired(0, None, None, None, None, None)


def paired(differences: Sequence[float], *, seed: int, tested: Evidence | None = None) -> Paired:
    """Return what the cases' differences say; `tested` brings a p of another test than sign flips."""
    (found,) = paired_figures([differences], seed=seed)
    return replace(found, p=tested.p) if tested else found


def paired_figures(figures: Sequence[Sequence[float | None]], *, seed: int) -> tuple[Paired, ...]:
    """Return what the differences of several figures say, each given case by case in the same order.

    A case is None where it lacks the figure. The cases are resampled 2,000 times by `seed`, once for
    all figures.
    """
    if not figures or not len(figures[0]):
        return tuple(NOTHING for _ in figures)
    columns = np.array(figures, dtype=float).T
    # Nothing comes of a figure that no case has, whatever is resampled in its place.
    drawn = np.where(np.isnan(columns).all(axis=0), 0.0, columns)
    low, high = bootstrap(drawn, level=LEVEL, seed=seed)
    p = sign_flip(drawn, seed=seed)
    return tuple(
        _figure(columns[:, place], float(low[place]), float(high[place]), float(p[place]))
        for place in range(len(figures))
    )


def raised(found: Sequence[Paired]) -> tuple[Paired, ...]:
    """Return the figures with each p raised by Holm's rule for how many of them were tested."""
    told = holm([Evidence(one.cases, one.p) for one in found])
    return tuple(replace(one, p=other.p) for one, other in zip(found, told, strict=True))


def _figure(column: NDArray[np.float64], low: float, high: float, p: float) -> Paired:
    values = column[~np.isnan(column)]
    if not values.size:
        return NOTHING
    is_enough = values.size >= MIN_CASES
    return Paired(
        cases=int(values.size),
        mean=rounded(math.fsum(values) / values.size),
        low=rounded(low),
        high=rounded(high),
        p=p if is_enough else None,
        smallest=smallest_detectable(values) if is_enough else None,
    )


def smallest_detectable(values: NDArray[np.float64]) -> float | None:
    """Return the least mean change that a two-sided test at 0.05 shows with 80 % power; None without spread."""
    spread = float(values.std(ddof=1))
    if not spread > 0:
        return None
    normal = NormalDist()
    factor = normal.inv_cdf(1 - LEVEL / 2) + normal.inv_cdf(POWER)
    return rounded(factor * spread / math.sqrt(values.size))


METRIC, DIMENSION, EVALUATOR = "metric", "dimension", "evaluator"
# What a figure of each kind is at most.
SCALES = {METRIC: 5, DIMENSION: 10, EVALUATOR: 1}


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """What a figure is: a metric 0 to 5, a dimension 0 to 10, or a top-level evaluator 0 to 1.

    `path` is its evaluator's place in the tree, `key` its own under that, "" for the evaluator itself.
    """

    kind: str
    path: str
    key: str = ""


@dataclass(slots=True)
class Measured:
    """A figure of one run by case, the scores of the case's executions that have it."""

    name: str
    scores: dict[str, list[float]] = field(default_factory=dict)

    @property
    def executions(self) -> int:
        """Return how many executions have it."""
        return sum(map(len, self.scores.values()))

    @property
    def mean(self) -> float | None:
        """Return the mean over all executions that have it, on the figure's scale."""
        total = math.fsum(score for scores in self.scores.values() for score in scores)
        return rounded(total / self.executions) if self.scores else None


@dataclass(frozen=True, slots=True)
class OwnMean:
    """A run's own mean over all `executions` of it that have the figure; None without any."""

    mean: float | None = None
    executions: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """How one figure changed, on its own scale.

    `before` and `after` are the means of the shared cases that have it on both sides, so that one
    minus the other is what `said` tells; `own` are both runs' means over all that they measured.
    """

    figure: MeasuredFigure
    name: str
    before: float | None
    after: float | None
    said: Paired
    own: tuple[OwnMean, OwnMean]

    @property
    def scale(self) -> int:
        """Return what the figure is at most."""
        return SCALES[self.figure.kind]


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """A figure of both runs, case by case over the shared cases; None where a case lacks it."""

    figure: MeasuredFigure
    name: str
    before: Sequence[float | None]
    after: Sequence[float | None]
    own: tuple[OwnMean, OwnMean]

    @property
    def differences(self) -> Sequence[float | None]:
        """Return candidate minus baseline of every case."""
        return [
            None if old is None or new is None else new - old
            for old, new in zip(self.before, self.after, strict=True)
        ]

    def change(self, said: Paired) -> MeasuredChange:
        """Return the change, with what its differences say."""
        both = [
            (old, new)
            for old, new in zip(self.before, self.after, strict=True)
            if old is not None and new is not None
        ]
        before, after = (_rounded_mean([pair[side] for pair in both]) for side in (0, 1))
        return MeasuredChange(self.figure, self.name, before, after, said, self.own)


def measured_pairs(
    baseline: Mapping[MeasuredFigure, Measured],
    candidate: Mapping[MeasuredFigure, Measured],
    shared: Sequence[str],
) -> tuple[MeasuredPair, ...]:
    """Return every figure of either run over the shared cases, in the candidate's order.

    A case's share of a figure is the mean of those of its executions that have it.
    """
    nothing = Measured("")
    pairs = []
    for figure in dict.fromkeys((*candidate, *baseline)):
        sides = baseline.get(figure, nothing), candidate.get(figure, nothing)
        before, after = ([_mean_of(side, case) for case in shared] for side in sides)
        own = tuple(OwnMean(side.mean, side.executions) for side in sides)
        name = sides[1].name or sides[0].name
        pairs.append(MeasuredPair(figure, name, before, after, (own[0], own[1])))
    return tuple(pairs)


def _mean_of(side: Measured, case: str) -> float | None:
    return mean(side.scores.get(case, ()))


def _rounded_mean(values: Sequence[float]) -> float | None:
    average = mean(values)
    return None if average is None else rounded(average)


@dataclass(frozen=True, slots=True)
class Significance:
    """Pass rate, mean score and every measured figure of the shared cases, each p raised by Holm's rule.

    SCORING §9 has Holm over the metrics. Pass rate and mean score, which answer whether a run is worse,
    are one family; the `measured` figures, which tell where, are another: a tree with many evaluators
    makes neither of the two harder to tell from chance.
    """

    pass_rate: Paired
    mean_score: Paired
    measured: tuple[MeasuredChange, ...] = ()
    is_exact: bool = True
    seed: int = 0

    @property
    def test(self) -> str:
        """Return by which test the pass rates were told apart."""
        return "exact McNemar test" if self.is_exact else "paired permutation test"

    @property
    def measured_tested(self) -> int:
        """Return for how many measured figures Holm's rule raised each of their ps."""
        return sum(one.said.p is not None for one in self.measured)


def shared_changes(changes: Sequence[CaseChange]) -> tuple[CaseChange, ...]:
    """Return the cases that have a verdict on both sides: the ones evidence is made of."""
    return tuple(one for one in changes if one.status not in (ERROR, ADDED, REMOVED))


def significance(
    shared: Sequence[CaseChange], pairs: Sequence[MeasuredPair], *, seed: int
) -> Significance:
    """Return the evidence over shared cases; `pairs` hold their figures in the same order."""
    shares = [_share_change(one) for one in shared]
    scores = [one.score_change for one in shared]
    rate, score, *others = paired_figures(
        [shares, scores, *(pair.differences for pair in pairs)], seed=seed
    )
    known = [share for share in shares if share is not None]
    rate = replace(rate, p=evidence(Counter(known), seed=seed).p)
    rate, score = raised([rate, score])
    return Significance(
        pass_rate=rate,
        mean_score=score,
        measured=tuple(pair.change(said) for pair, said in zip(pairs, raised(others), strict=True)),
        is_exact=set(known) <= {-1.0, 0.0, 1.0},
        seed=seed,
    )


def _share_change(one: CaseChange) -> float | None:
    before, after = one.baseline, one.candidate
    if before is None or after is None or before.pass_share is None or after.pass_share is None:
        return None
    return after.pass_share - before.pass_share
