"""Which judge to use: the choice and its p against scipy and statsmodels, the bias against its formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
import scipy

from runs.reviews.judge_choice import (
    JudgeChoice,
    JudgedOutput,
    OutputOpinion,
    choose_judge,
    measure_between,
    measure_judging,
)
from runs.reviews.judges import Judging, JudgingCost
from runs.reviews.judges_page import JudgingRow, conclusion_text

SCORES = {"pass": 0.9, "fail": 0.3}
OTHER = {"pass": "fail", "fail": "pass"}
COSTS = {1: Decimal("0.004"), 2: Decimal("0.003"), 3: Decimal("0.001")}


def outputs_of(*right: str, repetitions: int = 1) -> list[JudgedOutput]:
    """Return outputs, of which people passed every other one; `right` has 1 where a judge decided like people."""
    outputs = []
    for place in range(len(right[0])):
        person = ("pass", "fail")[place % 2]
        said = {
            number: person if text[place] == "1" else OTHER[person]
            for number, text in enumerate(right, 1)
        }
        opinions = {number: OutputOpinion(one, SCORES[one]) for number, one in said.items()}
        outputs.append(JudgedOutput(f"C-{place // repetitions}", opinions, person))
    return outputs


FIRST = "1" * 14 + "0" * 10
SECOND = "1" * 23 + "0"
THIRD = "1" * 13 + "0" + "1" * 8 + "00"


def rows_of(outputs: Sequence[JudgedOutput], *keys: int) -> list[JudgingRow]:
    return [
        JudgingRow(
            Judging(key, 1, "juno", is_first=key == 1),
            "juno",
            measure_judging(outputs, key, 1, seed=1),
            JudgingCost(),
        )
        for key in keys
    ]


def choose(outputs: Sequence[JudgedOutput], *keys: int) -> JudgeChoice:
    return choose_judge(outputs, keys, COSTS, seed=1)


def test_a_judge_that_agrees_more_than_every_other_is_the_one_to_use() -> None:
    found = choose(outputs_of(FIRST, SECOND), 1, 2)
    assert (found.state, found.best, found.alike) == ("clear", 2, (2,))
    assert (found.decided, found.right) == (24, {1: 14, 2: 23})
    # Nine results that only the second had right, none that only the first had.
    assert found.p == pytest.approx(scipy.stats.binomtest(0, 9).pvalue)


def test_judges_that_no_test_tells_apart_leave_the_cheapest() -> None:
    found = choose(outputs_of(FIRST, SECOND, THIRD), 1, 2, 3)
    assert (found.state, found.best, found.alike, found.cheapest) == ("unclear", 2, (2, 3), 3)
    # statsmodels 0.15.0, mcnemar(exact=True) of the three pairs, then multipletests(method="holm"):
    # 0.01171875, 0.078125 and 0.5.
    assert found.p == pytest.approx(0.5, abs=1e-9)
    one_and_three = choose(outputs_of(FIRST, THIRD), 1, 2)
    assert one_and_three.p == pytest.approx(scipy.stats.binomtest(1, 9).pvalue)
    unknown = choose_judge(outputs_of(FIRST, SECOND, THIRD), [1, 2, 3], {**COSTS, 3: None}, seed=1)
    assert unknown.cheapest is None


def test_too_few_decisions_choose_nothing() -> None:
    outputs = outputs_of(FIRST, SECOND)
    undecided = [
        JudgedOutput(one.case, one.opinions, one.person if place < 19 else "")
        for place, one in enumerate(outputs)
    ]
    found = choose(undecided, 1, 2)
    assert (found.state, found.decided, found.best, found.p) == ("too few", 19, None, None)
    # Twenty-four results of six cases are six cases.
    of_six = outputs_of(FIRST, SECOND, repetitions=4)
    choice = choose(of_six, 1, 2)
    assert choice.state == "too few"
    assert conclusion_text(choice, rows_of(of_six, 1, 2)) == (
        "The evidence does not suffice: people decided 24 results that every judge scored, but of fewer than 10 cases."
    )
    assert choose(outputs, 1).state == "too few"
    assert choose([], 1, 2).decided == 0


def test_a_judge_of_a_few_results_is_left_out_of_the_choice_by_name() -> None:
    outputs = outputs_of(FIRST, SECOND, THIRD)
    few = [
        JudgedOutput(
            one.case,
            {key: opinion for key, opinion in one.opinions.items() if key != 3 or place < 3},
            one.person,
        )
        for place, one in enumerate(outputs)
    ]
    found = choose(few, 1, 2, 3)
    assert (found.state, found.best, found.decided, found.left_out) == ("clear", 2, 24, (3,))
    assert found.p == choose(outputs, 1, 2).p
    assert conclusion_text(found, rows_of(few, 1, 2, 3)) == (
        "Use juno (#2): it agrees with people on 95.8% of 24 results, more than every other judge (p = 0.004). "
        "Too few of these results were scored by juno (#3) to compare it."
    )
    several = replace(found, left_out=(3, 4, 5))
    assert conclusion_text(several, rows_of(few, 1, 2, 3, 4, 5)).endswith(
        "scored by juno (#3), juno (#4) and juno (#5) to compare them."
    )
    # Two that share enough stay, though another scored more results that they did not.
    apart = [
        JudgedOutput(
            f"C-{place}",
            {
                key: OutputOpinion("pass", 0.9)
                for key, scored in ((1, place < 25), (2, place >= 25), (3, place < 24))
                if scored
            },
            "pass",
        )
        for place in range(60)
    ]
    kept = choose(apart, 1, 2, 3)
    assert (kept.left_out, kept.decided, kept.state) == ((2,), 24, "unclear")
    # Where no two share enough, all are named as before.
    none = choose(few[:15], 1, 2, 3)
    assert (none.state, none.decided, none.left_out) == ("too few", 3, ())


def test_bias_and_agreement_of_one_judge() -> None:
    outputs = outputs_of(FIRST, SECOND)
    missing = JudgedOutput("C-99", {2: OutputOpinion("pass", 0.5)})
    found = measure_judging([*outputs, missing], 2, 1, seed=1)
    differences = [(one.opinions[2].score or 0) - (one.opinions[1].score or 0) for one in outputs]
    assert (found.n, found.of, found.bias.n) == (25, 25, 24)
    assert found.bias.mean == pytest.approx(sum(differences) / 24)
    reference = scipy.stats.bootstrap(
        (differences,), lambda values, axis: values.mean(axis=axis), method="percentile", rng=3
    ).confidence_interval
    assert found.bias.low == pytest.approx(reference.low, abs=0.02)
    assert found.bias.high == pytest.approx(reference.high, abs=0.02)
    assert (found.people.agreement.share, found.people.agreement.of) == (
        pytest.approx(23 / 24),
        24,
    )
    itself = measure_judging(outputs, 1, 1, seed=1).bias
    assert (itself.mean, itself.low, itself.high) == (0, 0, 0)
    between = measure_between([*outputs, missing], 1, 2, seed=1)
    assert (between.n, between.agreement.share) == (24, pytest.approx(15 / 24))
    nothing = measure_judging([], 2, 1, seed=1)
    assert (nothing.bias.mean, nothing.people.agreement.share) == (None, None)
