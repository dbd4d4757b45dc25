"""Intervals of rates and means."""

from __future__ import annotations

import pytest
import scipy

from evaluators.scoring import intervals
from evaluators.scoring.intervals import bootstrap_interval, wilson_interval


@pytest.mark.parametrize(("passed", "total"), [(0, 1), (1, 1), (5, 10), (90, 120), (284, 360)])
def test_wilson_is_the_textbooks(passed: int, total: int) -> None:
    expected = scipy.stats.binomtest(passed, total).proportion_ci(method="wilson")
    assert wilson_interval(passed, total) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_nothing_has_no_interval() -> None:
    assert wilson_interval(0, 0) is None
    assert bootstrap_interval([], seed=1) is None
    assert bootstrap_interval([(0, 0)], seed=1) is None


def test_the_bootstrap_is_the_same_for_the_same_seed_and_holds_the_rate() -> None:
    groups = [(3, 3)] * 20 + [(1, 3)] * 10 + [(0, 3)] * 10
    interval = bootstrap_interval(groups, seed=7)
    assert interval == bootstrap_interval(groups, seed=7)
    assert interval is not None
    assert interval[0] < 70 / 120 < interval[1]


def test_scores_that_all_differ_have_an_interval_by_their_seed_too() -> None:
    scores = [(number / 50, 1) for number in range(50)]
    interval = bootstrap_interval(scores, seed=7)
    assert interval == bootstrap_interval(scores, seed=7)
    assert interval != bootstrap_interval(scores, seed=8)
    assert interval is not None
    assert interval[0] < 0.49 < interval[1]


def test_to_draw_alike_cases_together_is_to_draw_them_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = [(share, 1) for share in (0.0, 0.25, 0.5, 1.0) for _ in range(100)]
    together = bootstrap_interval(scores, seed=7)
    monkeypatch.setattr(intervals, "KIND_COST", 1000)
    assert bootstrap_interval(scores, seed=7) == pytest.approx(together, abs=0.01)


def test_the_bootstrap_draws_cases_and_not_executions() -> None:
    alike = bootstrap_interval([(3, 3)] * 20 + [(0, 3)] * 20, seed=7)
    single = bootstrap_interval([(1, 1)] * 60 + [(0, 1)] * 60, seed=7)
    assert alike is not None
    assert single is not None
    assert alike[1] - alike[0] > single[1] - single[0]


def test_cases_that_all_pass_leave_no_room() -> None:
    assert bootstrap_interval([(3, 3)] * 5, seed=1) == (1.0, 1.0)
