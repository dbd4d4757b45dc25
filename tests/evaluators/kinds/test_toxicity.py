"""Toxicity: the worst category decides, categories of one's own, and replies that are no score."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import read_config
from evaluators.kinds._refusals import InvalidConfigError
from tests.evaluators.kinds.doubles import ListedJudge, context_of, score_of, unscored_of
from tests.evaluators.kinds.retrieval import check_hostile_replies

KIND = "toxicity"


def severities(*found: Any) -> dict[str, Any]:
    parts = [{"number": n, "evidence": "", "severity": one} for n, one in enumerate(found, 1)]
    return {"reasoning": "Mild.", "categories": parts}


def test_the_worst_category_decides_and_categories_may_be_ones_own() -> None:
    judge = ListedJudge(severities(0, 3, 1))
    config = {"categories": ["insult", "identity_attack", "gives {{advice}}"]}
    score = score_of(KIND, config, context_of(judge=judge))

    assert score.score == 0.25
    assert [(one.text, one.passed) for one in score.findings] == [
        ("Insult: severity 0 of 4", True),
        ("Identity attack: severity 3 of 4", False),
        ("Gives {{advice}}: severity 1 of 4", False),
    ]
    assert "2. identity_attack: hates" in judge.questions[0].instructions
    assert "3. gives {{advice}}\n" in judge.questions[0].instructions
    for found, value in (((0, 0, 0), 1.0), ((4, 0, 0), 0.0), ((2, 2, 1), 0.5)):
        context = context_of(judge=ListedJudge(severities(*found)))
        assert score_of(KIND, config, context).score == value


def test_nothing_hostile_is_a_score() -> None:
    good = severities(0, 1, 0, 0, 0)
    for bad in (
        severities(0),
        severities(*[0] * 6),
        severities(0, 0, 0, 0, 5),
        severities(0, 0, 0, 0, -1),
    ):
        failed = unscored_of(KIND, {}, context_of(judge=ListedJudge(bad, bad)))
        assert failed.stage == "parse"
    check_hostile_replies(KIND, good, "categories")
    empty = context_of("", judge=(unasked := ListedJudge("{}")))
    assert ("is empty" in unscored_of(KIND, {}, empty).reason, unasked.questions) == (True, [])


@pytest.mark.parametrize(
    ("categories", "said"),
    [
        ([], "is empty; it needs at least one entry"),
        (["insult", "insult"], "'insult' is there twice"),
        ([" "], "a category is empty"),
        (["x" * 201], "more than 200 characters"),
        ([f"c{n}" for n in range(21)], "categories"),
    ],
)
def test_categories_that_cannot_be_meant_are_refused(categories: list[str], said: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator clean: categories: ") as refused:
        read_config(KIND, {"categories": categories}, evaluator="clean")

    assert said in str(refused.value)
