"""Combine several opinions into one score: samples of one judge, or votes of a panel (SCORING §7)."""

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
    """Samples cannot be combined."""

    code = "invalid_samples"


@dataclass(frozen=True, slots=True)
class Combined:
    """The combined score, 0 to 1; `spread` is the highest minus the lowest sample."""

    score: float
    spread: float
    samples: tuple[float, ...]


def combine_samples(scores: Sequence[float], way: str = MEDIAN) -> Combined:
    """Return the median, the mean or the most frequent score; of the most frequent, the lowest.

    Raises SamplesError for no samples and for an unknown way.
    """
    if not scores:
        raise SamplesError("there are no samples")
    return Combined(_combine(scores, way), max(scores) - min(scores), tuple(scores))


def _combine(scores: Sequence[float], way: str) -> float:
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
    """A vote names an unknown bracket."""

    code = "unknown_bracket"


@dataclass(frozen=True, slots=True)
class Bracket:
    """A range of the scale 0 to 100, ends included, for scores rounded half up to whole numbers."""

    name: str
    low: int
    high: int

    @property
    def midpoint(self) -> float:
        """Return the middle, 0 to 100: 12.5, 38, 63 or 88."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Vote:
    """One judge's vote; `score` is the judge's score, 0 to 100, None if it gave only a bracket."""

    bracket: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Winner:
    """The bracket with the most votes; the lowest if there `is_tie`."""

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
    """Return the bracket of a score of 0 to 100, rounded half up; raises ScoreOutOfRangeError."""
    if not (math.isfinite(score) and 0 <= score <= 100):
        raise ScoreOutOfRangeError(f"score {score!r} is not a number from 0 to 100")
    whole = math.floor(rounded(score) + 0.5)
    return next(bracket for bracket in BRACKETS if whole <= bracket.high)


def get_bracket(name: str) -> Bracket:
    """Return the bracket of this name, in upper or lower case; raises UnknownBracketError."""
    for bracket in BRACKETS:
        if bracket.name.casefold() == name.strip().casefold():
            return bracket
    choices = ", ".join(bracket.name for bracket in BRACKETS)
    raise UnknownBracketError(f"{name!r} is not a bracket; use one of {choices}")


def winning_bracket(votes: Sequence[Vote]) -> Winner:
    """Return the bracket with the most votes; after a tie the panel votes once more before the lower one wins.

    Raises UnknownBracketError for no votes.
    """
    if not votes:
        raise UnknownBracketError("there are no votes")
    counts = Counter(get_bracket(vote.bracket) for vote in votes)
    most = max(counts.values())
    tied = [bracket for bracket in BRACKETS if counts[bracket] == most]
    return Winner(tied[0], most, len(tied) > 1)


def has_quorum(votes: int, judges: int) -> bool:
    """Tell whether at least half of the judges voted."""
    return judges > 0 and votes * 2 >= judges


def deliberation_score(votes: Sequence[Vote], *, by_mean: bool = False) -> float:
    """Return the score, 0 to 1: the midpoint of the winning bracket, or the mean of its voters' scores.

    Only scores inside the winning bracket count; if no voter gave one, the midpoint does.
    """
    winner = winning_bracket(votes).bracket
    inside = [
        vote.score
        for vote in votes
        if vote.score is not None
        and get_bracket(vote.bracket) == winner
        and find_bracket(vote.score) == winner
    ]
    average = mean(inside) if by_mean else None
    return (winner.midpoint if average is None else average) / 100
