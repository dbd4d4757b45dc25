"""Agreement of judges and people against reference values: textbook tables, scipy, other formulas."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
import scipy
from hypothesis import assume, given
from hypothesis import strategies as st

from runs.engine.review_rules import LABELS, VERDICTS
from runs.reviews.agreement import Pair, measure_agreement

CATEGORIES = ("a", "b", "c")
# Table by rater and rater, and Cohen's kappa as published.
PUBLISHED = {
    # Two readers of fifty grant proposals.
    "grants": ([[20, 5], [10, 15]], 0.4),
    "less agreement": ([[45, 15], [25, 15]], 0.1304),
    "more agreement": ([[25, 35], [5, 35]], 0.2593),
    # Fleiss, Levin and Paik, table 18.1: a hundred diagnoses.
    "diagnoses": ([[75, 1, 4], [5, 4, 1], [0, 0, 10]], 0.6765),
    # The table of the review page.
    "fifty reviews": ([[9, 2, 0], [1, 15, 4], [0, 1, 18]], 0.7519),
}


def pairs_of(
    table: Sequence[Sequence[int]], names: Sequence[str], rate: float | None = 1.0
) -> list[Pair]:
    return [
        Pair(names[machine], names[person], rate)
        for machine, row in enumerate(table)
        for person, count in enumerate(row)
        for _ in range(count)
    ]


@pytest.mark.parametrize(("table", "kappa"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_kappa_equals_published_values(table: list[list[int]], kappa: float) -> None:
    names = CATEGORIES[: len(table)]
    found = measure_agreement(pairs_of(table, names), names)
    assert found.kappa == pytest.approx(kappa, abs=5e-5)
    assert found.low is not None
    assert found.high is not None
    assert found.low < kappa < found.high
    assert found.matrix == tuple(tuple(row) for row in table)
    assert found.n == sum(map(sum, table))


def test_the_figures_of_the_review_page() -> None:
    found = measure_agreement(pairs_of(PUBLISHED["fifty reviews"][0], VERDICTS))
    assert (found.agreement.share, found.stricter, found.kinder) == (0.84, 6, 2)
    positive = scipy.stats.binomtest(18, 22).proportion_ci(method="wilson")
    negative = scipy.stats.binomtest(27, 28).proportion_ci(method="wilson")
    rates = (found.true_positive, found.true_negative)
    assert [(one.share, one.of) for one in rates] == [
        (pytest.approx(18 / 22), 22),
        (pytest.approx(27 / 28), 28),
    ]
    for one, expected in zip(rates, (positive, negative), strict=True):
        assert (one.low, one.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert not found.is_few


def test_the_interval_of_kappa_is_about_that_of_its_standard_error() -> None:
    table = np.asarray(PUBLISHED["diagnoses"][0], dtype=float)
    shares = table / table.sum()
    rows, columns = shares.sum(1), shares.sum(0)
    chance, kappa = float(rows @ columns), 0.23 / 0.34
    # Fleiss, Cohen and Everitt 1969: the standard error of kappa in large samples.
    first = sum(
        shares[i, i] * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2 for i in range(len(rows))
    )
    second = (1 - kappa) ** 2 * sum(
        shares[i, j] * (columns[i] + rows[j]) ** 2
        for i in range(len(rows))
        for j in range(len(rows))
        if i != j
    )
    third = (kappa - chance * (1 - kappa)) ** 2
    error = float(np.sqrt((first + second - third) / (100 * (1 - chance) ** 2)))
    found = measure_agreement(pairs_of(PUBLISHED["diagnoses"][0], CATEGORIES), CATEGORIES)
    assert found.low == pytest.approx(kappa - 1.96 * error, abs=0.03)
    assert found.high == pytest.approx(kappa + 1.96 * error, abs=0.03)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([1.0, 0.5, 0.1])),
        min_size=1,
        max_size=30,
    )
)
def test_quadratic_kappa_is_the_concordance_of_the_labels(
    said: list[tuple[int, int, float]],
) -> None:
    machine, person = (np.asarray([row[side] for row in said], dtype=float) for side in (0, 1))
    weights = np.asarray([1 / row[2] for row in said])

    def mean(values: np.ndarray) -> float:
        return float(np.average(values, weights=weights))

    apart = mean((machine - mean(machine)) ** 2) + mean((person - mean(person)) ** 2)
    apart += (mean(machine) - mean(person)) ** 2
    assume(apart > 1e-9)
    together = mean((machine - mean(machine)) * (person - mean(person)))
    pairs = [Pair(LABELS[one], LABELS[other], rate) for one, other, rate in said]
    # Lin's concordance coefficient comes to the same by another way.
    found = measure_agreement(pairs, LABELS, quadratic=True)
    assert found.kappa == pytest.approx(2 * together / apart, abs=1e-8)


VERDICT_PAIRS = st.builds(
    Pair, st.sampled_from(VERDICTS), st.sampled_from(VERDICTS), st.sampled_from([1.0, 0.25, 0.05])
)


@given(st.lists(VERDICT_PAIRS, max_size=40))
def test_a_sampled_decision_counts_as_often_as_it_stands_for(pairs: list[Pair]) -> None:
    found = measure_agreement(pairs)
    whole = [
        Pair(one.machine, one.person)
        for one in pairs
        for _ in range(round(1 / (one.sampling_rate or 1)))
    ]
    copied = measure_agreement(whole)
    assert found.kappa == copied.kappa
    assert found.agreement.share == copied.agreement.share
    assert found.true_positive.share == copied.true_positive.share
    assert found.true_negative.share == copied.true_negative.share
    assert found.agreement.of == len(pairs)
    # Weighing makes nothing surer than as many decisions that weigh alike.
    if pairs and found.agreement.low is not None and found.agreement.high is not None:
        assert found.agreement.low >= 0
        assert found.agreement.low <= found.agreement.share <= found.agreement.high <= 1
    assert sum(map(sum, found.matrix)) == found.n == len(pairs)
    agreed = sum(found.matrix[place][place] for place in range(len(VERDICTS)))
    assert agreed + found.stricter + found.kinder == found.n


@given(st.lists(VERDICT_PAIRS, min_size=1, max_size=40), st.randoms())
def test_neither_order_nor_chance_moves_a_figure(pairs: list[Pair], random: Random) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    assert measure_agreement(shuffled, seed=4) == measure_agreement(pairs, seed=4)


def test_weights_that_differ_widen_the_interval() -> None:
    alike = measure_agreement([Pair("pass", "pass")] * 30 + [Pair("pass", "fail")] * 10).agreement
    mixed = measure_agreement(
        [Pair("pass", "pass", 0.1)] * 15
        + [Pair("pass", "pass")] * 15
        + [Pair("pass", "fail", 0.1)] * 5
        + [Pair("pass", "fail")] * 5
    ).agreement
    assert mixed.share == alike.share == 0.75
    # They count as (20 × 10 + 20)² ÷ (20 × 100 + 20) = 24 decisions that weigh alike, not as 40.
    expected = scipy.stats.binomtest(18, 24).proportion_ci(method="wilson")
    assert (mixed.low, mixed.high) == (
        pytest.approx(expected.low, abs=1e-3),
        pytest.approx(expected.high, abs=1e-3),
    )
    assert (alike.low or 0) > (mixed.low or 0)


def test_what_a_person_picked_is_counted_and_stands_for_nothing_else() -> None:
    found = measure_agreement([Pair("pass", "pass")] * 3 + [Pair("pass", "fail", None)] * 5)
    assert (found.n, found.picked, found.agreement.of, found.agreement.share) == (8, 5, 3, 1.0)
    assert found.matrix[2] == (5, 0, 3)


def test_nothing_and_one_sidedness_give_no_figure_rather_than_a_wrong_one() -> None:
    nothing = measure_agreement([])
    assert (nothing.n, nothing.kappa, nothing.low, nothing.agreement.share) == (0, None, None, None)
    assert nothing.is_few
    same = measure_agreement([Pair("pass", "pass")] * 25)
    assert (same.kappa, same.low, same.agreement.share, same.true_negative.of) == (None, None, 1, 0)
    assert same.true_positive.share == 1
    assert not same.is_few
    assert measure_agreement([Pair("pass", "pass")] * 19).is_few
    alone = measure_agreement([Pair("borderline", "fail")])
    assert (alone.kappa, alone.low, alone.high) == (0, None, None)


@pytest.mark.parametrize(
    "pair", [Pair("good", "pass"), Pair("pass", "pass", 0), Pair("pass", "pass", 2)]
)
def test_what_cannot_be_is_refused(pair: Pair) -> None:
    with pytest.raises(ValueError, match="good|sampling rate"):
        measure_agreement([pair])
