"""Agreement between people against the published tables and against figures of other libraries."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from runs.reviews.reliability import DecidedUnit, measure_pairs, measure_people

# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), data A, B and C: a row is an observer, a column a
# unit, a dot a missing decision. The figures after them are printed there, except of the last entry.
BINARY = ("0100000010", "1110010000")
LETTERS = ("aabbdcccedda", "babbbccceddd")
FOUR_OBSERVERS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
VERDICTS = ("PPPBFPBFPPFBPPFPBBPF", "PPBBFPFFPPFPPPBPBPPF", "PP.BFP..PPFB....BFP.")
PUBLISHED = [
    (BINARY, "01", False, 0.095, 3),
    (LETTERS, "abcde", False, 0.692, 3),
    (FOUR_OBSERVERS, "12345", False, 0.743, 3),
    (FOUR_OBSERVERS, "12345", True, 0.815, 3),
    # The package krippendorff 0.9.0.
    (FOUR_OBSERVERS, "12345", True, 0.8153875037548814, 9),
    (VERDICTS, "FBP", False, 0.6624548736462094, 9),
    (VERDICTS, "FBP", True, 0.8135784023668639, 9),
]


def units_of(rows: Sequence[str]) -> list[DecidedUnit]:
    """Return a unit for each column."""
    return [
        DecidedUnit(
            f"U-{place}",
            {
                ["ann", "ben", "cat", "dan"][row]: said
                for row, said in enumerate(column)
                if said != "."
            },
        )
        for place, column in enumerate(zip(*rows, strict=True))
    ]


@pytest.mark.parametrize(("rows", "categories", "is_ordinal", "alpha", "digits"), PUBLISHED)
def test_alpha_equals_published_values(
    rows: Sequence[str], categories: str, is_ordinal: bool, alpha: float, digits: int
) -> None:
    found = measure_people(units_of(rows), categories, is_ordinal=is_ordinal)
    assert found.alpha is not None
    assert round(found.alpha, digits) == round(alpha, digits)
    assert found.low is not None
    assert found.high is not None
    assert found.low < alpha < found.high


def test_pairs_have_the_kappa_of_another_library() -> None:
    pairs = measure_pairs(units_of(VERDICTS), "FBP", is_quadratic=False)
    quadratic = measure_pairs(units_of(VERDICTS), "FBP", is_quadratic=True)
    # statsmodels 0.15.0, cohens_kappa: its kappa, and its interval from the standard error in large samples.
    reference = {
        ("ann", "ben"): (20, 0.5918367346938775, 0.8214285714285714, 0.297, 0.886),
        ("ann", "cat"): (12, 0.8666666666666666, 0.9333333333333333, 0.627, 1.0),
        ("ben", "cat"): (12, 0.7142857142857144, 0.6875, 0.361, 1.0),
    }
    assert [(pair.first, pair.second) for pair in pairs] == list(reference)
    for pair, weighted in zip(pairs, quadratic, strict=True):
        count, kappa, by_square, low, high = reference[pair.first, pair.second]
        assert pair.agreement.n == count
        assert pair.agreement.kappa == pytest.approx(kappa, abs=1e-9)
        assert weighted.agreement.kappa == pytest.approx(by_square, abs=1e-9)
        # Resampled intervals of so few decisions are only near those.
        assert pair.agreement.low == pytest.approx(low, abs=0.12)
        assert pair.agreement.high == pytest.approx(high, abs=0.12)
    assert (pairs[0].agreement.stricter, pairs[0].agreement.kinder) == (3, 2)


def test_what_one_person_decided_alone_counts_only_in_the_total() -> None:
    alone = DecidedUnit("C-1", {"ann": "P"}, "P")
    both = DecidedUnit("C-2", {"ann": "P", "ben": "F"}, "P")
    same = DecidedUnit("C-3", {"ann": "F", "ben": "F", "cat": "F"}, "P")
    found = measure_people([alone, both, same], "FBP", is_ordinal=True)
    assert (found.n, found.of, found.decisions) == (2, 3, 5)
    assert found.reviewers == ("ann", "ben", "cat")
    # Of five decisions the three on C-3 are equal, and the machine equals one of the five.
    assert (found.share.share, found.share.of) == (0.6, 2)
    assert (found.machine.share, found.machine.of) == (0.2, 5)
    assert found.is_few


def test_units_of_one_case_are_drawn_together() -> None:
    rows = units_of(VERDICTS)
    paired = [DecidedUnit(f"C-{place // 4}", unit.decisions) for place, unit in enumerate(rows)]
    apart = measure_people(rows, "FBP", is_ordinal=True)
    together = measure_people(paired, "FBP", is_ordinal=True)
    assert together.alpha == apart.alpha
    assert (together.low, together.high) != (apart.low, apart.high)
    assert measure_people(rows[::-1], "FBP", is_ordinal=True) == apart


def test_nothing_and_one_sidedness_give_no_figure_rather_than_a_wrong_one() -> None:
    nothing = measure_people([], "FBP", is_ordinal=True)
    assert (nothing.n, nothing.alpha, nothing.low, nothing.share.share) == (0, None, None, None)
    assert nothing.machine.of == 0
    alike = [DecidedUnit(f"C-{place}", {"ann": "P", "ben": "P"}) for place in range(5)]
    same = measure_people(alike, "FBP", is_ordinal=True)
    assert (same.alpha, same.low, same.share.share, same.share.low) == (None, None, 1.0, None)
    assert measure_pairs(alike, "FBP", is_quadratic=False)[0].agreement.kappa is None
