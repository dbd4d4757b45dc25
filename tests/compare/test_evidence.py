"""Intervals, permutation tests and detectable changes against scipy's reference values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import scipy

from evaluators.scoring.types import Verdict
from runs.compare.evidence import (
    EVALUATOR,
    METRIC,
    MeasuredFigure,
    MeasuredPair,
    OwnMean,
    Paired,
    paired_figures,
    significance,
)
from runs.compare.rules import CaseSide, compare_case


def one_figure(values: Sequence[float], *, seed: int) -> Paired:
    (figure,) = paired_figures([values], seed=seed)
    return figure


def differences(*, size: int, shift: float) -> list[float]:
    generator = np.random.default_rng(11)
    return [round(float(one), 6) for one in generator.normal(shift, 0.1, size)]


@pytest.mark.parametrize(("size", "shift"), [(12, 0.0), (12, -0.1), (60, 0.02), (200, -0.01)])
def test_the_p_and_the_interval_are_those_of_scipy(size, shift):
    values = differences(size=size, shift=shift)
    found = one_figure(values, seed=5)
    test = scipy.stats.permutation_test(
        (np.array(values),), np.mean, permutation_type="samples", n_resamples=20_000, rng=1
    )
    interval = scipy.stats.bootstrap(
        (np.array(values),), np.mean, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    assert found.p == pytest.approx(test.pvalue, abs=0.03)
    assert found.low == pytest.approx(interval.low, abs=0.006)
    assert found.high == pytest.approx(interval.high, abs=0.006)


def test_the_smallest_change_is_found_four_times_of_five():
    values = differences(size=400, shift=0.0)
    smallest = one_figure(values, seed=5).smallest
    spread = float(np.std(values, ddof=1)) / 20
    power = scipy.stats.norm.sf(scipy.stats.norm.isf(0.025) - smallest / spread)
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
    assert one_figure(values, seed=1).change == change


def test_the_same_runs_give_the_same_figures_again():
    values = differences(size=40, shift=0.01)
    assert one_figure(values, seed=7) == one_figure(values, seed=7)
    assert one_figure(values, seed=7) != one_figure(values, seed=8)


def test_without_spread_no_smallest_change_is_known():
    found = one_figure([1.0] * 12, seed=1)
    assert (found.low, found.high, found.smallest) == (1.0, 1.0, None)


def test_a_figure_that_no_case_has_is_told_as_nothing_beside_one_that_they_have():
    figures, nothing = paired_figures([[0.1, 0.2, 0.1] * 4, [None] * 12], seed=7)
    assert (figures.cases, figures.change) == (12, "improved")
    assert (nothing.cases, nothing.mean, nothing.low, nothing.p) == (0, None, None, None)


def test_many_figures_and_thousands_of_cases_are_those_of_scipy_too():
    whole = np.array(differences(size=4000, shift=-0.002))
    part = np.where(np.arange(4000) % 3 == 0, np.nan, whole * 5)
    found = paired_figures([[*whole], [None if np.isnan(one) else one for one in part]], seed=5)
    for values, said in zip((whole, part[~np.isnan(part)]), found, strict=True):
        test = scipy.stats.permutation_test(
            (values,), np.mean, permutation_type="samples", n_resamples=2000, rng=1
        )
        interval = scipy.stats.bootstrap(
            (values,), np.mean, n_resamples=2000, method="percentile", rng=1
        ).confidence_interval
        width = interval.high - interval.low
        assert said.cases == values.size
        assert said.mean == pytest.approx(values.mean(), abs=1e-9)
        assert said.p == pytest.approx(test.pvalue, abs=0.04)
        assert said.low == pytest.approx(interval.low, abs=width / 10)
        assert said.high == pytest.approx(interval.high, abs=width / 10)


def test_a_figure_without_any_case_says_nothing_and_spoils_no_other():
    whole = differences(size=30, shift=-0.1)
    alone, empty = paired_figures([whole, [None] * 30], seed=5)
    assert (empty.cases, empty.mean, empty.p, empty.change) == (0, None, None, "too few cases")
    assert alone == one_figure(whole, seed=5)


def test_holm_raises_pass_rate_and_score_as_one_family_and_what_was_measured_as_another_or_a_third():
    pass_, fail = Verdict.PASS, Verdict.FAIL
    shared = [
        compare_case(f"C-{n}", CaseSide(pass_, 0.9, 1, 1, 1), CaseSide(fail, 0.3, 0, 1, 1))
        for n in range(12)
    ]
    own = (OwnMean(4.0, 12), OwnMean(4.0, 12))
    same = MeasuredPair(
        MeasuredFigure(METRIC, "judge", "tone"), "Tone", np.full(12, 4.0), np.full(12, 4.0), own
    )
    worse = MeasuredPair(
        MeasuredFigure(METRIC, "judge", "tact"), "Tact", np.full(12, 4.0), np.full(12, 3.0), own
    )
    alone, among = (significance(shared, pairs, seed=3) for pairs in ([], [same, worse]))
    assert (alone.measured_tested, among.measured_tested) == (0, 2)
    assert (among.pass_rate, among.mean_score) == (alone.pass_rate, alone.mean_score)
    exact = float(scipy.stats.binomtest(0, 12).pvalue)
    assert among.pass_rate.p == pytest.approx(2 * exact)
    tone, tact = among.measured
    assert (tone.before, tone.after, tone.paired.p, tone.paired.excludes_zero) == (
        4.0,
        4.0,
        1.0,
        False,
    )
    by_itself = significance(shared, [worse], seed=3).measured[0].paired.p
    assert tact.paired.p == pytest.approx(2 * by_itself)
    # Evaluators inside composites are a third family, which weakens nothing above them.
    inner = [
        MeasuredPair(MeasuredFigure(EVALUATOR, path), path, np.full(12, 1.0), np.full(12, 0.0), own)
        for path in ("all/a", "all/b", "all/b/c")
    ]
    deep = significance(shared, [same, *inner, worse], seed=3)
    assert (deep.measured_tested, deep.inner_tested) == (2, 3)
    assert deep.measured[-1].paired.p == tact.paired.p
    assert deep.measured[1].paired.p == pytest.approx(3 * by_itself)
