"""Context recall: the share of the reference's statements that the context has."""

from __future__ import annotations

from evaluators.kinds import get_kind
from tests.evaluators.kinds.doubles import ListedJudge, case_of, context_of, score_of, unscored_of
from tests.evaluators.kinds.retrieval import (
    SEARCHED,
    check_hostile_replies,
    check_missing_contexts,
    statements,
)

KIND = "context_recall"
WANTED = "It comes today, between 14:00 and 17:00."


def test_the_score_is_the_share_of_the_references_statements_that_were_found() -> None:
    judge = ListedJudge(statements("found", True, False, True, True))
    context = context_of("", judge=judge, trace=SEARCHED, expected_output=WANTED)

    score = score_of(KIND, {}, context)

    assert (score.score, [one.passed for one in score.findings]) == (
        0.75,
        [True, False, True, True],
    )
    quoted = dict(judge.questions[0].quoted)
    assert quoted["reference_answer"] == WANTED
    assert "candidate_answer" not in quoted
    assert quoted["passage 3"] == '{"sky": "blue"}'


def test_without_a_reference_or_a_context_it_is_unscored_and_a_hostile_reply_is_no_score() -> None:
    judge = ListedJudge("{}")
    outcome = unscored_of(KIND, {}, context_of(judge=judge, trace=SEARCHED))
    assert (outcome.reason, judge.questions) == ("the case has no expected output", [])
    check_missing_contexts(KIND, expected_output=WANTED)
    facts = {"trace": SEARCHED, "expected_output": WANTED}
    check_hostile_replies(KIND, statements("found", False), "statements", **facts)
    find_missing = get_kind(KIND).find_missing
    assert find_missing is not None
    assert find_missing({}, case_of()) == "expected output"
    assert find_missing({}, case_of(expected_output="x")) == ""
