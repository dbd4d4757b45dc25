"""How often the outputs of a run are better than its baseline's, and how often the judge preferred a place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evaluators.kinds.pairwise import FIRST, INCONCLUSIVE, LOSS, SCORES, SECOND, TIE, WIN
from evaluators.scoring.intervals import wilson_interval
from evaluators.scoring.numbers import mean, rounded
from runs.summary.run import pass_interval

# Where the summary of a run has the figures of its pairwise evaluators.
PAIRWISE = "pairwise"
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class OutputPair:
    """An output compared with the baseline's: the `verdict`, "" without one, and the place preferred in each order."""

    case: str
    verdict: str
    better: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PairwiseFigures:
    """What an evaluator found over a run; `results` are all it compared, `unscored` without a verdict.

    `win_rate`, 0 to 1, is of the results that are decided: wins, ties and losses, of so many `cases`. `p` is that of
    wins against losses, None for fewer than ten cases. Of the `ordered` pairs, which the judge was asked in both
    orders, it leaned `first` times to the first place and `second` times to the second; `place_p` is that of these.
    """

    path: str
    results: int
    wins: int
    ties: int
    losses: int
    inconclusive: int
    unscored: int
    cases: int
    win_rate: float | None
    interval: Interval | None
    p: float | None
    ordered: int
    first: int
    second: int
    place_interval: Interval | None
    place_p: float | None

    @property
    def decided(self) -> int:
        """Return how many results have a verdict of both orders."""
        return self.wins + self.ties + self.losses

    @property
    def leaning(self) -> int:
        """Return how many pairs leaned to a place."""
        return self.first + self.second

    @property
    def first_share(self) -> float | None:
        """Return the share of the leaning pairs that leaned to the first place."""
        return self.first / self.leaning if self.leaning else None

    @property
    def leaning_share(self) -> float | None:
        """Return the share of the pairs that leaned to a place."""
        return self.leaning / self.ordered if self.ordered else None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PairwiseFigures:
        """Return the figures that as_json wrote."""
        ends = {
            name: None if values[name] is None else tuple(values[name])
            for name in ("interval", "place_interval")
        }
        return cls(**{**values, **ends})


def measure_pairs(path: str, pairs: Iterable[OutputPair], *, seed: int) -> PairwiseFigures:
    """Return the figures of an evaluator.

    The win rate is (wins + ties ÷ 2) ÷ (wins + ties + losses), so its interval is that of a pass rate: Wilson's where
    every case was decided once, else percentiles of 2,000 resamples of whole cases by `seed`. `p` is that of the
    exact sign test of wins against losses, which is McNemar's; with several repetitions of a sign-flip test of the
    cases' means. A pair leans to a place if the replies in both orders name it more often than the other: a judge
    without bias leans to each alike. Its share has Wilson's interval and the p of the exact binomial test.
    """
    # Imported here, as for intervals: most commands compute none, and loading it takes longer than they do.
    from evaluators.scoring.significance import evidence, mcnemar

    listed = list(pairs)
    counts = Counter(pair.verdict for pair in listed)
    by_case: dict[str, list[float]] = defaultdict(list)
    for pair in listed:
        if pair.verdict in SCORES:
            by_case[pair.case].append(SCORES[pair.verdict])
    scores = [score for case in by_case.values() for score in case]
    win_rate = mean(scores)
    marks = [(sum(case), len(case)) for case in by_case.values()]
    # From 1 for a case that is always won to −1 for one that is always lost.
    differences = Counter(2 * sum(case) / len(case) - 1 for case in by_case.values())
    places = [pair.better.count(FIRST) - pair.better.count(SECOND) for pair in listed]
    first, second = sum(place > 0 for place in places), sum(place < 0 for place in places)
    return PairwiseFigures(
        path=path,
        results=len(listed),
        wins=counts[WIN],
        ties=counts[TIE],
        losses=counts[LOSS],
        inconclusive=counts[INCONCLUSIVE],
        unscored=counts[""],
        cases=len(by_case),
        win_rate=None if win_rate is None else rounded(win_rate),
        interval=_rounded(pass_interval(marks, seed)) if marks else None,
        p=evidence(differences, seed=seed).p,
        ordered=sum(bool(pair.better) for pair in listed),
        first=first,
        second=second,
        place_interval=_rounded(wilson_interval(first, first + second)),
        place_p=mcnemar(first, second) if first + second else None,
    )


def _rounded(interval: Interval | None) -> Interval | None:
    return None if interval is None else (rounded(interval[0]), rounded(interval[1]))
