"""Intervals, permutation tests and detectable changes against scipy's reference values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from runs.comparison import Evidence, paired
from runs.comparison._paired import paired_figures


def differences(*, size: int, shift: float) -> list[float]:
    generator = np.random.default_rng(11)
    return [round(float(one), 6) for one in generator.normal(shift, 0.1, size)]


@pytest.mark.parametrize(("size", "shift"), [(12, 0.0), (12, -0.1), (60, 0.02), (200, -0.01)])
def test_the_p_and_the_interval_are_those_of_scipy(size, shift):
    values = differences(size=size, shift=shift)
    found = paired(values, seed=5)
    test = stats.permutation_test(
        (np.array(values),), np.mean, permutation_type="samples", n_resamples=20_000, rng=1
    )
    interval = stats.bootstrap(
        (np.array(values),), np.mean, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    assert found.p == pytest.approx(test.pvalue, abs=0.03)
    assert found.low == pytest.approx(interval.low, abs=0.006)
    assert found.high == pytest.approx(interval.high, abs=0.006)


def test_the_smallest_change_is_found_four_times_of_five():
    values = differences(size=400, shift=0.0)
    smallest = paired(values, seed=5).smallest
    spread = float(np.std(values, ddof=1)) / 20
    power = stats.norm.sf(stats.norm.isf(0.025) - smallest / spread)
    assert power == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "change"),
    [
        ([], "too few cases"),
        ([-0.5] * 9, "too few cases"),
        ([-0.5] * 10, "regressed"),
        ([0.5] * 10, "improved"),
        ([0.0] * 50, "no clear change"),
        ([0.1, -0.1] * 10, "no clear change"),
    ],
)
def test_a_change_has_one_of_four_classes(values, change):
    assert paired(values, seed=1).change == change


def test_the_same_runs_give_the_same_figures_again():
    values = differences(size=40, shift=0.01)
    assert paired(values, seed=7) == paired(values, seed=7)
    assert paired(values, seed=7) != paired(values, seed=8)


def test_another_test_may_bring_its_p_and_without_spread_nothing_is_promised():
    found = paired([1.0] * 12, seed=1, tested=Evidence(12, 0.5))
    assert (found.p, found.low, found.high, found.smallest) == (0.5, 1.0, 1.0, None)


def test_a_figure_that_no_case_has_is_told_as_nothing_beside_one_that_they_have():
    told, nothing = paired_figures([[0.1, 0.2, 0.1] * 4, [None] * 12], seed=7)
    assert (told.cases, told.change) == (12, "improved")
    assert (nothing.cases, nothing.mean, nothing.low, nothing.p) == (0, None, None, None)
