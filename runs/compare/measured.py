"""What evaluators measured of two runs beside the verdict, and what the shared cases say of it (SCORING §9)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evaluators.scoring.numbers import mean, rounded
from runs.compare.cases import ADDED, ERROR, REMOVED, CaseChange
from runs.compare.evidence import Paired, evidence, paired_figures, raised

METRIC, DIMENSION, EVALUATOR = "metric", "dimension", "evaluator"
# What a figure of each kind is at most.
SCALES = {METRIC: 5, DIMENSION: 10, EVALUATOR: 1}


@dataclass(frozen=True, slots=True)
class Figure:
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

    figure: Figure
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

    figure: Figure
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
    baseline: Mapping[Figure, Measured], candidate: Mapping[Figure, Measured], shared: Sequence[str]
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
