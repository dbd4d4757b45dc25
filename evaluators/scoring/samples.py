"""Make one score of several opinions: samples of one judge, or votes of a panel (SCORING §7)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from evaluators.scoring.numbers import mean, rounded
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError

MEDIAN, MEAN, MAJORITY = "median", "mean", "majority"
WAYS = (MEDIAN, MEAN, MAJORITY)


class SamplesError(DomainError):
    """Samples cannot be combined as they stand."""

    code = "invalid_samples"


@dataclass(frozen=True, slots=True)
class Combined:
    """One score of many, 0 to 1; `spread` is the highest minus the lowest sample."""

    score: float
    spread: float
    samples: tuple[float, ...]


def combine_samples(scores: Sequence[float], way: str = MEDIAN) -> Combined:
    """Return the median, the mean or the most frequent score; ties of frequency go to the lowest.

    Raises SamplesError without samples and for an unknown way.
    """
    if not scores:
        raise SamplesError("there are no samples")
    return Combined(_one(scores, way), max(scores) - min(scores), tuple(scores))


def _one(scores: Sequence[float], way: str) -> float:
    if way == MEDIAN:
        return median(scores)
    if way == MEAN:
        return mean(scores) or 0.0
    if way == MAJORITY:
        counts = Counter(rounded(score) for score in scores)
        most = max(counts.values())
        return min(score for score, count in counts.items() if count == most)
    raise SamplesError(f"samples are combined by {', '.join(WAYS)}, not by {way!r}")


class UnknownBracketError(DomainError):
    """A vote names no bracket."""

    code = "unknown_bracket"


@dataclass(frozen=True, slots=True)
class Bracket:
    """A stretch of the scale 0 to 100, ends included; whole numbers after rounding half up."""

    name: str
    low: int
    high: int

    @property
    def midpoint(self) -> float:
        """Return the middle, 0 to 100: 12.5, 38, 63 or 88."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Vote:
    """One judge's vote; `score` is the judge's own, 0 to 100, None when it gave only a bracket."""

    bracket: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Winner:
    """The bracket with most votes. `is_tie` tells that others had as many; the lowest is then named."""

    bracket: Bracket
    votes: int
    is_tie: bool


BRACKETS = (
    Bracket("Poor", 0, 25),
    Bracket("Fair", 26, 50),
    Bracket("Good", 51, 75),
    Bracket("Excellent", 76, 100),
)


def find_bracket(score: float) -> Bracket:
    """Return the bracket of a score 0 to 100, rounded half up first; raises ScoreOutOfRangeError."""
    if not (math.isfinite(score) and 0 <= score <= 100):
        raise ScoreOutOfRangeError(f"score {score!r} is not a number from 0 to 100")
    whole = math.floor(rounded(score) + 0.5)
    return next(bracket for bracket in BRACKETS if whole <= bracket.high)


def bracket_named(name: str) -> Bracket:
    """Return the bracket of that name, in any case; raises UnknownBracketError."""
    for bracket in BRACKETS:
        if bracket.name.casefold() == name.strip().casefold():
            return bracket
    choices = ", ".join(bracket.name for bracket in BRACKETS)
    raise UnknownBracketError(f"{name!r} is no bracket; these are: {choices}")


def winning_bracket(votes: Sequence[Vote]) -> Winner:
    """Return what most votes name; a tie is to get one more round, then the lower bracket stands.

    Raises UnknownBracketError without votes.
    """
    if not votes:
        raise UnknownBracketError("there are no votes")
    counts = Counter(bracket_named(vote.bracket) for vote in votes)
    most = max(counts.values())
    tied = [bracket for bracket in BRACKETS if counts[bracket] == most]
    return Winner(tied[0], most, len(tied) > 1)


def is_quorate(votes: int, judges: int) -> bool:
    """Tell whether enough judges voted for a score: at least half of them."""
    return judges > 0 and votes * 2 >= judges


def deliberation_score(votes: Sequence[Vote], *, by_mean: bool = False) -> float:
    """Return the score, 0 to 1: the winning bracket's midpoint, or the mean of its voters' own scores.

    Only scores inside the winning bracket enter the mean; where no voter gave one, the midpoint counts.
    """
    winner = winning_bracket(votes).bracket
    inside = [
        vote.score
        for vote in votes
        if vote.score is not None
        and bracket_named(vote.bracket) == winner
        and find_bracket(vote.score) == winner
    ]
    average = mean(inside) if by_mean else None
    return (winner.midpoint if average is None else average) / 100
