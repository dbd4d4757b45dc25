"""How a composite combines the scores of its children."""

from __future__ import annotations

import pytest

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import (
    aggregate_children,
    decide,
    gate_failure,
    gate_order,
    score_tree,
)
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome, Score, Skipped, Unscored
from tests.evaluators.scoring.trees import composite, leaf, root, scores

POLICY = PolicySpec()


def total(tree: EvaluatorSpec, **by_name: float | None) -> float | None:
    return decide(tree, scores(by_name), POLICY).score


def test_an_average_takes_the_weights_of_the_aggregator_then_of_the_children() -> None:
    tree = root(leaf("a", 3.0), leaf("b"), leaf("c"), weights={"b": 2.0})
    assert total(tree, a=1.0, b=0.5, c=0.0) == pytest.approx((3 + 1) / 6)


@pytest.mark.parametrize(("rule", "expected"), [("minimum", 0.2), ("maximum", 0.9)])
def test_lowest_and_highest_leave_out_what_weighs_nothing(rule: str, expected: float) -> None:
    tree = root(leaf("a"), leaf("b"), leaf("low", 0.0), leaf("high", 0.0), rule=rule)
    assert total(tree, a=0.2, b=0.9, low=0.0, high=1.0) == expected


def test_a_weight_of_zero_is_recorded_and_counts_nowhere() -> None:
    free = leaf("free", 0.0)
    assert total(root(leaf("a"), free), a=0.5, free=0.0) == 0.5
    strict = root(leaf("a"), free, rule="all_or_nothing")
    assert total(strict, a=0.9, free=0.0) == 0.9
    assert total(root(leaf("a"), free, rule="threshold"), a=0.9, free=0.0) == 1.0
    assert score_tree(root(leaf("a"), free), scores(a=0.5, free=0.1), POLICY)["free"].score == 0.1


def gate(remainder: str = "all", threshold: float = 0.6) -> EvaluatorSpec:
    return root(
        leaf("safety"),
        leaf("quality"),
        leaf("tone", 3.0),
        rule="safety_gate",
        required=("safety",),
        remainder=remainder,
        gate_threshold=threshold,
    )


def test_a_gate_that_holds_counts_all_or_the_remaining() -> None:
    by_name = {"safety": 0.6, "quality": 1.0, "tone": 0.8}
    assert total(gate(), **by_name) == pytest.approx((0.6 + 1.0 + 2.4) / 5)
    assert total(gate("remaining"), **by_name) == pytest.approx((1.0 + 2.4) / 4)


def test_a_gate_that_fails_scores_0_and_skips_the_rest() -> None:
    decision = decide(gate(), scores(safety=0.59), POLICY)
    assert (decision.score, decision.verdict) == (0.0, "fail")
    assert decision.decided_by == "gate: safety 0.59 < 0.60"
    assert decision.evaluator == "safety"
    assert decision.is_forced
    assert decision.nodes["quality"].state == "skipped"
    assert decision.nodes["tone"].note == "an earlier gate failed"
    assert decision.nodes[""].arithmetic == "safety 0.59 < 0.60, so 0.00"


def test_a_gate_at_zero_lets_a_zero_through() -> None:
    assert total(gate(threshold=0.0), safety=0.0, quality=1.0, tone=1.0) == pytest.approx(0.8)


def test_a_gate_of_weight_0_still_gates() -> None:
    tree = root(leaf("safety", 0.0), leaf("a"), rule="safety_gate", required=("safety",))
    assert decide(tree, scores(safety=0.1), POLICY).verdict == "fail"
    assert total(tree, safety=0.9, a=0.7) == 0.7


def test_scores_behind_a_failed_gate_count_for_nothing() -> None:
    decision = decide(gate(), scores(safety=0.1, quality=1.0, tone=None), POLICY)
    assert (decision.status, decision.verdict) == ("scored", "fail")
    assert decision.nodes["quality"].score is None


def test_all_or_nothing() -> None:
    tree = root(leaf("a"), leaf("b", 3.0), rule="all_or_nothing")
    assert total(tree, a=0.7, b=0.9) == pytest.approx(0.85)
    decision = decide(tree, scores(a=0.69, b=1.0), POLICY)
    assert (decision.score, decision.verdict) == (0.0, "fail")
    assert decision.decided_by == "all or nothing: a 0.69 < 0.70"
    assert (decision.rule, decision.evaluator, decision.is_forced) == ("all_or_nothing", "a", True)


def test_threshold_is_the_share_that_passes() -> None:
    tree = root(*(leaf(name, 9.0 if name == "a" else 1.0) for name in "abcd"), rule="threshold")
    half = decide(tree, scores(a=0.8, b=0.8, c=0.79, d=0.0), POLICY)
    assert (half.score, half.verdict) == (0.5, "fail")
    assert half.decided_by == "0.50 < 0.60"
    assert half.nodes[""].arithmetic == "2 of 4 pass = 0.50"
    less = decide(tree, scores(a=0.8, b=0.7, c=0.79, d=0.0), POLICY)
    assert (less.score, less.verdict, less.rule) == (0.25, "fail", "threshold")
    assert less.decided_by == "share: 1 of 4 pass, needs 50%"
    assert less.nodes[""].arithmetic == "1 of 4 pass, needs 50%"


def test_a_child_passes_a_threshold_by_its_own_verdict() -> None:
    strict = composite("strict", leaf("x"), leaf("y"), rule="all_or_nothing", threshold=0.9)
    tree = root(strict, leaf("picky", required_below=0.95), leaf("c"), rule="threshold", share=0.3)
    outcomes = scores({"strict/x": 1.0, "strict/y": 0.8}, picky=0.96, c=0.8)
    assert decide(tree, outcomes, POLICY).score == pytest.approx(2 / 3)
    lenient = PolicySpec(pass_threshold=0.0, borderline_threshold=0.0)
    assert decide(tree, outcomes, lenient).score == pytest.approx(2 / 3)


def test_a_composite_failed_by_its_own_rule_counts_as_0_in_its_parent_and_forces_nothing() -> None:
    inner = composite("inner", leaf("x"), leaf("y"), rule="threshold", share=1.0)
    tree = root(inner, leaf("a", 9.0))
    decision = decide(tree, scores({"inner/x": 1.0, "inner/y": 0.5}, a=1.0), POLICY)
    assert (decision.score, decision.verdict) == (0.9, "pass")
    assert decision.nodes["inner"].score == 0.0
    assert decision.nodes["inner"].verdict == "fail"
    assert decision.nodes["inner"].forced_fail == "1 of 2 pass, needs 100%"


@pytest.mark.parametrize(
    "options", [{"required": True}, {"required_below": 0.0}, {"required_below": 0.3}]
)
def test_a_required_composite_failed_by_its_own_rule_fails_the_result(
    options: dict[str, float],
) -> None:
    inner = composite("inner", leaf("x"), leaf("y"), rule="all_or_nothing", **options)
    decision = decide(
        root(inner, leaf("a", 99.0)), scores({"inner/x": 1.0, "inner/y": 0.5}, a=1.0), POLICY
    )
    assert (decision.verdict, decision.rule, decision.evaluator) == ("fail", "required", "inner")
    assert decision.decided_by == "required: inner (y 0.50 < 0.70)"
    assert decision.score == pytest.approx(0.99)


def test_a_failed_composite_stays_0_when_it_is_negated() -> None:
    inner = composite("inner", leaf("x"), rule="all_or_nothing", negate=True)
    decision = decide(root(inner, leaf("a")), scores({"inner/x": 0.1}, a=1.0), POLICY)
    assert decision.nodes["inner"].score == 0.0
    assert decision.score == 0.5


def test_negation_comes_before_weights_gates_and_requirements() -> None:
    tree = root(
        leaf("leak", negate=True, required_below=0.5),
        composite("noise", leaf("x"), leaf("y"), negate=True),
        rule="safety_gate",
        required=("leak",),
    )
    decision = decide(tree, scores({"noise/x": 0.2, "noise/y": 0.4}, leak=0.1), POLICY)
    assert decision.score == pytest.approx((0.9 + 0.7) / 2)
    assert decision.nodes["leak"].arithmetic == "1 − 0.10 = 0.90"
    assert decision.nodes["noise"].arithmetic == "(0.20×1 + 0.40×1) ÷ 2 = 0.30; 1 − 0.30 = 0.70"
    assert decide(tree, scores(leak=0.8), POLICY).decided_by == "required: leak 0.20 < 0.50"


@pytest.mark.parametrize("rule", ["code_judge", "llm_judge"])
def test_a_judge_over_the_children_gives_the_composite_its_score(rule: str) -> None:
    panel = composite("panel", leaf("x"), leaf("y"), rule=rule)
    tree = root(panel, leaf("a"))
    outcomes = scores({"panel/x": 0.0, "panel/y": 0.1, "panel": 0.9}, a=0.7)
    decision = decide(tree, outcomes, POLICY)
    assert (decision.score, decision.verdict) == (0.8, "pass")
    assert decision.nodes["panel"].arithmetic == ""
    missing = decide(tree, scores({"panel/x": 0.0, "panel/y": 0.1}, a=0.7), POLICY)
    assert (missing.status, missing.error) == (
        "error",
        "panel could not be scored: nothing was recorded for it",
    )


def test_one_evaluator_alone_is_a_tree() -> None:
    decision = decide(leaf("only"), {"": Score(0.7)}, POLICY)
    assert (decision.score, decision.verdict, decision.decided_by) == (
        0.7,
        "borderline",
        "0.70 < 0.80",
    )


def test_gates_run_first() -> None:
    assert gate_order(gate()) == (("safety",), ("quality", "tone"))
    assert gate_order(root(leaf("a"), leaf("b"))) == ((), ("a", "b"))
    assert gate_order(leaf("a")) == ((), ())


def test_what_failed_or_could_not_be_scored_at_a_gate_holds_the_rest_back() -> None:
    assert gate_failure(gate(), scores(safety=0.6)) is None
    assert gate_failure(gate(), scores(safety=0.59)) == "the gate safety failed: 0.59 < 0.60"
    assert gate_failure(gate(), scores(safety=None)) == "the gate safety could not be scored"
    assert gate_failure(gate(), {}) == "the gate safety could not be scored"
    assert gate_failure(root(leaf("a")), scores(a=0.0)) is None
    assert gate_failure(leaf("a"), {}) is None


def test_a_gate_is_judged_after_negation() -> None:
    tree = root(leaf("leak", negate=True), leaf("b"), rule="safety_gate", required=("leak",))
    assert gate_failure(tree, scores(leak=0.1)) is None
    assert gate_failure(tree, scores(leak=0.9)) == "the gate leak failed: 0.10 < 0.60"


def test_aggregate_gives_a_composite_its_outcome_before_negation() -> None:
    node = composite("q", leaf("a"), leaf("b", negate=True), negate=True)
    outcome = aggregate_children(node, scores(a=0.2, b=0.6), POLICY)
    assert isinstance(outcome, Score)
    assert outcome.score == pytest.approx(0.3)


def test_aggregate_knows_a_child_that_failed_by_its_own_rule() -> None:
    inner = composite("inner", leaf("x"), rule="all_or_nothing", negate=True)
    failed = aggregate_children(inner, scores(x=0.1), POLICY)
    assert isinstance(failed, Score)
    assert (failed.score, failed.reasoning) == (0.0, "x 0.10 < 0.70")
    outer = aggregate_children(root(inner, leaf("a")), {"inner": failed, "a": Score(1.0)}, POLICY)
    assert isinstance(outer, Score)
    assert outer.score == 0.5
    gates = root(inner, leaf("a"), rule="safety_gate", required=("inner",))
    assert gate_failure(gates, {"inner": failed}) == "the gate inner failed: 0.00 < 0.60"


@pytest.mark.parametrize(
    ("on_unscored", "expected"),
    [
        ("error", Unscored("no score from b")),
        ("exclude", Score(0.4, reasoning="(0.40×1) ÷ 1 = 0.40")),
        ("zero", Score(0.2, reasoning="(0.40×1 + 0.00×1) ÷ 2 = 0.20")),
    ],
)
def test_aggregate_follows_the_policy_for_children_without_a_score(
    on_unscored: str, expected: Outcome
) -> None:
    tree = root(leaf("a"), leaf("b"))
    assert (
        aggregate_children(tree, scores(a=0.4, b=None), PolicySpec(on_unscored=on_unscored))
        == expected
    )


def test_aggregate_counts_a_child_that_missed_a_required_part_as_not_passing() -> None:
    tree = root(leaf("a"), leaf("b"), rule="threshold", share=0.5)
    outcomes: dict[str, Outcome] = {"a": Score(0.9, failed_required=("no-pii",)), "b": Score(0.9)}
    outcome = aggregate_children(tree, outcomes, POLICY)
    assert isinstance(outcome, Score)
    assert outcome.score == 0.5
    assert decide(tree, outcomes, POLICY).score == 0.5


def test_aggregate_of_nothing_is_unscored() -> None:
    outcome = aggregate_children(root(leaf("a", 0.0)), scores(a=0.4), POLICY)
    assert outcome == Unscored("nothing to aggregate")
    skipped: dict[str, Outcome] = {"safety": Score(0.9), "quality": Skipped(), "tone": Skipped()}
    assert aggregate_children(gate(), skipped, POLICY) == Unscored("no score from quality, tone")


def test_the_score_gate_names_the_composite_whose_failure_lowered_the_score() -> None:
    gate = composite("release", leaf("safe"), leaf("tone"), rule="safety_gate", required=("safe",))
    whole = root(composite("all", gate, leaf("other")))
    low = scores({"all/release/safe": 0.4, "all/release/tone": 1.0, "all/other": 1.0})
    decision = decide(whole, low, POLICY)
    assert decision.decided_by == "0.50 < 0.60 (release: gate: safe 0.40 < 0.60)"
    assert (decision.rule, decision.is_forced) == ("score", False)
    unweighted = root(gate.replace(weight=0.0), leaf("other"))
    low = scores({"release/safe": 0.4, "release/tone": 1.0, "other": 0.5})
    assert decide(unweighted, low, POLICY).decided_by == "0.50 < 0.60"
