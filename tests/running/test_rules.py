"""What one run does otherwise than its suite: the tree and policy it gets, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.tree import walk
from evaluators.scoring.types import DomainError
from runs.running.rules import RunRules, apply_rules
from runs.specs.suites import SuiteSpec
from tests.suites.contents import shop, version
from tests.support.trees import CHECK, JUDGED, LEAF, tree

SUITE = SuiteSpec.model_validate(version(shop()))
SHOP = SUITE.evaluators
JUDGES = SUITE.replace(evaluators=tree(JUDGED, CHECK))
NUMBERS = st.floats(allow_nan=True) | st.integers(-5, 5)


def test_without_rules_a_run_is_scored_as_the_suite_says() -> None:
    found = apply_rules(SUITE, RunRules())
    assert (found.root, found.changed) == (SHOP, ())
    # A rule with the value that the suite has is no change either.
    same = RunRules(policy={"pass_threshold": 0.8}, weights={"tone": 2.0}, required={"tone": False})
    assert apply_rules(SUITE, same) == found


def test_rules_change_what_they_name_and_say_what_that_was() -> None:
    rules = RunRules(
        policy={"pass_threshold": 0.75, "cases_pass_threshold": 0.9},
        weights={"safety/cards": 4.0, "tone": 0.0},
        required={"facts/date": False, "tone": 0.5},
    )
    found = apply_rules(SUITE, rules)
    assert found.policy.pass_threshold == 0.75
    assert {(one["evaluator"], one["name"], one["old"], one["new"]) for one in found.changed} == {
        (None, "pass_threshold", 0.8, 0.75),
        (None, "cases_pass_threshold", 1.0, 0.9),
        ("safety/cards", "weight", 2.0, 4.0),
        ("tone", "weight", 2.0, 0.0),
        ("tone", "required", False, 0.5),
        ("facts/date", "required", True, False),
    }
    assert dict(walk(found.root))["tone"].required_below == 0.5


def test_samples_are_those_of_every_evaluator_that_asks_a_judge() -> None:
    combined = tree(
        JUDGED, CHECK, aggregator={"type": "llm_judge", "prompt": "Weigh {{evaluator_results}}"}
    )
    found = apply_rules(SUITE.replace(evaluators=combined), RunRules(samples=3))
    assert [(one["evaluator"], one["name"], one["old"], one["new"]) for one in found.changed] == [
        ("", "aggregator.samples", 1, 3),
        ("right", "config.samples", 1, 3),
    ]
    assert apply_rules(JUDGES, RunRules(samples=1)).changed == ()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (RunRules(weights={"nowhere": 1.0}), "no evaluator “nowhere”"),
        (RunRules(weights={"tone": -1.0}), "“tone”: the weight -1.0"),
        (RunRules(weights={"tone": math.nan}), "“tone”: the weight nan"),
        (RunRules(weights={"tone": 1e300}), "“tone”: the weight 1e+300 is above"),
        (RunRules(weights={"facts/price": 0.0, "facts/date": 0.0}), "facts"),
        (RunRules(required={"tone": 1.5}), "“tone”: required"),
        (RunRules(policy={"pass_threshold": 0.5}), "borderline_threshold 0.6 is above"),
        (RunRules(policy={"pass_threshold": math.inf}), "pass_threshold inf"),
        (RunRules(policy={"luck": 1}), "The policy has no luck"),
    ],
)
def test_what_cannot_be_scored_by_is_refused_by_name(rules: RunRules, said: str) -> None:
    with pytest.raises(DomainError, match=said.replace("+", r"\+")):
        apply_rules(SUITE, rules)


def test_samples_of_a_suite_without_judges_are_refused() -> None:
    with pytest.raises(DomainError, match="no evaluator of the suite uses a judge"):
        apply_rules(SUITE.replace(evaluators=tree(CHECK)), RunRules(samples=3))


@pytest.mark.parametrize("samples", [0, -1, 16, 10**9])
def test_samples_out_of_range_are_refused_naming_the_evaluator(samples: int) -> None:
    with pytest.raises(DomainError, match=r"right.*samples"):
        apply_rules(JUDGES, RunRules(samples=samples))


@given(
    st.dictionaries(st.sampled_from(["tone", "facts", "safety/harm", "nowhere"]), NUMBERS),
    st.dictionaries(st.sampled_from(["pass_threshold", "fallback_threshold", "scale"]), NUMBERS),
)
def test_whatever_is_asked_is_refused_or_can_be_scored_by(
    weights: dict[str, Any], policy: dict[str, Any]
) -> None:
    try:
        found = apply_rules(SUITE, RunRules(policy=policy, weights=weights))
    except DomainError:
        return
    assert all(one["old"] != one["new"] for one in found.changed)
    assert all(math.isfinite(node.weight) for _, node in walk(found.root))


METRICS = {
    **LEAF,
    "name": "work",
    "kind": "metrics_judge",
    "config": {
        "metrics": [
            "tool_routing",
            {"key": "empathy", "name": "Empathy", "weight": 0.2, "description": "Kind."},
        ]
    },
}
WORK = SUITE.replace(evaluators=tree(METRICS, CHECK))


def test_a_run_chooses_the_metrics_that_count_and_their_weights() -> None:
    wanted = {"tool_routing": None, "empathy": 0.5, "task_completion": 0.1}
    found = apply_rules(WORK, RunRules(metrics={"work": wanted}))
    judged = dict(walk(found.root))["work"].config["metrics"]
    assert [(one["key"], one["weight"], one["binary"]) for one in judged] == [
        ("empathy", 0.5, False),
        ("task_completion", 0.1, True),
    ]
    assert judged[0]["description"] == "Kind."
    assert [(one["evaluator"], one["name"], one["old"], one["new"]) for one in found.changed] == [
        ("work", "metric.tool_routing", 0.15, None),
        ("work", "metric.empathy", 0.2, 0.5),
        ("work", "metric.task_completion", None, 0.1),
    ]
    # The weight that the suite has is no change, nor is leaving out what it does not have.
    same = {"empathy": 0.2, "response_delivery": None}
    assert apply_rules(WORK, RunRules(metrics={"work": same})).changed == ()


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"work": {"luck": 1.0}}, "“work” has no metric 'luck'; there are tool_routing, empathy, "),
        ({"work": {"tool_routing": None, "empathy": None}}, "“work”: no metric counts"),
        ({"work": {"tool_routing": 0.0, "empathy": 0.0}}, "work.*weights of the metrics sum to 0"),
        ({"work": {"empathy": math.nan}}, "work.*weight"),
        ({"mentions_refund": {"empathy": 1.0}}, "“mentions_refund” is not a metrics judge"),
        ({"gone": {"empathy": 1.0}}, "no evaluator “gone”"),
    ],
)
def test_metrics_that_cannot_be_scored_are_refused_by_name(
    metrics: dict[str, dict[str, float | None]], said: str
) -> None:
    with pytest.raises(DomainError, match=said):
        apply_rules(WORK, RunRules(metrics=metrics))
