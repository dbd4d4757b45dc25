"""How much of a run's scores and verdicts is chance of its judge: the spread of judging the same output again.

A judging is one opinion about one output: the score that stands, one of a measurement, or one of several samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import mul
from typing import TYPE_CHECKING, Any

from evaluators.scoring.intervals import RESAMPLES, Z, percentile_interval, wilson_interval
from evaluators.scoring.numbers import mean, rounded
from evaluators.scoring.types import Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]

PASS = Verdict.PASS.value
MEASUREMENT, SAMPLES = "measurement", "samples"
# Where the summary of a run has it.
JUDGE_SPREAD = "judge_spread"
Interval = tuple[float, float] | None
# Which samples of each evaluator are picked, by path; a score and a verdict, None for a result without.
Picks = Mapping[str, Sequence[int]]
Opinion = tuple[float | None, str | None]


@dataclass(frozen=True, slots=True)
class Judgings:
    """The scores, 0 to 1, and verdicts that one output got; `case` is the case that the target answered."""

    case: str
    scores: Sequence[float]
    verdicts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SpreadFigures:
    """How far judgings of one output differ, by one evaluator or, with "" as `path`, of the whole result.

    `results` outputs of `cases` cases have two judgings or more, `judgings` together. `flips` is the share of
    verdicts that another judging would change, `deviation` the standard deviation of one judging, `pass_deviation` the
    same of whether it passes, 1 or 0, and `judge_share` the judge's part of the variance between the repetitions of
    a case; `repeated` cases have several. A figure is None where the judgings do not show it, and an interval where
    the figure could not vary.
    """

    path: str
    cases: int
    results: int
    judgings: int
    flips: float | None
    flips_interval: Interval
    deviation: float | None
    deviation_interval: Interval
    pass_deviation: float | None = None
    repeated: int = 0
    judge_variance: float | None = None
    target_variance: float | None = None
    judge_share: float | None = None
    judge_share_interval: Interval = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SpreadFigures:
        """Return the figures that as_json wrote."""
        intervals = ("flips_interval", "deviation_interval", "judge_share_interval")
        pairs = {name: tuple(values[name]) if values[name] else None for name in intervals}
        return cls(**{**values, **pairs})


@dataclass(frozen=True, slots=True)
class JudgeSpread:
    """The spread of a run's judge, by measurement or by samples.

    A measurement judged `drawn` of `eligible` results `times` more; each had the same probability to be drawn.
    Samples are those of every result. `whole` is that of scores and verdicts of whole results: of those judged again,
    or of those whose samples are drawn again (`draw_again`).
    """

    basis: str
    drawn: int
    eligible: int
    times: int = 0
    whole: SpreadFigures | None = None
    evaluators: Sequence[SpreadFigures] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> JudgeSpread:
        """Return the spread that as_json wrote."""
        whole = values["whole"] and SpreadFigures.from_json(values["whole"])
        evaluators = tuple(SpreadFigures.from_json(entry) for entry in values["evaluators"])
        return cls(**{**values, "whole": whole, "evaluators": evaluators})


# How often the samples of a result are drawn again.
DRAWINGS = 50
NOISE = 1e-18


def draw_again(
    case: str, counts: Mapping[str, int], judge: Callable[[Picks], Opinion], *, seed: int
) -> Judgings | None:
    """Return judgings of a whole result that other samples of the same judges would have given.

    The bootstrap (Efron, "Bootstrap methods: another look at the jackknife", 1979): as many samples as an evaluator
    has, `counts` by path, are drawn from them with replacement, for each evaluator independently. `judge` decides by
    the rules of the run with the picked samples; everything else stays as it is. Few samples vary somewhat less
    than the judge. None where a drawing has no verdict, for it would run evaluators that were not run.
    """
    import numpy as np

    chance = np.random.default_rng(seed)
    drawn = {path: chance.integers(count, size=(DRAWINGS, count)) for path, count in counts.items()}
    known: dict[tuple[tuple[int, ...], ...], Opinion] = {}
    opinions = []
    for place in range(DRAWINGS):
        # Their order makes no difference.
        picks = {path: tuple(sorted(map(int, rows[place]))) for path, rows in drawn.items()}
        key = tuple(picks.values())
        if key not in known:
            known[key] = judge(picks)
        opinions.append(known[key])
    scores = [score for score, _ in opinions if score is not None]
    verdicts = [verdict for _, verdict in opinions if verdict is not None]
    if len(scores) < DRAWINGS or len(verdicts) < DRAWINGS:
        return None
    return Judgings(case, scores, verdicts)


def measure_drawings(
    outputs: Iterable[Judgings], *, samples: int, seed: int
) -> SpreadFigures | None:
    """Return how far drawings of `draw_again` differ; `judgings` are the samples that they are drawn from.

    They do not tell judge and target apart, because the drawings of an output share its samples.
    """
    figures = measure_spread("", outputs, seed=seed)
    if figures is None:
        return None
    return replace(
        figures,
        judgings=samples,
        repeated=0,
        judge_variance=None,
        target_variance=None,
        judge_share=None,
        judge_share_interval=None,
    )


def measure_spread(path: str, outputs: Iterable[Judgings], *, seed: int) -> SpreadFigures | None:
    """Return how far judgings of the same outputs differ; None where no output has two.

    `flips` is the mean share of pairs of judgings of an output that differ in their verdict: 1 − P̄ of Fleiss
    (1971), "Measuring nominal scale agreement among many raters". Its interval is Wilson's with each case as one
    trial, so repetitions of a case do not make it narrower. `deviation` pools the variances within outputs,
    √(Σ squares ÷ Σ degrees of freedom). The parts of the variance are those of a nested analysis of variance with
    unequal sizes (Sokal and Rohlf, "Biometry", 3rd edition, 1995, chapter 10; Searle, Casella and McCulloch,
    "Variance Components", 1992): outputs within cases are the target's part, judgings within outputs the
    judge's. A target's part below 0 counts as 0. Intervals of these are percentiles of 2,000 resamples of whole
    cases by `seed`.
    """
    several = [output for output in outputs if len(output.scores) > 1]
    if not several:
        return None
    by_case: dict[str, list[Judgings]] = {}
    for output in several:
        by_case.setdefault(output.case, []).append(output)
    sums = [_sums([output.scores for output in case]) for case in by_case.values()]
    judge, target, judge_share = map(float, _parts([sums])[0])
    chance = _resample(sums, seed) if len(sums) > 1 else None
    decided = [output for output in several if len(output.verdicts) > 1]
    trials = len({output.case for output in decided})
    passes = [[float(verdict == PASS) for verdict in output.verdicts] for output in decided]
    flips = mean([pairs_apart(output.verdicts) for output in decided])
    figures = SpreadFigures(
        path=path,
        cases=len(by_case),
        results=len(several),
        judgings=sum(len(output.scores) for output in several),
        flips=_number(flips),
        flips_interval=None if flips is None else wilson_interval(flips * trials, trials),
        deviation=rounded(math.sqrt(judge)),
        pass_deviation=rounded(math.sqrt(_parts([[_sums(passes)]])[0][0])) if decided else None,
        deviation_interval=None if chance is None else _interval(chance[:, 0] ** 0.5),
    )
    repeated = sum(len(case) > 1 for case in by_case.values())
    if not repeated:
        return figures
    return replace(
        figures,
        repeated=repeated,
        judge_variance=rounded(judge),
        target_variance=rounded(target),
        judge_share=_number(judge_share),
        judge_share_interval=None if chance is None else _interval(chance[:, 2]),
    )


def pairs_apart(verdicts: Sequence[str]) -> float:
    """Return the share of pairs of judgings that differ, 0 to 1; there are two judgings or more."""
    count = len(verdicts)
    alike = sum(
        verdicts.count(verdict) * (verdicts.count(verdict) - 1) for verdict in set(verdicts)
    )
    return 1 - alike / (count * (count - 1))


def judge_band(first: tuple[float, int], second: tuple[float, int]) -> float:
    """Return how far two means of the same outputs lie apart by chance of the judge alone, at 95%.

    Each is the standard deviation of one judging and the number of results that the mean is of; judgings of
    different results are independent: 1.96 √(s₁² ÷ n₁ + s₂² ÷ n₂).
    """
    return Z * math.sqrt(sum(deviation**2 / count for deviation, count in (first, second)))


# What all variances follow from, summed over cases: squares of judgings within outputs and their degrees of freedom;
# squares of outputs within cases, their degrees of freedom, and n₀ times these, the weight of the target's variance.
Sums = tuple[float, float, float, float, float]


def _sums(outputs: Sequence[Sequence[float]]) -> Sums:
    """Return the sums of one case."""
    sizes = [len(scores) for scores in outputs]
    means = [math.fsum(scores) / len(scores) for scores in outputs]
    total = sum(sizes)
    middle = math.fsum(map(mul, sizes, means)) / total
    return (
        math.fsum(
            (score - centre) ** 2
            for scores, centre in zip(outputs, means, strict=True)
            for score in scores
        ),
        total - len(outputs),
        math.fsum(size * (centre - middle) ** 2 for size, centre in zip(sizes, means, strict=True)),
        len(outputs) - 1,
        total - sum(size**2 for size in sizes) / total,
    )


def _parts(groups: ArrayLike) -> FloatArray:
    """Return the judge's variance, the target's and the judge's share for the cases of each group, a row each."""
    # Imported here, as for intervals: most commands compute no spread, and loading it takes longer than they do.
    import numpy as np

    inside, inside_df, between, between_df, weight = (
        np.asarray(groups, dtype=np.float64).sum(axis=1).T
    )
    # Squares of what is left by rounding when equal scores are averaged; scores have nine decimals.
    inside, between = (np.where(squares < NOISE, 0.0, squares) for squares in (inside, between))
    with np.errstate(divide="ignore", invalid="ignore"):
        judge = inside / inside_df
        target = np.maximum((between - between_df * judge) / weight, 0.0)
        return np.stack([judge, target, judge / (judge + target)], axis=1)


def _resample(sums: Sequence[Sums], seed: int) -> FloatArray:
    """Return the parts in samples of whole cases, drawn with replacement."""
    import numpy as np

    even = np.full(len(sums), 1 / len(sums))
    drawn = np.random.default_rng(seed).multinomial(len(sums), even, RESAMPLES)
    return _parts((drawn @ np.asarray(sums))[:, None, :])


def _interval(values: FloatArray) -> Interval:
    """Return the percentile interval of what was resampled; None where it could not vary."""
    import numpy as np

    ends = percentile_interval(values)
    if ends is None or np.nanmin(values) == np.nanmax(values):
        return None
    return rounded(ends[0]), rounded(ends[1])


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else rounded(float(value))
