"""Ranks of runs that were started together, and whether one is clearly behind another."""

from __future__ import annotations

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.significance import Evidence, evidence, holm
from runs.campaigns.board import Standing, ranks

shares = st.sampled_from([0.0, 0.1 + 0.2, 0.3, 0.5, 2 / 3, 1.0])
standings = st.lists(st.tuples(shares, st.none() | shares), max_size=8).map(
    lambda pairs: [Standing(key, rate, score) for key, (rate, score) in enumerate(pairs)]
)
counts = st.dictionaries(
    st.sampled_from([-1.0, -2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0]), st.integers(0, 40)
)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([(0.5, 0.5)], [1]),
        # the higher rate stands first, whatever the score
        ([(0.8, 0.1), (0.9, 0.0)], [2, 1]),
        # of equal rates the higher score
        ([(0.8, 0.7), (0.8, 0.9), (0.7, 1.0)], [2, 1, 3]),
        # equal in both share a rank, and the next is as many places below
        ([(0.8, 0.9), (0.8, 0.9), (0.7, 0.9)], [1, 1, 3]),
        # floats that differ behind the ninth decimal are equal
        ([(0.1 + 0.2, 0.5), (0.3, 0.5)], [1, 1]),
        # no score is below every score, also below 0
        ([(0.8, None), (0.8, 0.0)], [2, 1]),
    ],
)
def test_runs_are_ranked_by_pass_rate_then_by_mean_score(
    rows: list[tuple[float, float | None]], expected: list[int]
) -> None:
    found = ranks([Standing(key, *row) for key, row in enumerate(rows)])
    assert [found[key] for key in range(len(rows))] == expected


@given(standings)
def test_a_rank_is_one_more_than_how_many_are_better(rows: list[Standing]) -> None:
    found = ranks(rows)
    assert ranks(rows[::-1]) == found
    for one in rows:
        better = sum(found[other.key] < found[one.key] for other in rows)
        assert found[one.key] == better + 1
        for other in rows:
            if round(other.rate, 9) > round(one.rate, 9):
                assert found[other.key] < found[one.key]


@pytest.mark.parametrize(("ours", "theirs"), [(0, 0), (5, 5), (1, 9), (12, 3), (700, 640)])
def test_cases_that_were_executed_once_are_told_apart_by_mcnemars_exact_test(
    ours: int, theirs: int
) -> None:
    found = evidence({1.0: ours, -1.0: theirs, 0.0: 20}, seed=1)
    expected = scipy.stats.binomtest(ours, ours + theirs).pvalue if ours + theirs else 1.0
    assert found == Evidence(ours + theirs + 20, pytest.approx(expected))


def test_fewer_than_ten_shared_cases_say_nothing() -> None:
    found = evidence({1.0: 9}, seed=1)
    assert (found.shared, found.p) == (9, None)
    assert found.is_too_little
    assert not found.is_clear
    assert evidence({1.0: 10}, seed=1).is_clear


@given(counts, st.integers(0, 100))
def test_the_evidence_is_the_same_from_either_side_and_by_its_seed(
    differences: dict[float, int], seed: int
) -> None:
    found = evidence(differences, seed=seed)
    assert found == evidence(differences, seed=seed)
    assert found == evidence({-size: count for size, count in differences.items()}, seed=seed)
    assert found.p is None or 0 < found.p <= 1


def test_repetitions_that_all_point_one_way_are_told_apart_and_balanced_ones_are_not() -> None:
    assert evidence({1 / 3: 30, 0.0: 10}, seed=1).is_clear
    assert not evidence({1 / 3: 30, -1 / 3: 30}, seed=1).is_clear


def test_several_comparisons_raise_each_p_by_holms_rule() -> None:
    found = holm([Evidence(20, p) for p in (0.04, None, 0.01, 0.03)])
    assert [one.p for one in found] == [
        pytest.approx(0.06),
        None,
        pytest.approx(0.03),
        pytest.approx(0.06),
    ]
    assert holm([]) == ()
