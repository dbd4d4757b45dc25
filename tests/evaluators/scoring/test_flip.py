"""The smallest change of one score that changes a verdict."""

from __future__ import annotations

import pytest

from evaluators.scoring.decision import Flip
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import decide
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome, OutcomeResult, Score, Skipped
from tests.evaluators.scoring.trees import composite, leaf, root, scores

POLICY = PolicySpec()


def flip_of(tree: EvaluatorSpec, outcomes: dict[str, Outcome], policy: PolicySpec = POLICY) -> Flip:
    flip = decide(tree, outcomes, policy).flip
    assert flip is not None
    return flip


def test_the_smallest_rise_of_one_score_reaches_the_next_verdict() -> None:
    tree = root(leaf("tone"), leaf("facts", 3.0), leaf("form"))
    flip = flip_of(tree, scores(tone=0.5, facts=0.7, form=0.9))
    assert (flip.path, flip.from_score, flip.verdict) == ("facts", 0.7, "pass")
    assert flip.to_score == pytest.approx(0.866666667, abs=1e-9)
    assert flip.text == "would pass if facts scored 0.87 instead of 0.70"


def test_a_fail_becomes_borderline_first() -> None:
    flip = flip_of(root(leaf("a"), leaf("b")), scores(a=0.5, b=0.5))
    assert (flip.path, flip.to_score, flip.verdict) == ("a", 0.7, "borderline")
    assert flip.text == "would be borderline if a scored 0.70 instead of 0.50"


def test_a_fail_becomes_a_pass_where_no_borderline_lies_between() -> None:
    policy = PolicySpec(borderline_threshold=0.8)
    assert flip_of(leaf("a"), {"": Score(0.5)}, policy).verdict == "pass"


def test_equal_rises_go_to_the_first_in_tree_order() -> None:
    tree = root(leaf("x"), composite("q", leaf("y"), leaf("z")), weights={"q": 2.0})
    flip = flip_of(tree, scores({"q/y": 0.7, "q/z": 0.7}, x=0.7))
    assert flip.path == "x"


def test_a_pass_and_an_error_have_none() -> None:
    assert decide(leaf("a"), {"": Score(0.9)}, POLICY).flip is None
    assert decide(leaf("a"), {}, POLICY).flip is None


def test_none_alone_when_no_single_score_is_enough() -> None:
    flip = flip_of(root(leaf("a"), leaf("b")), scores(a=0.1, b=0.1))
    assert (flip.path, flip.to_score, flip.verdict) == (None, None, None)
    assert flip.text == "no single evaluator can change this"


def test_a_required_zero_has_to_rise_above_zero() -> None:
    tree = root(leaf("safety", 0.0, required=True), leaf("a"))
    flip = flip_of(tree, scores(safety=0.0, a=0.9))
    assert (flip.path, flip.to_score, flip.verdict) == ("safety", 1e-9, "pass")
    assert flip.text == "would pass if safety scored above 0 instead of 0.00"


def test_a_minimum_has_to_be_reached() -> None:
    tree = root(leaf("safety", 0.0, required_below=0.7), leaf("a"))
    flip = flip_of(tree, scores(safety=0.3, a=0.9))
    assert (flip.path, flip.to_score) == ("safety", 0.7)


def test_missed_criteria_stand_against_every_score() -> None:
    outcomes: dict[str, Outcome] = {"a": Score(0.9, failed_required=("no-pii",)), "b": Score(0.9)}
    flip = flip_of(root(leaf("a"), leaf("b")), outcomes)
    assert flip.text == "no single evaluator can change this: a must meet “no-pii”"


def test_a_gate_that_held_others_back_says_what_it_needs() -> None:
    tree = root(leaf("g"), leaf("a"), rule="safety_gate", required=("g",))
    flip = flip_of(tree, scores(g=0.4))
    assert (
        flip.text
        == "no single evaluator can change this: g must reach 0.60, then the skipped evaluators must run"
    )


@pytest.mark.parametrize("on_unscored", ["error", "exclude", "zero"])
def test_what_a_gate_held_back_is_never_guessed(on_unscored: str) -> None:
    tree = root(leaf("g"), leaf("a"), rule="safety_gate", required=("g",))
    outcomes: dict[str, Outcome] = {"g": Score(0.5), "a": Skipped()}
    policy = PolicySpec(on_unscored=on_unscored, borderline_threshold=0.3)
    flip = decide(tree, outcomes, policy).flip
    assert flip is not None
    assert (
        flip.text
        == "no single evaluator can change this: g must reach 0.60, then the skipped evaluators must run"
    )


def test_a_gate_whose_others_are_known_flips_at_its_limit() -> None:
    tree = root(leaf("g"), leaf("a", 9.0), rule="safety_gate", required=("g",))
    flip = flip_of(tree, scores(g=0.4, a=0.9))
    assert (flip.path, flip.to_score, flip.verdict) == ("g", 0.6, "pass")


def test_all_or_nothing_flips_where_the_last_one_reaches_the_threshold() -> None:
    tree = root(leaf("a"), leaf("b", 3.0), rule="all_or_nothing")
    flip = flip_of(tree, scores(a=0.5, b=0.9))
    assert (flip.path, flip.to_score, flip.verdict) == ("a", 0.7, "pass")


def test_a_threshold_flips_where_one_more_child_passes() -> None:
    tree = root(*(leaf(name) for name in "abcde"), rule="threshold", share=0.6)
    flip = flip_of(tree, scores(a=0.9, b=0.9, c=0.3, d=0.5, e=0.0))
    assert (flip.path, flip.to_score, flip.verdict) == ("d", 0.8, "borderline")


def test_a_threshold_over_minima_flips_at_the_childs_own() -> None:
    tree = root(leaf("a"), leaf("b", required_below=0.95), rule="threshold", share=0.6)
    flip = flip_of(tree, scores(a=0.9, b=0.9))
    assert (flip.path, flip.to_score, flip.verdict) == ("b", 0.95, "pass")


def test_a_limit_reached_through_an_average_is_found() -> None:
    inner = composite("inner", leaf("x"), leaf("y"))
    tree = root(inner, leaf("b"), rule="all_or_nothing", threshold=0.7)
    flip = flip_of(tree, scores({"inner/x": 0.5, "inner/y": 0.8}, b=0.9))
    assert (flip.path, flip.verdict) == ("inner/y", "pass") or flip.path == "inner/x"
    assert flip.to_score is not None
    assert flip.from_score is not None
    assert flip.to_score - flip.from_score == pytest.approx(0.1)


def test_the_score_of_a_judge_over_children_can_rise_and_theirs_change_nothing() -> None:
    panel = composite("panel", leaf("x"), rule="llm_judge")
    flip = flip_of(root(leaf("a"), panel), scores({"panel": 0.7, "panel/x": 0.0}, a=0.8))
    assert (flip.path, flip.to_score) == ("a", 0.9)
    flip = flip_of(root(panel), scores({"panel": 0.7, "panel/x": 0.0}))
    assert (flip.path, flip.to_score) == ("panel", 0.8)


def test_a_negated_score_rises_as_it_counts() -> None:
    flip = flip_of(root(leaf("leak", negate=True)), scores(leak=0.3))
    assert (flip.from_score, flip.to_score) == (0.7, 0.8)


def test_under_a_negated_node_a_rise_may_lift_a_rule_and_not_more() -> None:
    inner = composite("inner", leaf("x"), rule="all_or_nothing", threshold=0.35, negate=True)
    flip = flip_of(root(inner, leaf("a")), scores({"inner/x": 0.3}, a=0.7))
    assert (flip.path, flip.to_score, flip.verdict) == ("inner/x", 0.35, "borderline")


def test_the_fallback_flips_at_its_own_threshold() -> None:
    policy = PolicySpec(case_gate="expected_outcomes")
    flip = flip_of(root(leaf("a"), leaf("b")), scores(a=0.7, b=0.7), policy)
    assert (flip.path, flip.to_score, flip.verdict) == ("a", 0.8, "pass")


def test_a_forced_fail_under_the_outcomes_gate_flips_by_its_score_when_all_are_met() -> None:
    policy = PolicySpec(case_gate="expected_outcomes")
    tree = root(leaf("safety", required=True), leaf("a"))
    for met in (True, False):
        found = (OutcomeResult("x", met),)
        flip = decide(tree, scores(safety=0.0, a=0.0), policy, outcome_results=found).flip
        assert flip is not None
        assert flip.path == ("safety" if met else None)


def test_a_forced_fail_without_a_score_flips_all_the_same() -> None:
    policy = PolicySpec(case_gate="expected_outcomes")
    tree = root(leaf("safety", required=True), leaf("a"))
    found = (OutcomeResult("x", True),)
    flip = decide(tree, scores(safety=0.0, a=None), policy, outcome_results=found).flip
    assert flip is not None
    assert (flip.path, flip.to_score) == ("safety", 1e-9)


def test_what_only_rounding_lets_pass_counts_in_the_search_too() -> None:
    tree = root(
        leaf("g"), leaf("a"), leaf("b"), rule="safety_gate", required=("g",), remainder="remaining"
    )
    flip = flip_of(tree, scores(g=0.5999999998, a=0.7, b=0.7))
    assert (flip.path, flip.verdict) == ("a", "pass")
    assert flip.to_score == pytest.approx(0.9, abs=1e-8)
