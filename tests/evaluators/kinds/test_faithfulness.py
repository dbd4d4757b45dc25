"""Faithfulness: the share of supported statements, where the context comes from, and what has no score."""

from __future__ import annotations

import pytest

from evaluators.kinds import get_kind, read_config
from evaluators.kinds._refusals import InvalidConfigError
from tests.evaluators.kinds.doubles import (
    ANSWERED,
    ListedJudge,
    case_of,
    context_of,
    score_of,
    unscored_of,
)
from tests.evaluators.kinds.retrieval import (
    PASSAGES,
    SEARCHED,
    check_hostile_replies,
    check_missing_contexts,
    statements,
)

KIND = "faithfulness"


def test_the_score_is_the_share_of_statements_that_the_context_supports() -> None:
    judge = ListedJudge(statements("supported", True, True, False))
    score = score_of(KIND, {"tool": "search"}, context_of(judge=judge, trace=SEARCHED))

    assert score.score == pytest.approx(2 / 3)
    assert [(one.text, one.passed, one.evidence) for one in score.findings][1:] == [
        ("Statement 2.", True, "words 2"),
        ("Statement 3.", False, "words 3"),
    ]
    assert (score.reasoning, score.details) == ("Looked twice.", {"model": "listed"})
    (question,) = judge.questions
    assert dict(question.quoted)["candidate_answer"] == ANSWERED
    assert dict(question.quoted)["passage 1"] == PASSAGES[0]
    assert not any(text in question.instructions for text in (ANSWERED, *PASSAGES))


def test_samples_are_combined_and_the_context_may_stand_in_the_case() -> None:
    replies = (statements("supported", *found) for found in ((True,), (False, True), (False,)))
    judge = ListedJudge(*replies, statements("supported"))
    config = {"context": "metadata.docs[0].text", "samples": 4, "samples_by": "mean", "model": "m"}
    metadata = {"docs": [{"text": ["a", {"b": 1}]}]}

    score = score_of(KIND, config, context_of(judge=judge, metadata=metadata))

    assert score.score == pytest.approx(0.5)
    assert score.details["sample_scores"] == [1, 0.5, 0]
    assert score.warnings == (
        "1 of 4 samples are left out: the judge found no statement in the answer",
    )
    assert (score.usage.calls, [question.model for question in judge.questions]) == (4, ["m"] * 4)
    assert dict(judge.questions[0].quoted)["passage 2"] == '{"b": 1}'
    assert get_kind(KIND).judge_models(config) == ("m",) * 4


def test_what_states_nothing_or_has_no_context_is_unscored_and_never_0() -> None:
    check_missing_contexts(KIND)
    nothing = context_of(judge=ListedJudge(statements("supported")), trace=SEARCHED)
    assert "found no statement" in unscored_of(KIND, {}, nothing).reason
    empty = context_of(" ", judge=(judge := ListedJudge("{}")), trace=SEARCHED)
    assert ("is empty" in unscored_of(KIND, {}, empty).reason, judge.questions) == (True, [])
    find_missing = get_kind(KIND).find_missing
    assert find_missing is not None
    assert find_missing({}, case_of()) == ""
    assert find_missing({"context": "metadata.context"}, case_of()) == "metadata.context"


def test_a_hostile_reply_is_never_read_as_a_score() -> None:
    check_hostile_replies(KIND, statements("supported", True), "statements", trace=SEARCHED)


@pytest.mark.parametrize("source", ["", "trace", "metadatax", "input.context", "tools.search"])
def test_a_context_that_is_nowhere_is_refused(source: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator true: context: "):
        read_config(KIND, {"context": source}, evaluator="true")
