"""How scores are stored and read back."""

from __future__ import annotations

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import decide
from evaluators.scoring.types import Score
from runs.models.results import EvaluatorScore as ScoreRow
from runs.models.results import ResultOutput, ScoreState
from runs.models.stored import SCORE_COLUMNS, kept_outcomes, score_rows
from tests.support.run_doubles import composite, leaf


def test_a_score_is_stored_with_the_weight_it_had_in_its_parent():
    inner = composite("inner", leaf("tone"), weights={"tone": 3.0})
    tree = composite("all", leaf("safe", weight=2.0), inner, weights={"safe": 5.0, "inner": 0.5})
    outcomes = {"safe": Score(1.0), "inner/tone": Score(0.5)}
    rows = score_rows(1, tree, outcomes, decide(tree, outcomes, PolicySpec()))

    named = [dict(zip(SCORE_COLUMNS, row, strict=True)) for row in rows]
    assert {row["path"]: row["weight"] for row in named} == {
        "": 1.0,
        "safe": 5.0,
        "inner": 0.5,
        "inner/tone": 3.0,
    }


def test_what_a_judge_made_of_an_evaluator_that_runs_again_does_not_stand():
    paths = (
        "",
        "safe",
        "panel",
        "panel/one",
        "panel/two",
        "panel/two/deep",
        "panel_b",
        "@outcomes",
    )
    rows = [ScoreRow(path=path, state=ScoreState.SCORED, score=1.0, details={}) for path in paths]
    kept = kept_outcomes(rows, ResultOutput(), again=("panel/two",))

    assert list(kept) == ["safe", "panel/one", "panel_b", "@outcomes"]
