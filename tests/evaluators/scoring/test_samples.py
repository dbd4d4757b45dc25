"""Several samples of one judge become one score."""

from __future__ import annotations

import pytest

from evaluators.scoring.samples import SamplesError, combine_samples


@pytest.mark.parametrize(
    ("way", "samples", "score"),
    [
        ("median", [0.4, 0.9, 0.3, 0.5, 0.5], 0.5),
        ("median", [0.4, 0.6], 0.5),
        ("mean", [0.4, 0.9, 0.3, 0.5, 0.5], 0.52),
        ("majority", [0.4, 0.9, 0.4, 0.5, 0.4], 0.4),
    ],
)
def test_samples_become_one_score(way: str, samples: list[float], score: float) -> None:
    assert combine_samples(samples, way).score == pytest.approx(score)


def test_the_spread_is_kept_with_every_sample() -> None:
    combined = combine_samples([0.4, 0.9, 0.5])
    assert (combined.score, combined.spread, combined.samples) == (0.5, 0.5, (0.4, 0.9, 0.5))


def test_a_tied_majority_is_the_lower_score() -> None:
    assert combine_samples([0.9, 0.2, 0.9, 0.2], "majority").score == 0.2


def test_nothing_and_an_unknown_way_are_refused() -> None:
    with pytest.raises(SamplesError, match="no samples"):
        combine_samples([])
    with pytest.raises(SamplesError, match="by median, mean, majority, not by 'best'"):
        combine_samples([0.1], "best")
