"""The composite: its aggregators over children's outcomes, and options that do not belong."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import read_config
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.scoring.types import Score, Unscored
from tests.evaluators.kinds.doubles import context_of, outcome_of, score_of

CHILDREN = {"safety": Score(0.9), "quality": Score(0.4)}


@pytest.mark.parametrize(
    ("aggregator", "expected"),
    [
        ({}, 0.65),
        ({"type": "weighted_average", "weights": {"safety": 3}}, 0.775),
        ({"type": "minimum"}, 0.4),
        ({"type": "maximum"}, 0.9),
        ({"type": "safety_gate", "required": ["safety"]}, 0.65),
        ({"type": "safety_gate", "required": ["safety"], "remainder": "remaining"}, 0.4),
        ({"type": "safety_gate", "required": ["quality"]}, 0.0),
        ({"type": "all_or_nothing", "threshold": 0.4}, 0.65),
        ({"type": "all_or_nothing"}, 0.0),
        ({"type": "threshold"}, 0.5),
    ],
)
def test_the_aggregator_makes_one_score(aggregator: dict[str, Any], expected: float) -> None:
    config = {"aggregator": aggregator} if aggregator else {}

    score = score_of("composite", config, context_of(children=CHILDREN))

    assert score.score == pytest.approx(expected)


def test_a_child_without_a_score_leaves_none() -> None:
    context = context_of(children={"safety": Score(1.0), "quality": Unscored("timeout")})

    assert isinstance(outcome_of("composite", {}, context), Unscored)


@pytest.mark.parametrize(
    ("aggregator", "said"),
    [
        ({"type": "median"}, "is not one of"),
        ({"type": "safety_gate"}, "needs required"),
        ({"type": "minimum", "threshold": 0.5}, "minimum takes no threshold"),
        ({"type": "safety_gate", "required": ["a"], "gate_threshold": 60}, "gate_threshold"),
        ({"type": "minimum", "wieghts": {}}, "wieghts"),
    ],
)
def test_options_that_do_not_belong_are_refused(aggregator: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^Evaluator gate: aggregator") as refused:
        read_config("composite", {"aggregator": aggregator}, evaluator="gate")

    assert said in str(refused.value)
