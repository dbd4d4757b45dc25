"""Context precision: the mean of precision at the ranks of useful passages, as published."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds.context_precision import mean_precision
from tests.evaluators.kinds.doubles import ListedJudge, context_of, score_of, unscored_of
from tests.evaluators.kinds.retrieval import (
    SEARCHED,
    check_hostile_replies,
    check_missing_contexts,
)

KIND = "context_precision"


def passages(*useful: bool) -> dict[str, Any]:
    parts = [
        {"number": n, "evidence": f"words {n}", "useful": one} for n, one in enumerate(useful, 1)
    ]
    return {"reasoning": "The last helps.", "passages": parts[::-1]}


def test_worked_values_of_the_published_formula() -> None:
    # By hand, and the third as a textbook works it: (1/3 + 2/4) ÷ 2.
    for useful, value in (
        ([True, False], 1.0),
        ([False, True], 0.5),
        ([False, False, True, True, False], 0.416666667),
        ([True, False, True], 0.833333333),
        ([True, True, True], 1.0),
        ([False, False], 0.0),
    ):
        assert mean_precision(useful) == pytest.approx(value, abs=1e-9)


def test_passages_count_in_their_order_whatever_order_the_judge_names_them_in() -> None:
    judge = ListedJudge(passages(False, True, True))
    score = score_of(KIND, {}, context_of("", judge=judge, trace=SEARCHED))

    assert score.score == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert [one.text for one in score.findings] == [
        *("Passage 1 is not useful", "Passage 2 is useful", "Passage 3 is useful")
    ]
    assert "candidate_answer" not in dict(judge.questions[0].quoted)


def test_passages_left_out_or_invented_are_asked_for_again_and_nothing_hostile_is_a_score() -> None:
    twice = {"reasoning": "", "passages": [passages(True)["passages"][0]] * 3}
    for bad in (passages(True), passages(True, True, True, True), passages(), twice):
        judge = ListedJudge(bad, bad)
        outcome = unscored_of(KIND, {}, context_of(judge=judge, trace=SEARCHED))
        assert (outcome.stage, judge.problems[0]) == (
            *("parse", "passages must name each number from 1 to 3 once"),
        )
    check_hostile_replies(KIND, passages(True, False, True), "passages", trace=SEARCHED)
    check_missing_contexts(KIND)
