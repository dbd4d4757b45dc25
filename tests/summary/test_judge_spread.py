"""The spread of a judge against published values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from statistics import fmean, median

import pytest
from scipy.stats import binomtest

from runs.summary.judge_spread import (
    Judgings,
    Opinion,
    Picks,
    draw_again,
    judge_band,
    measure_drawings,
    measure_spread,
    pairs_apart,
)

# Sokal and Rohlf, "Biometry", box 10.1: wings of four mosquitoes from each of three cages, each measured twice.
MOSQUITOES = {
    "1": [(58.5, 59.5), (77.8, 80.9), (84.0, 83.6), (70.1, 68.3)],
    "2": [(69.8, 69.8), (56.0, 54.5), (50.7, 49.3), (63.8, 65.8)],
    "3": [(56.6, 57.5), (77.8, 79.2), (69.9, 69.2), (62.1, 64.5)],
}
# Fleiss, "Measuring nominal scale agreement among many raters" (1971), as often worked out: 14 raters, 10 subjects.
FLEISS = (
    *((0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1)),
    *((7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7)),
)


def test_the_parts_of_the_variance_are_those_of_the_published_nested_analysis() -> None:
    outputs = [Judgings(cage, pair) for cage, pairs in MOSQUITOES.items() for pair in pairs]
    figures = measure_spread("wings", outputs, seed=1)
    assert figures is not None
    assert (figures.cases, figures.results, figures.judgings, figures.repeated) == (3, 12, 24, 3)
    # Within: 15.62 / 12 = 1.3017. Mosquitoes within cages: (191.1864 − 1.3017) / 2 = 94.9424, and 94.930 by the
    # restricted maximum likelihood of statsmodels 0.14, which stops at four digits.
    assert figures.judge_variance == pytest.approx(1.3017, abs=5e-5)
    assert figures.target_variance == pytest.approx(94.9424, abs=5e-5)
    assert figures.judge_share == pytest.approx(1.3017 / (1.3017 + 94.9424), abs=1e-6)
    assert figures.deviation == pytest.approx(math.sqrt(1.3017), abs=5e-5)
    assert figures.deviation_interval is not None
    low, high = figures.deviation_interval
    assert low < math.sqrt(1.3017) < high
    assert (figures.flips, figures.flips_interval) == (None, None)


def test_unequal_numbers_of_judgings_are_weighed_as_in_an_unbalanced_analysis() -> None:
    # Squares within: 0.02 + 0 + 0.08 of 1 + 2 + 1 degrees of freedom; between, around 3.2 / 5 = 0.64:
    # 2 × 0.26² + 3 × (0.52/3)² of 1; n₀ = 5 − (4 + 9) / 5 = 2.4. The case with one output tells nothing about the target.
    outputs = [
        Judgings("a", (0.8, 1.0)),
        Judgings("a", (7 / 15, 7 / 15, 7 / 15)),
        Judgings("b", (0.4, 0.8)),
        Judgings("c", (0.1,)),
    ]
    figures = measure_spread("x", outputs, seed=1)
    assert figures is not None
    judge = 0.1 / 4
    between = 2 * 0.26**2 + 3 * (0.52 / 3) ** 2
    assert figures.judge_variance == pytest.approx(judge)
    assert figures.target_variance == pytest.approx((between - judge) / 2.4)
    assert (figures.cases, figures.results, figures.repeated) == (2, 3, 1)
    # A target that differs less than its judge has no part of its own.
    alike = [Judgings("a", (0.0, 1.0)), Judgings("a", (1.0, 0.0))]
    steady = measure_spread("x", alike, seed=1)
    assert steady is not None
    assert (steady.target_variance, steady.judge_share) == (0, 1)
    # Where nothing differs there is nothing to share, whatever the mean of three equal numbers is rounded to.
    equal = measure_spread("x", [Judgings("a", (0.1, 0.1, 0.1))] * 2, seed=1)
    assert equal is not None
    assert (equal.deviation, equal.judge_variance, equal.judge_share) == (0, 0, None)


def test_turned_verdicts_are_the_pairs_that_disagree_of_fleiss_with_an_interval_that_is_never_nothing() -> (
    None
):
    votes = [
        [str(place) for place, count in enumerate(subject) for _ in range(count)]
        for subject in FLEISS
    ]
    shares = [pairs_apart(verdicts) for verdicts in votes]
    # P̄ = 0.378, as statsmodels' aggregation gives it, too.
    assert 1 - sum(shares) / len(shares) == pytest.approx(0.378021978, abs=1e-9)

    verdicts = [("pass", "fail"), ("pass", "pass"), ("fail", "fail"), ("pass", "borderline")]
    outputs = [Judgings(str(n), (1, 0), pair) for n, pair in enumerate(verdicts)]
    figures = measure_spread("", outputs, seed=1)
    assert figures is not None
    half = binomtest(2, 4).proportion_ci(method="wilson")
    assert (figures.flips, figures.flips_interval) == (0.5, pytest.approx(tuple(half)))
    # Borderline is no pass.
    assert figures.pass_deviation == pytest.approx(math.sqrt(2 * 0.5 / 4))
    steady = measure_spread("", [Judgings("a", (1, 1), ("pass", "pass"))] * 30, seed=1)
    assert steady is not None
    # Thirty results of one case are one trial.
    assert (steady.flips, steady.deviation, steady.deviation_interval) == (0, 0, None)
    one = binomtest(0, 1).proportion_ci(method="wilson")
    assert steady.flips_interval == pytest.approx(tuple(one))
    assert measure_spread("", [Judgings("a", (1,))], seed=1) is None


def test_samples_drawn_again_turn_as_many_verdicts_as_the_distribution_of_their_median_says() -> (
    None
):
    samples = {"tone": (0, 0, 1), "facts": (0, 1, 1)}

    def turned(judge: Callable[[Picks], Opinion]) -> float:
        counts = {path: len(given) for path, given in samples.items()}
        drawn = [draw_again("a", counts, judge, seed=seed) for seed in range(400)]
        assert drawn[7] == draw_again("a", counts, judge, seed=7)
        return fmean(pairs_apart(found.verdicts) for found in drawn if found)

    def agreed(*paths: str) -> Callable[[Picks], Opinion]:
        def judge(picks: Picks) -> Opinion:
            scores = [median(samples[path][place] for place in picks[path]) for path in paths]
            return min(scores), "pass" if min(scores) else "fail"

        return judge

    # A median of 1 needs two or three ones of three: 7 of 27 drawings of the first, 20 of 27 of the second.
    tone, facts = Fraction(7, 27), Fraction(20, 27)
    for judge, share in (
        (agreed("tone"), tone),
        (agreed("facts"), facts),
        # The evaluators are drawn independently of each other.
        (agreed("tone", "facts"), tone * facts),
    ):
        assert turned(judge) == pytest.approx(float(2 * share * (1 - share)), abs=0.01)

    # The verdict of a drawing that nobody judged is not made up.
    assert draw_again("a", {"tone": 3}, lambda picks: (None, None), seed=1) is None
    found = draw_again("a", {"tone": 3}, agreed("tone"), seed=1)
    assert found is not None
    figures = measure_drawings([found, replace(found, case="a")], samples=6, seed=1)
    assert figures is not None
    # Two repetitions, but drawings of one output share its samples.
    assert (figures.results, figures.judgings, figures.repeated) == (2, 6, 0)
    assert (figures.judge_share, figures.target_variance) == (None, None)


def test_the_band_of_a_difference_is_that_of_two_independent_means() -> None:
    assert judge_band((0.3, 100), (0.4, 100)) == pytest.approx(1.959964 * 0.05, abs=1e-6)
