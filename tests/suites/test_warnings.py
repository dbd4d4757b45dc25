"""What is pointed out to whoever edits evaluators."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.suites.warnings import remarks, unfinished
from tests.evaluators.scoring.trees import composite, leaf, root
from tests.suites.contents import version

OVERALL = PolicySpec(final_score="judge_overall").as_json()
OUTCOMES = PolicySpec(case_gate="expected_outcomes").as_json()
RUBRIC = {"rubrics": [{"id": "a", "expected_outcome": "Is kind"}]}


def judged(**settings: Any) -> EvaluatorSpec:
    return EvaluatorSpec(
        name="all",
        kind="composite",
        config={"aggregator": settings},
        children=(leaf("a", 0), leaf("b", 0)),
    )


TREES: dict[str, tuple[EvaluatorSpec, dict[str, Any], list[tuple[str, str]]]] = {
    "nothing odd": (root(leaf("a", 2), leaf("b")), {}, []),
    "under minimum": (root(leaf("a", 2), leaf("b"), rule="minimum"), {}, [("no_effect", "a")]),
    "under maximum": (root(leaf("a", 2), leaf("b"), rule="maximum"), {}, [("no_effect", "a")]),
    "passes counted": (root(leaf("a", 2), leaf("b"), rule="threshold"), {}, [("no_effect", "a")]),
    "a gate alone": (
        root(leaf("a", 2), leaf("b"), rule="safety_gate", required=("a",), remainder="remaining"),
        {},
        [("no_effect", "a")],
    ),
    "a gate that counts": (
        root(leaf("a", 2), leaf("b"), rule="safety_gate", required=("a",)),
        {},
        [],
    ),
    "alone": (root(leaf("a", 2), leaf("b", 0)), {}, [("no_effect", "a"), ("never_decides", "b")]),
    "never decides": (root(leaf("a"), leaf("b", 0)), {}, [("never_decides", "b")]),
    "required at weight 0": (root(leaf("a"), leaf("b", 0, required=True)), {}, []),
    "a gate at weight 0": (
        root(leaf("a"), leaf("b", 0), rule="safety_gate", required=("b",)),
        {},
        [],
    ),
    "a branch of weight 0": (
        root(leaf("a"), composite("b", leaf("c"), leaf("d"), weight=0)),
        {},
        [("never_decides", "b")],
    ),
    "required inside it": (
        root(leaf("a"), composite("b", leaf("c", required=True), leaf("d"), weight=0)),
        {},
        [("never_decides", "b/d")],
    ),
    "a judge of zeros": (
        judged(type="llm_judge"),
        {},
        [("zero_sum", ""), *[("never_decides", n) for n in "ab"]],
    ),
    "zeros not yet refused": (
        root(leaf("a", 0), leaf("b", 0)),
        {},
        [("zero_sum", ""), *[("never_decides", n) for n in "ab"]],
    ),
    "the judge's own score": (
        root(
            leaf("a", 3),
            leaf("h", kind="hybrid_judge", config={"checks": []}),
            leaf("r", required=True),
        ),
        {"policy": OVERALL},
        [("no_effect", ""), ("never_decides", "a")],
    ),
    "outcomes decide": (
        root(leaf("a"), leaf("m", 0, kind="metrics_judge")),
        {"policy": OUTCOMES},
        [],
    ),
    "not filled in": (
        root(leaf("a"), leaf("b", kind="text_check")),
        {},
        [("unfinished", "b")],
    ),
}


@pytest.mark.parametrize(("tree", "parts", "expected"), TREES.values(), ids=TREES)
def test_what_is_pointed_out(
    tree: EvaluatorSpec, parts: dict[str, Any], expected: list[Any]
) -> None:
    found = remarks(version(tree, **parts))
    assert [(one.code, one.path) for one in found] == expected
    assert all(one.text.endswith(".") for one in found)
    assert all(f"“{one.path}" in one.text for one in found if one.path)


def test_the_words_name_weight_and_reason() -> None:
    (said,) = remarks(version(root(leaf("a", 2.5), leaf("b"), rule="minimum")))
    assert said.text == "The weight 2.5 of “a” changes nothing: the lowest score counts."
    (said,) = remarks(version(root(leaf("a"), leaf("b", 0))))
    assert said.text == (
        "“b” can never change a verdict: its weight is 0, and it is neither required nor a gate. "
        "It is only recorded."
    )


def test_a_judge_that_is_the_targets_own_model_is_pointed_out() -> None:
    own = leaf("own", config={"model": "juno-2"})
    check = leaf("check", kind="text_check", config={"operator": "contains", "value": "x"})
    content = version(root(own, leaf("other"), check), judge="strict")
    targets = {"juno-2": ("agent", "agent v2"), "strict": ("clerk",)}
    assert [(one.path, one.text) for one in remarks(content, target_models=targets)] == [
        ("own", "“own” asks juno-2, which is the model of agent and agent v2: it judges itself."),
        ("other", "“other” asks strict, which is the model of clerk: it judges itself."),
    ]


def test_what_is_to_be_filled_in_is_named_with_its_field() -> None:
    (said,) = unfinished(version(root(leaf("a", kind="text_check"), leaf("b"))))
    assert (said.path, said.field) == ("a", "operator")
    assert "operator" in said.text


LITERAL = {
    "contains": ({"operator": "contains", "value": "It is {{expected_output}}."}, "contains"),
    "spaced": ({"operator": "starts_with", "value": "{{ input }}"}, "contains"),
    "one of several": (
        {"operator": "contains_any", "values": ["a", "{{ metadata.id }}"]},
        "contains",
    ),
    "equals": ({"operator": "equals", "value": "{{expected_output}}"}, "exact"),
    "regex": ({"operator": "regex", "value": "^{{expected_output}}$"}, "regex"),
}


@pytest.mark.parametrize(("config", "match"), LITERAL.values(), ids=LITERAL)
def test_a_variable_that_a_text_check_takes_by_the_letter_is_pointed_out(
    config: dict[str, Any], match: str
) -> None:
    found = remarks(version(root(leaf("a", kind="text_check", config=config))))
    (said,) = (one for one in found if one.code == "literal")
    assert said.path == "a"
    assert said.field == ("values" if "values" in config else "value")
    assert f"type expected_output with match: {match}" in said.text


@pytest.mark.parametrize("text", ["{{}}", "{ expected_output }", "{{ 2 + 2 }}", "a{2}"])
def test_other_braces_in_a_text_check_are_what_is_looked_for(text: str) -> None:
    config = {"operator": "contains", "value": text}
    assert remarks(version(root(leaf("a", kind="text_check", config=config)))) == []


def test_a_check_of_a_hybrid_judge_takes_no_variables_either() -> None:
    checks = [{"name": "has_it", "type": "contains", "value": "{{expected_output}}"}]
    found = remarks(version(root(leaf("h", kind="hybrid_judge", config={"checks": checks}))))
    assert [one.field for one in found if one.code == "literal"] == ["checks"]
