"""What a decision tells besides its verdict: findings, every step, shares, and which evaluators decided."""

from __future__ import annotations

import json

import pytest

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import decide, score_tree
from evaluators.scoring.types import Finding, Outcome, OutcomeResult, Score
from tests.evaluators.scoring.trees import composite, leaf, root, scores
from tests.evaluators.scoring.verdicts import OUTCOMES, POLICY, TREE, results


def test_hits_and_misses_are_those_of_the_evaluators_in_order() -> None:
    panel = composite("panel", leaf("x"), rule="llm_judge")
    outcomes: dict[str, Outcome] = {
        "panel": Score(1.0, findings=(Finding("p", True),), warnings=("short",)),
        "panel/x": Score(1.0, findings=(Finding("x", True), Finding("y", False))),
        "a": Score(1.0, findings=(Finding("a", False),)),
    }
    decision = decide(root(leaf("a"), panel), outcomes, POLICY)
    assert (decision.hits, decision.misses) == (("p", "x"), ("a", "y"))
    assert decision.warnings == ("panel: short",)


def test_the_trace_tells_every_step() -> None:
    tree = root(
        composite("safety", leaf("pii", required=True), leaf("harm"), rule="minimum"),
        composite("strict", leaf("x"), rule="all_or_nothing"),
        leaf("free", 0.0),
        leaf("tone", 8.0),
        rule="safety_gate",
        required=("safety",),
    )
    outcomes = scores(
        {"safety/pii": 1.0, "safety/harm": 0.9, "strict/x": 0.2}, free=None, tone=0.85
    )
    decision = decide(tree, outcomes, POLICY)
    assert [(step.text, step.path, step.passed) for step in decision.trace] == [
        ("4 of 5 evaluators scored", None, None),
        ("free could not be scored: free timed out", "free", None),
        ("Gate safety of root: 0.90 ≥ 0.60", "safety", True),
        ("strict failed by its own rule: x 0.20 < 0.70", "strict", False),
        ("Required: pii 1.00 > 0", "safety/pii", True),
        ("Final score: (0.90×1 + 0.00×1 + 0.85×8) ÷ 10 = 0.77", "", None),
        ("Borderline: 0.77 < 0.80", None, False),
    ]


def test_the_trace_tells_what_a_gate_held_back_and_which_outcomes_were_met() -> None:
    tree = root(leaf("g"), leaf("a"), rule="safety_gate", required=("g",))
    steps = [step.text for step in decide(tree, scores(g=0.1), POLICY).trace]
    assert steps == [
        "1 of 1 evaluator scored",
        "Not run, held back by a gate: a",
        "Gate g of root: 0.10 < 0.60",
        "Final score: g 0.10 < 0.60, so 0.00",
        "Fail: gate: g 0.10 < 0.60",
    ]
    outcomes = decide(TREE, scores(a=1.0, b=1.0), OUTCOMES, outcome_results=results(True, False))
    assert [(s.text, s.passed) for s in outcomes.trace[-3:]] == [
        ("Outcome met: outcome 1", True),
        ("Outcome missed: outcome 2", False),
        ("Fail: 1 of 2 outcomes missed", False),
    ]


def test_the_trace_counts_only_those_that_were_tried() -> None:
    gated = composite("q", leaf("g"), leaf("x"), leaf("y"), rule="safety_gate", required=("g",))
    known = scores({"q/g": 0.1, "q/x": 1.0, "q/y": 1.0, "a": None, "b": 1.0})
    decision = decide(root(gated, leaf("a", 0.0), leaf("b")), known, POLICY)
    assert decision.trace[0].text == "2 of 3 evaluators scored"
    assert decision.trace[0].passed is None


def test_the_trace_of_one_evaluator_and_of_an_error() -> None:
    only = decide(leaf("only", required_below=0.5), {"": Score(0.9)}, POLICY)
    assert [step.text for step in only.trace] == [
        "1 of 1 evaluator scored",
        "Required: only 0.90 ≥ 0.50",
        "Final score: 0.90",
        "Pass: 0.90 ≥ 0.80",
    ]
    error = decide(TREE, scores(a=1.0, b=None), POLICY)
    assert (error.trace[0].text, error.trace[0].passed) == ("1 of 2 evaluators scored", False)
    assert (error.trace[1].path, error.trace[1].passed) == ("b", False)
    assert error.trace[-1].text == "b could not be scored: b timed out"


def test_shares_say_what_part_of_the_final_score_each_decides() -> None:
    tree = root(
        composite("low", leaf("x"), leaf("y"), rule="minimum"),
        composite("high", leaf("x"), leaf("y"), rule="maximum"),
        composite("most", leaf("x"), leaf("y"), rule="threshold"),
        composite("none", leaf("x"), rule="all_or_nothing"),
        composite("judged", leaf("x"), rule="llm_judge"),
        leaf("a", 5.0),
        leaf("free", 0.0),
    )
    by_path = {
        **{"low/x": 0.9, "low/y": 0.5, "high/x": 0.9, "high/y": 0.5, "most/x": 0.9, "most/y": 0.5},
        **{"none/x": 0.1, "judged/x": 0.5, "judged": 0.9, "a": 0.9, "free": 0.9},
    }
    nodes = score_tree(tree, scores(by_path), POLICY)
    assert {path: node.share for path, node in nodes.items()} == pytest.approx(
        {
            **{"": 1.0, "low": 0.1, "low/x": 0.0, "low/y": 0.1, "high": 0.1, "high/x": 0.1},
            **{"high/y": 0.0, "most": 0.1, "most/x": 0.05, "most/y": 0.05, "none": 0.1},
            **{"none/x": 0.0, "judged": 0.1, "judged/x": 0.0, "a": 0.5, "free": 0.0},
        }
    )
    assert nodes["low"].arithmetic == "lowest of 0.90, 0.50 = 0.50"
    assert nodes["high"].arithmetic == "highest of 0.90, 0.50 = 0.90"
    path = {node.path for node in nodes.values() if node.on_deciding_path}
    assert path == {"", "none", "none/x"}


def test_the_deciding_path_follows_what_cost_most_and_is_the_root_alone_for_a_pass() -> None:
    tree = root(composite("low", leaf("x"), leaf("y"), rule="minimum"), leaf("a"))
    nodes = score_tree(tree, scores({"low/x": 0.9, "low/y": 0.3}, a=0.9), POLICY)
    assert [n.path for n in nodes.values() if n.on_deciding_path] == ["", "low", "low/y"]
    passing = score_tree(tree, scores({"low/x": 0.9, "low/y": 0.9}, a=0.9), POLICY)
    assert [n.path for n in passing.values() if n.on_deciding_path] == [""]
    strict = PolicySpec(pass_threshold=1.0)
    perfect = composite("q", leaf("z"), rule="threshold")
    nodes = score_tree(root(perfect, leaf("a")), scores({"q/z": 1.0}, a=0.9), strict)
    assert [n.path for n in nodes.values() if n.on_deciding_path] == ["", "a"]


def test_a_decision_survives_json() -> None:
    tree = root(composite("q", leaf("x", required=True), leaf("y")), leaf("a"))
    found = (OutcomeResult("x", True, "because"), OutcomeResult("y", False, "no"))
    cases = [
        decide(tree, scores({"q/x": 0.7, "q/y": 0.7}, a=0.7), POLICY),
        decide(tree, scores({"q/x": 0.7, "q/y": 0.7}, a=0.7), OUTCOMES, outcome_results=found),
        decide(tree, scores({"q/x": 0.0, "q/y": None}, a=0.9), POLICY),
        decide(tree, scores({"q/x": 1.0, "q/y": 1.0}, a=1.0), POLICY),
    ]
    for decision in cases:
        assert Decision.from_json(json.loads(json.dumps(decision.as_json()))) == decision
