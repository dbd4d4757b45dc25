"""Figures: how they are rounded, compared and written."""

from __future__ import annotations

import math

import pytest

from evaluators.scoring.numbers import (
    format_limit,
    format_number,
    format_rounded_up,
    format_weight,
    is_at_least,
    mean,
    on_scale,
    require_share,
    require_weight,
    rounded,
    weighted_mean,
)
from evaluators.scoring.types import Score, ScoreOutOfRangeError


def test_a_comparison_sees_nine_decimals() -> None:
    assert is_at_least((0.8 + 0.7 + 0.9) / 3, 0.8)
    assert is_at_least(0.7999999996, 0.8)
    assert not is_at_least(0.7999999, 0.8)
    assert rounded(0.1 + 0.2) == 0.3


@pytest.mark.parametrize(
    ("score", "down", "up"),
    [
        (0.798, "0.79", "0.80"),
        (0.8, "0.80", "0.80"),
        (0.29, "0.29", "0.29"),
        (0.7999999999, "0.80", "0.80"),
        (0.7999999, "0.79", "0.80"),
        (0.0, "0.00", "0.00"),
        (1.0, "1.00", "1.00"),
        (0.123456789, "0.12", "0.13"),
        (0.849999999, "0.84", "0.85"),
        (0.850000001, "0.85", "0.86"),
    ],
)
def test_a_score_never_reads_as_a_band_it_missed(score: float, down: str, up: str) -> None:
    assert format_number(score) == down
    assert format_rounded_up(score) == up


@pytest.mark.parametrize(
    ("limit", "text"),
    [(0.8, "0.80"), (0.805, "0.805"), (1.0, "1.00"), (0.123456789, "0.123456789")],
)
def test_a_limit_reads_as_it_was_set(limit: float, text: str) -> None:
    assert format_limit(limit) == text


def test_a_weight_reads_without_needless_zeros() -> None:
    assert [format_weight(w) for w in (1.0, 0.3, 12.5)] == ["1", "0.3", "12.5"]


def test_means_of_nothing_are_none() -> None:
    assert mean([]) is None
    assert weighted_mean([], []) is None
    assert weighted_mean([1.0], [0.0]) is None


def test_a_weighted_mean_lies_between_its_values_and_ignores_weightless_ones() -> None:
    assert weighted_mean([0.1] * 3, [0.1, 0.2, 0.3]) == 0.1
    assert weighted_mean([0.5, 0.9], [1.0, 0.0]) == 0.5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1])
def test_no_weight_no_share_and_no_score_is_clamped(value: float) -> None:
    with pytest.raises(ScoreOutOfRangeError, match="tone: weight"):
        require_weight(value, "tone")
    with pytest.raises(ScoreOutOfRangeError, match=r"share .* is not a number from 0 to 1"):
        require_share(value, "share")
    with pytest.raises(ScoreOutOfRangeError, match=r"tone: .* from 0 to 10"):
        on_scale(value, 10, "tone")
    with pytest.raises(ScoreOutOfRangeError, match="from 0 to 1"):
        Score(value)


def test_what_lies_above_its_scale_is_refused() -> None:
    with pytest.raises(ScoreOutOfRangeError):
        require_share(1.0000001, "share")
    with pytest.raises(ScoreOutOfRangeError):
        on_scale(101, 100, "score")
    with pytest.raises(ScoreOutOfRangeError):
        Score(1.0000001)


def test_zero_is_a_value() -> None:
    assert require_weight(0.0, "tone") == 0.0
    assert require_share(0.0, "share") == 0.0
    assert on_scale(0, 100, "score") == 0.0
    assert Score(0.0).score == 0.0


SCALES = [
    # A hundredth of the whole is shown, or as near to it as reads well; down, up and as a limit.
    (0.785, 1, ("0.78", "0.79", "0.785")),
    (0.785, 5, ("3.9", "4.0", "3.925")),
    (0.785, 10, ("7.8", "7.9", "7.85")),
    (0.785, 100, ("78", "79", "78.5")),
    (0.57, 100, ("57", "57", "57")),
    (0.7999999, 100, ("79", "80", "79.99999")),
    (1.0, 10, ("10.0", "10.0", "10.0")),
    (0.0, 100, ("0", "0", "0")),
]


@pytest.mark.parametrize(("score", "scale", "texts"), SCALES)
def test_a_score_reads_on_the_scale_of_its_suite(
    score: float, scale: int, texts: tuple[str, ...]
) -> None:
    spellings = (format_number, format_rounded_up, format_limit)
    assert tuple(spell(score, scale=scale) for spell in spellings) == texts
