"""The tree of evaluators: paths, settings, weights."""

from __future__ import annotations

import json
import math

import pytest

from evaluators.scoring.tree import Aggregator, EvaluatorSpec, TreeError, validate, walk
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError
from tests.evaluators.scoring.trees import composite, leaf, root


def test_walk_yields_paths_in_tree_order() -> None:
    tree = root(composite("safety", leaf("no_pii"), leaf("kind")), leaf("tone"))
    paths = [path for path, _ in walk(tree)]
    assert paths == ["", "safety", "safety/no_pii", "safety/kind", "tone"]


def test_a_tree_survives_json_with_every_setting() -> None:
    tree = root(
        composite(
            "gate",
            leaf("a", 2.0, required=True, config={"prompt": "?"}),
            leaf("b", required_below=0.7, negate=True),
            rule="safety_gate",
            required=("a",),
            weights={"b": 0.5},
            gate_threshold=0.4,
            remainder="remaining",
        ),
        composite("strict", leaf("c"), rule="all_or_nothing", threshold=0.9),
        composite("most", leaf("d"), rule="threshold", share=0.25),
        rule="minimum",
    )
    read = EvaluatorSpec.model_validate(json.loads(json.dumps(tree.as_json())))
    assert read.as_json() == tree.as_json()
    assert [node.aggregator for _, node in walk(read)] == [
        node.aggregator for _, node in walk(tree)
    ]


def test_a_composite_reads_its_aggregator_from_its_config_and_keeps_what_else_is_there() -> None:
    config = {"aggregator": {"type": "llm_judge", "prompt": "Look at the children."}}
    node = EvaluatorSpec(name="panel", kind="composite", config=config, children=(leaf("a"),))
    assert node.aggregator is not None
    assert node.aggregator.type == "llm_judge"
    assert node.aggregator.is_judging
    assert node.as_json()["config"]["aggregator"]["prompt"] == "Look at the children."


def test_a_composite_without_an_aggregator_averages_and_a_leaf_has_none() -> None:
    assert EvaluatorSpec(name="all", kind="composite").aggregator == Aggregator(
        type="weighted_average"
    )
    assert leaf("a").aggregator is None
    assert leaf("a").child_weight(leaf("b", 3.0)) == 3.0
    read = EvaluatorSpec.model_validate({"name": "a", "kind": "llm_judge"})
    assert (read.weight, read.required, read.required_below) == (1.0, False, None)
    assert EvaluatorSpec.model_validate({"name": "a", "kind": "llm_judge", "weight": 0}).weight == 0


def test_the_weights_of_the_aggregator_go_before_those_of_the_children() -> None:
    parent = root(leaf("a", 5.0), leaf("b", 2.0), weights={"a": 0.0})
    assert [parent.child_weight(child) for child in parent.children] == [0.0, 2.0]


def test_a_sound_tree_is_accepted() -> None:
    validate(
        root(
            composite("safety", leaf("a"), leaf("b"), rule="minimum", required=()),
            leaf("free", 0.0),
            rule="safety_gate",
            required=("safety",),
        )
    )
    validate(leaf("alone"))
    validate(composite("panel", leaf("a", 0.0), rule="llm_judge"))
    validate(root(composite("a" * 100, composite("b" * 394, leaf("tone")))))


REFUSED = {
    "weights of an unknown name": (
        root(leaf("a"), weights={"b": 1.0}),
        "“b”; its evaluators are “a”",
    ),
    "required of an unknown name": (
        root(leaf("a"), rule="safety_gate", required=("safety",)),
        "required names “safety”",
    ),
    "names twice": (root(leaf("a"), leaf("a")), "more than one evaluator named “a”"),
    "weights that sum to 0": (root(leaf("a", 0.0), leaf("b", 0.0)), "sum to 0"),
    "no children": (root(), "composite without evaluators"),
    "children of a leaf": (
        root(EvaluatorSpec(name="a", kind="llm_judge", children=(leaf("b"),))),
        "“a” is a llm_judge and cannot hold",
    ),
    "an unknown aggregator": (root(leaf("a"), rule="best_of"), "'best_of' is not one of"),
    "an unknown remainder": (
        root(leaf("a"), leaf("b"), rule="safety_gate", required=("a",), remainder="some"),
        "remainder 'some'",
    ),
    "a gate without names": (root(leaf("a"), rule="safety_gate"), "in required"),
    "remaining with none": (
        root(leaf("a"), rule="safety_gate", required=("a",), remainder="remaining"),
        "every evaluator is a gate",
    ),
    "remaining with weight 0": (
        root(leaf("a"), leaf("b", 0.0), rule="safety_gate", required=("a",), remainder="remaining"),
        "sum to 0",
    ),
    "a slash in a name": (root(leaf("a/b")), "must not contain “/”"),
    "an at sign": (root(leaf("@outcomes")), "or begin with “@”"),
    "a path too long to store": (
        root(composite("a" * 100, composite("b" * 399, leaf("tone")))),
        "“tone” is nested too deep: .* have 505 characters, and at most 500 are allowed",
    ),
    "a blank name": (root(leaf(" ")), "has no name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_itself_is_refused(name: str) -> None:
    tree, message = REFUSED[name]
    with pytest.raises(TreeError, match=message):
        validate(tree)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_no_weight_is_negative_or_endless_at_any_depth(value: float) -> None:
    with pytest.raises(ScoreOutOfRangeError, match="“deep/a”: weight"):
        validate(root(composite("deep", leaf("a", value))))
    with pytest.raises(ScoreOutOfRangeError, match="“deep”: weights of “a”"):
        validate(root(composite("deep", leaf("a"), weights={"a": value})))


@pytest.mark.parametrize("setting", ["gate_threshold", "threshold", "share"])
@pytest.mark.parametrize("value", [math.nan, -0.1, 1.1])
def test_thresholds_lie_between_0_and_1(setting: str, value: float) -> None:
    with pytest.raises(ScoreOutOfRangeError, match=setting):
        validate(root(leaf("a"), **{setting: value}))


def test_weights_too_large_to_add_up_are_refused() -> None:
    with pytest.raises(TreeError, match="“root”: the weights .* too large"):
        validate(root(leaf("a", 1e308), leaf("b", 1e308)))


def test_a_minimum_of_an_evaluator_lies_between_0_and_1() -> None:
    with pytest.raises(DomainError, match="“a”: required"):
        validate(root(leaf("a", required_below=1.5)))


def test_a_name_is_found_twice_among_very_many() -> None:
    # Counting each name among all would take minutes.
    leaves = [leaf(f"check {number}") for number in range(60_000)]

    with pytest.raises(TreeError, match="more than one evaluator named .*check 7"):
        validate(root(*leaves, leaf("check 7")))


@pytest.mark.parametrize(
    ("mark", "score", "is_reached"),
    [
        (None, 0.9, None),
        (0.7, None, None),
        (0.7, 0.7, True),
        (0.7, 0.7 - 1e-12, True),
        (0.7, 0.69, False),
        (0.0, 0.0, True),
        (1.0, 0.999, False),
    ],
)
def test_a_pass_mark_labels_a_score_and_is_left_out_where_there_is_none(
    mark: float | None, score: float | None, is_reached: bool | None
) -> None:
    node = leaf("a", pass_mark=mark)
    assert node.reaches_mark(score) is is_reached
    assert ("pass_mark" in node.as_json()) == (mark is not None)
    assert EvaluatorSpec.model_validate(node.as_json()) == node
    validate(root(node, composite("b", leaf("c"))))
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ScoreOutOfRangeError, match="“a”: pass_mark"):
            validate(root(leaf("a", pass_mark=wrong)))
