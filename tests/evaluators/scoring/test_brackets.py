"""The brackets a panel votes for, and which one wins."""

from __future__ import annotations

import math

import pytest

from evaluators.scoring.samples import (
    BRACKETS,
    UnknownBracketError,
    Vote,
    deliberation_score,
    find_bracket,
    get_bracket,
    has_quorum,
    winning_bracket,
)
from evaluators.scoring.types import ScoreOutOfRangeError


@pytest.mark.parametrize(
    ("score", "name"),
    [
        (0, "Poor"),
        (25, "Poor"),
        (25.49, "Poor"),
        (25.5, "Fair"),
        (26, "Fair"),
        (50, "Fair"),
        (50.5, "Good"),
        (75.4, "Good"),
        (75.5, "Excellent"),
        (100, "Excellent"),
    ],
)
def test_a_score_falls_into_its_bracket_after_rounding_half_up(score: float, name: str) -> None:
    assert find_bracket(score).name == name


@pytest.mark.parametrize("score", [-0.1, 100.1, math.nan])
def test_there_is_no_bracket_outside_0_to_100(score: float) -> None:
    with pytest.raises(ScoreOutOfRangeError):
        find_bracket(score)


def test_midpoints() -> None:
    assert [bracket.midpoint for bracket in BRACKETS] == [12.5, 38.0, 63.0, 88.0]


def test_brackets_are_known_by_name_in_any_case() -> None:
    assert get_bracket(" excellent ").name == "Excellent"
    with pytest.raises(
        UnknownBracketError, match="'Great' is not a bracket; use one of Poor, Fair"
    ):
        get_bracket("Great")


def votes(*names: str) -> list[Vote]:
    return [Vote(name) for name in names]


def test_most_votes_win_and_not_their_mean() -> None:
    winner = winning_bracket(votes("Poor", "Excellent", "Poor", "Excellent", "Poor"))
    assert (winner.bracket.name, winner.votes, winner.is_tie) == ("Poor", 3, False)


def test_a_tie_is_told_and_names_the_lower_bracket() -> None:
    winner = winning_bracket(votes("Excellent", "Fair", "Excellent", "Fair", "Good"))
    assert (winner.bracket.name, winner.votes, winner.is_tie) == ("Fair", 2, True)


def test_no_votes_have_no_winner() -> None:
    with pytest.raises(UnknownBracketError, match="no votes"):
        winning_bracket([])


@pytest.mark.parametrize(
    ("count", "judges", "enough"), [(1, 2, True), (1, 3, False), (2, 3, True), (0, 0, False)]
)
def test_fewer_than_half_of_the_votes_are_too_few(count: int, judges: int, enough: bool) -> None:
    assert has_quorum(count, judges) == enough


def test_the_score_is_the_midpoint_or_the_mean_of_the_winners_own_scores() -> None:
    cast = [Vote("Good", 60), Vote("Good", 70), Vote("Good"), Vote("Poor", 0), Vote("Good", 90)]
    assert deliberation_score(cast) == 0.63
    assert deliberation_score(cast, by_mean=True) == 0.65
    assert deliberation_score(votes("Good"), by_mean=True) == 0.63
