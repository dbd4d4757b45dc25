"""Bands that agree best with what people decided."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.policy import PolicySpec
from runs.engine.review_rules import VERDICTS
from runs.reviews.agreement import (
    AGREEMENT,
    Pair,
    Reviewed,
    SuggestedBands,
    measure_agreement,
    suggest_bands,
)


def found_of(
    reviewed: list[Reviewed], *, pass_threshold: float = 0.8, by: str = AGREEMENT
) -> SuggestedBands:
    found = suggest_bands(reviewed, pass_threshold=pass_threshold, borderline_threshold=0.6, by=by)
    assert found is not None
    return found


def agreement_with(
    reviewed: list[Reviewed], pass_: float, borderline: float
) -> tuple[float, float | None]:
    policy = PolicySpec(pass_threshold=pass_, borderline_threshold=borderline)
    pairs = [
        Pair(policy.verdict_for(one.score).value, one.person, one.sampling_rate) for one in reviewed
    ]
    found = measure_agreement(pairs)
    return found.agreement.share or 0.0, found.kappa


def test_a_judge_that_is_too_kind_gets_a_higher_band() -> None:
    reviewed = [
        *(Reviewed(0.95, "pass") for _ in range(10)),
        *(Reviewed(0.85, "borderline") for _ in range(8)),
        *(Reviewed(0.7, "borderline") for _ in range(4)),
        *(Reviewed(0.3, "fail") for _ in range(5)),
    ]
    found = found_of(reviewed)
    # The nearest hundredth above the scores that people did not pass.
    assert (found.best.pass_threshold, found.best.borderline_threshold) == (0.86, 0.6)
    assert (found.now.agreement, found.best.agreement) == (pytest.approx(19 / 27), 1.0)
    assert (found.best.kappa, found.changed, found.n, found.is_few) == (1.0, 8, 27, False)
    assert found.is_change


def test_bands_that_agree_already_stay_as_they_are() -> None:
    reviewed = [Reviewed(0.9, "pass"), Reviewed(0.7, "borderline"), Reviewed(0.1, "fail")]
    found = found_of(reviewed, pass_threshold=0.8125)
    assert (found.best, found.changed, found.is_change) == (found.now, 0, False)
    assert found.now.pass_threshold == 0.8125
    assert found.is_few


def test_a_sampled_decision_weighs_what_it_stands_for() -> None:
    reviewed = [*[Reviewed(0.85, "fail")] * 3, Reviewed(0.85, "pass", 0.1)]
    found = found_of(reviewed)
    assert not found.is_change
    assert found.now.agreement == pytest.approx(10 / 13)


def test_nothing_reviewed_suggests_nothing() -> None:
    assert suggest_bands([], pass_threshold=0.8, borderline_threshold=0.6) is None


REVIEWED = st.builds(
    Reviewed,
    st.integers(0, 40).map(lambda step: step / 40),
    st.sampled_from(VERDICTS),
    st.sampled_from([1.0, 0.5]),
)


@given(st.lists(REVIEWED, min_size=1, max_size=12), st.sampled_from(["agreement", "kappa"]))
def test_no_other_bands_agree_better_and_the_figures_are_those_of_the_policy(
    reviewed: list[Reviewed], by: str
) -> None:
    found = found_of(reviewed, by=by)
    for bands in (found.now, found.best):
        share, kappa = agreement_with(reviewed, bands.pass_threshold, bands.borderline_threshold)
        assert (bands.agreement, bands.kappa) == (pytest.approx(share), pytest.approx(kappa))
    steps = [step / 5 for step in range(6)]
    others = [
        agreement_with(reviewed, high, low) for high, low in product(steps, steps) if low <= high
    ]
    if by == "agreement":
        assert found.best.agreement >= max(share for share, _ in others) - 1e-9
    else:
        known = [kappa for _, kappa in others if kappa is not None]
        assert found.best.kappa is not None or not known
        assert not known or (found.best.kappa or 0) >= max(known) - 1e-9
