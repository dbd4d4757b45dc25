"""Win rate and position bias against scipy and statsmodels, and what never counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from runs.summary.pairwise import OutputPair, PairwiseFigures, measure_pairs

ORDERS = {
    "win": ("first", "second"),
    "loss": ("second", "first"),
    "tie": ("neither", "neither"),
    "inconclusive": ("first", "first"),
    "": (),
}
SWAPPED = {"win": "loss", "loss": "win"}


def pairs(**counts: int) -> list[OutputPair]:
    verdicts = [verdict for verdict, count in counts.items() for _ in range(count)]
    return [OutputPair(str(n), verdict, ORDERS[verdict]) for n, verdict in enumerate(verdicts)]


def test_the_win_rate_counts_ties_half_and_leaves_out_what_is_undecided() -> None:
    figures = measure_pairs(
        "better",
        [
            *pairs(win=24, tie=6, loss=10),
            OutputPair("x", ""),
            OutputPair("y", "inconclusive", ("first", "neither")),
        ],
        seed=1,
    )

    assert (figures.results, figures.decided, figures.cases) == (42, 40, 40)
    assert (figures.inconclusive, figures.unscored) == (1, 1)
    assert figures.win_rate == 0.675
    # scipy.stats.binomtest(27, 40).proportion_ci(method="wilson").
    assert figures.interval == pytest.approx((0.5201775, 0.7991550), abs=5e-8)
    exact = binomtest(27, 40).proportion_ci(method="wilson")
    assert figures.interval == pytest.approx((exact.low, exact.high), abs=1e-9)
    # The sign test, scipy.stats.binomtest(24, 34).
    assert figures.p == pytest.approx(0.0243065, abs=5e-8)
    assert figures.p == pytest.approx(binomtest(24, 34).pvalue, abs=1e-12)
    assert measure_pairs("better", pairs(win=9), seed=1).p is None


def test_the_position_bias_is_of_pairs_that_lean_to_a_place() -> None:
    leaning = [
        *[OutputPair(str(n), "inconclusive", ("first", "first")) for n in range(8)],
        OutputPair("a", "inconclusive", ("neither", "first")),
        *[OutputPair(str(n), "inconclusive", ("second", "second")) for n in range(10, 12)],
        OutputPair("b", "inconclusive", ("second", "neither")),
    ]
    figures = measure_pairs("better", [*leaning, *pairs(win=5, tie=3, **{"": 2})], seed=1)

    assert (figures.ordered, figures.first, figures.second) == (20, 9, 3)
    assert (figures.first_share, figures.leaning_share) == (0.75, 0.6)
    test = binomtest(9, 12)
    assert figures.place_p == pytest.approx(test.pvalue, abs=1e-12)
    # binomtest(9, 12): p = 0.14599609375.
    assert figures.place_p == 0.14599609375
    interval = test.proportion_ci(method="wilson")
    assert figures.place_interval == pytest.approx((interval.low, interval.high), abs=1e-9)
    steady = measure_pairs("better", pairs(win=3, loss=3), seed=1)
    assert (steady.first, steady.second, steady.place_interval, steady.place_p) == (
        0,
        0,
        None,
        None,
    )


def test_repetitions_of_a_case_are_no_trials_of_their_own() -> None:
    several = [
        OutputPair(str(n // 3), verdict, ORDERS[verdict])
        for n, verdict in enumerate(["win"] * 30 + ["loss"] * 15)
    ]
    figures = measure_pairs("better", several, seed=7)
    assert (figures.decided, figures.cases, figures.win_rate) == (45, 15, pytest.approx(2 / 3))
    assert figures.interval is not None
    once = measure_pairs(
        "better",
        [OutputPair(str(n), one.verdict, one.better) for n, one in enumerate(several)],
        seed=7,
    )
    assert once.interval is not None
    # Whole cases are drawn: fifteen of them, not forty-five.
    assert figures.interval[1] - figures.interval[0] > 1.3 * (once.interval[1] - once.interval[0])
    assert figures == measure_pairs("better", several, seed=7)


def test_nothing_decided_has_no_rate() -> None:
    figures = measure_pairs("better", pairs(inconclusive=3, **{"": 2}), seed=1)
    assert (figures.win_rate, figures.interval, figures.p, figures.cases) == (None, None, None, 0)
    assert PairwiseFigures.from_json(figures.as_json()) == figures
    some = measure_pairs("better", pairs(win=12, inconclusive=1), seed=1)
    assert PairwiseFigures.from_json(some.as_json()) == some


@given(st.lists(st.sampled_from(list(ORDERS)), max_size=30), st.integers(0, 10))
def test_swapping_both_sides_mirrors_the_rate_and_inconclusive_never_counts(
    verdicts: list[str], more: int
) -> None:
    ours = [OutputPair(str(n), verdict, ORDERS[verdict]) for n, verdict in enumerate(verdicts)]
    theirs = [replace(pair, verdict=SWAPPED.get(pair.verdict, pair.verdict)) for pair in ours]
    figures, mirrored = (measure_pairs("x", side, seed=1) for side in (ours, theirs))

    assert (figures.wins, figures.ties, figures.losses) == (
        mirrored.losses,
        mirrored.ties,
        mirrored.wins,
    )
    if figures.win_rate is not None:
        assert mirrored.win_rate == pytest.approx(1 - figures.win_rate, abs=1e-8)
        assert figures.interval is not None
        assert mirrored.interval == pytest.approx(
            (1 - figures.interval[1], 1 - figures.interval[0]), abs=1e-8
        )
    assert figures.p == mirrored.p
    undecided = [OutputPair(f"more {n}", "inconclusive", ("first", "first")) for n in range(more)]
    again = measure_pairs("x", [*ours, *undecided], seed=1)
    assert (again.win_rate, again.interval, again.p) == (
        figures.win_rate,
        figures.interval,
        figures.p,
    )
