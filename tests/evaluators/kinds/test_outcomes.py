"""The expected outcomes: each met or missed, by number."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evaluators.kinds.doubles import ListedJudge, context_of, score_of, unscored_of

EXPECTED = ("Names the window", "Offers a pick-up point")


def reply(*passed: bool, start: int = 1) -> dict[str, Any]:
    entries = [
        {"number": n, "justification": f"because {n}", "passed": one}
        for n, one in enumerate(passed, start)
    ]
    return {"outcomes": entries}


def test_each_outcome_is_met_or_missed_with_its_justification() -> None:
    context = context_of(judge=ListedJudge(reply(True, False)), expected_outcomes=EXPECTED)

    score = score_of("outcomes", {}, context)

    assert score.score == 0.5
    assert score.outcomes is not None
    assert [(o.text, o.passed, o.justification) for o in score.outcomes] == [
        ("Names the window", True, "because 1"),
        ("Offers a pick-up point", False, "because 2"),
    ]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (reply(True), "leaves out number 2"),
        (reply(), "leaves out number 1, 2"),
        (reply(True, True, True), "3 entries for 2"),
        (reply(True, True, start=0), "leaves out number 2"),
    ],
)
def test_a_reply_that_does_not_answer_each_once_is_asked_for_again(bad: Any, said: str) -> None:
    judge = ListedJudge(bad, reply(True, True))
    facts = {"expected_outcomes": EXPECTED}

    assert score_of("outcomes", {}, context_of(judge=judge, **facts)).score == 1
    assert said in judge.problems[0]
    failed = unscored_of("outcomes", {}, context_of(judge=ListedJudge(bad, bad), **facts))
    assert failed.stage == "parse"


def test_of_several_samples_most_decide_each_outcome_and_a_tie_is_missed() -> None:
    said = [reply(True, True), reply(True, False), reply(False, False), reply(False, True)]
    facts = {"expected_outcomes": EXPECTED}

    of_three = score_of(
        "outcomes", {"samples": 3}, context_of(judge=ListedJudge(*said[:3]), **facts)
    )
    of_four = score_of("outcomes", {"samples": 4}, context_of(judge=ListedJudge(*said), **facts))

    assert of_three.outcomes is not None
    assert [one.passed for one in of_three.outcomes] == [True, False]
    assert of_three.score == 0.5
    assert of_three.details["sample_scores"] == [1, 0.5, 0]
    assert (of_three.details["samples_by"], of_three.details["spread"]) == ("majority", 1)
    assert of_three.usage.calls == 3
    assert of_four.score == 0


def test_a_sample_that_cannot_be_read_is_left_out_with_a_warning() -> None:
    judge = ListedJudge(reply(True, False), "prose", "prose", reply(True, False))

    score = score_of(
        "outcomes", {"samples": 3}, context_of(judge=judge, expected_outcomes=EXPECTED)
    )

    assert score.score == 0.5
    assert score.details["sample_scores"] == [0.5, 0.5]
    assert "1 of 3 samples are left out" in score.warnings[0]


def test_a_case_without_expected_outcomes_is_unscored() -> None:
    assert unscored_of("outcomes", {}, context_of(judge=ListedJudge())).stage == "config"
