"""Answer relevance: the share of statements that help to answer the question."""

from __future__ import annotations

from tests.evaluators.kinds.doubles import ListedJudge, context_of, score_of, unscored_of
from tests.evaluators.kinds.retrieval import check_hostile_replies, statements

KIND = "answer_relevance"


def test_the_score_is_the_share_of_relevant_statements_and_nothing_hostile_is_one() -> None:
    judge = ListedJudge(statements("relevant", True, False))
    score = score_of(KIND, {}, context_of(judge=judge))

    assert (score.score, [one.passed for one in score.findings]) == (0.5, [True, False])
    assert {"input", "candidate_answer"} == dict(judge.questions[0].quoted).keys()
    evades = context_of("No.", judge=ListedJudge(statements("relevant", False)))
    assert score_of(KIND, {}, evades).score == 0
    says_nothing = context_of("Hi!", judge=ListedJudge(statements("relevant")))
    assert "found no statement" in unscored_of(KIND, {}, says_nothing).reason
    empty = context_of("\n", judge=(unasked := ListedJudge("{}")))
    assert ("is empty" in unscored_of(KIND, {}, empty).reason, unasked.questions) == (True, [])
    check_hostile_replies(KIND, statements("relevant", True), "statements")
