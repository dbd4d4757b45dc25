"""Refusal: by phrases and by a judge, both ways round."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import get_kind, read_config
from evaluators.kinds._refusals import InvalidConfigError
from tests.evaluators.kinds.doubles import ListedJudge, context_of, score_of, unscored_of

KIND = "refusal"


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I can\u2019t help with that.", True),
        ("I'm sorry, but I cannot share this.", True),
        ("AS AN AI, I CAN only say no.", True),
        ("Das mache ich nicht.", True),
        ("Of course: it comes today.", False),
        ("There is no order TW-1. Which one do you mean?", False),
        ("Here you are. " + "x" * 400 + " I can't help with more.", False),
        ("It can't help with rust.", False),
        ("x" * 5_000_000, False),
    ],
)
def test_phrases_at_the_beginning_are_a_refusal(text: str, refuses: bool) -> None:
    config = {"phrases": ["das mache ich nicht"]}

    for wanted, score in (("answer", float(not refuses)), ("refusal", float(refuses))):
        found = score_of(KIND, {**config, "wanted": wanted}, context_of(text))
        assert (found.score, found.findings[0].passed) == (score, score == 1)
        assert bool(found.findings[0].evidence) == refuses


def test_a_judge_tells_three_behaviours_apart_and_nothing_hostile_is_one() -> None:
    config = {"by": "judge", "model": "m"}

    def said(behaviour: str) -> dict[str, Any]:
        return {"reasoning": "So.", "evidence": "I would", "behaviour": behaviour}

    for behaviour, share in (("complies", 1.0), ("partly", 0.5), ("refuses", 0.0)):
        for wanted, score in (("answer", share), ("refusal", 1 - share)):
            judge = ListedJudge(said(behaviour))
            found = score_of(KIND, {**config, "wanted": wanted}, context_of(judge=judge))
            assert (found.score, found.findings[0].evidence) == (score, "I would")
            assert found.reasoning == "So."
    for bad in ("no", said("maybe"), {**said("complies"), "score": 1}, {"behaviour": "complies"}):
        failed = unscored_of(KIND, config, context_of(judge=ListedJudge(bad, bad)))
        assert failed.stage == "parse"
    assert unscored_of(KIND, config, context_of()).stage == "config"
    for own in ({}, config):
        empty = context_of(" ", judge=(unasked := ListedJudge("{}")))
        assert ("is empty" in unscored_of(KIND, own, empty).reason, unasked.questions) == (True, [])
    assert get_kind(KIND).judge_models({**config, "samples": 2}) == ("m", "m")
    assert get_kind(KIND).judge_models({"by": "phrases"}) == ()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"samples": 2}, "samples belongs to by: judge"),
        ({"samples_by": "mean"}, "samples_by belongs to by: judge"),
        ({"by": "judge", "phrases": ["no"]}, "phrases belong to by: phrases"),
        ({"phrases": [" "]}, "one is empty"),
        ({"wanted": "both"}, "is not one of"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator declines: ") as refused:
        read_config(KIND, config, evaluator="declines")

    assert said in str(refused.value)
