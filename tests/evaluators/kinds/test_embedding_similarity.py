"""Embedding similarity: the cosine as scipy has it, where it scores 0, and what has no score."""

from __future__ import annotations

import random
from typing import Any

import pytest
from scipy.spatial.distance import cosine as distance

from evaluators.kinds import get_kind, read_config
from evaluators.kinds._base import PartsMissingError
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.embedding_similarity import cosine
from tests.evaluators.kinds.doubles import ANSWERED, ListedJudge, context_of, score_of, unscored_of

KIND = "embedding_similarity"
CONFIG = {"model": "embedder"}


def test_the_cosine_is_that_of_scipy() -> None:
    chance = random.Random(7)
    for size in (1, 3, 1536):
        pair = [[chance.uniform(-1, 1) for _ in range(size)] for _ in range(2)]
        assert cosine(*pair) == pytest.approx(1 - distance(*pair), abs=1e-9)
    assert (cosine([1, 0], [0, 2]), cosine([1, 1], [-2, -2]), cosine([3, 4], [3, 4])) == (0, -1, 1)
    assert (cosine([0, 0], [1, 1]), cosine([1e308, 1e308], [1e308, 1e308])) == (None, None)


def test_both_texts_are_asked_for_once_and_the_score_rises_from_zero_at() -> None:
    context = context_of(
        expected_output="It comes today.",
        judge=(judge := ListedJudge({"vectors": [[3, 4], [4, 3]]})),
    )
    score = score_of(KIND, {**CONFIG, "zero_at": 0.5, "timeout_s": 9}, context)

    assert score.score == pytest.approx((0.96 - 0.5) / 0.5)
    assert (score.details["cosine"], score.usage.calls) == (pytest.approx(0.96), 1)
    (question,) = judge.questions
    assert question.embedded == (ANSWERED, "It comes today.")
    assert (question.model, question.timeout_s) == ("embedder", 9)
    rescore = get_kind(KIND).rescore
    assert rescore is not None
    for zero_at, value in ((0, 0.96), (0.99, 0.0)):
        config = read_config(KIND, {**CONFIG, "zero_at": zero_at})
        assert rescore(config, score.details).score == pytest.approx(value)
    with pytest.raises(PartsMissingError):
        rescore(read_config(KIND, CONFIG), {})
    assert get_kind(KIND).judge_models(CONFIG) == ("embedder",)


def test_what_cannot_be_compared_is_unscored_and_never_0() -> None:
    for text, expected, said in (
        (ANSWERED, " ", "no expected output"),
        ("", "x", "the answer is empty"),
        ("x" * 5_000_000, "x", "more than 100,000 characters"),
    ):
        context = context_of(text, expected_output=expected, judge=(judge := ListedJudge("{}")))
        assert (said in unscored_of(KIND, CONFIG, context).reason, judge.questions) == (True, [])
    flat = ListedJudge({"vectors": [[0, 0], [1, 0]]})
    outcome = unscored_of(KIND, CONFIG, context_of(expected_output="x", judge=flat))
    assert (outcome.stage, outcome.usage.calls) == ("parse", 1)
    lost = unscored_of(KIND, CONFIG, context_of(expected_output="x", judge=ListedJudge()))
    assert (lost.stage, lost.usage.input_tokens) == ("judge", 10)
    assert unscored_of(KIND, CONFIG, context_of(expected_output="x")).stage == "config"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "model: is missing"),
        ({"model": ""}, "model: '' is refused"),
        ({**CONFIG, "zero_at": 1}, "zero_at: 1 is refused"),
        ({**CONFIG, "zero_at": float("nan")}, "zero_at: nan is refused"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator near: ") as refused:
        read_config(KIND, config, evaluator="near")

    assert said in str(refused.value)
