"""The plan of a run as its snapshot stores it."""

from __future__ import annotations

import json

import pytest

from evaluators.kinds import all_kinds
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import walk
from runs.engine.plan import (
    OUTCOMES_PATH,
    Plan,
    TargetPlan,
    UnreadableSnapshotError,
    case_tree,
    cases_hash,
    content_hash,
    judge_calls,
    judge_models,
    needs_outcomes_call,
    outcome_samples,
    read_plan,
    retry_judge_calls,
)
from tests.support.run_doubles import composite, leaf, make_kind

ROOT = composite("all", leaf("tone", "llm_judge", config={"samples": 3}), leaf("text_check"))
SPEC = {"slug": "mock", "name": "Mock", "model_id": "m", "is_scripted": False}


def make_plan(**facts):
    return Plan(
        **{
            "suite": {"slug": "s", "title": "S", "version": 2},
            "policy": PolicySpec(pass_threshold=0.9),
            "root": ROOT,
            "target": TargetPlan("agent", "chat", {"system_prompt": "Be kind."}, "mock"),
            "judge": "mock",
            "models": {"mock": SPEC},
            "files": {"prompt.md": "abc"},
            "prompts": {"llm_judge": "1"},
            "cases_hash": "def",
        }
        | facts
    )


def test_a_snapshot_reads_back_as_the_plan_it_was_made_from():
    plan = make_plan()
    stored = json.loads(json.dumps(plan.as_json()))

    assert read_plan(stored).as_json() == plan.as_json()
    assert read_plan(stored).policy == plan.policy
    assert [path for path, _ in walk(read_plan(stored).root)] == ["", "tone", "text_check"]
    assert stored["judge"] == SPEC


def test_a_plan_without_a_judge_has_none_after_reading_back():
    stored = make_plan(judge="", models={}).as_json()

    assert (stored["judge"], read_plan(stored).judge) == (None, "")


def test_a_snapshot_of_another_version_is_refused():
    with pytest.raises(UnreadableSnapshotError, match="version 2; this is version 1"):
        read_plan({**make_plan().as_json(), "version": 2})


OWN = composite("own", leaf("exact", "expected_output")).as_json()


@pytest.mark.parametrize(
    ("evaluators", "append", "names"),
    [
        (None, False, ["tone", "text_check"]),
        (OWN, False, ["exact"]),
        (OWN, True, ["tone", "text_check", "exact"]),
    ],
)
def test_a_case_is_scored_by_the_suites_tree_its_own_or_both(evaluators, append, names):
    tree = case_tree(ROOT, evaluators, append=append)

    assert [child.name for child in tree.children] == names


def test_hashes_follow_the_content_and_not_the_order_of_keys():
    assert content_hash({"a": 1, "b": "é"}) == content_hash({"b": "é", "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 2})
    assert cases_hash(["1", "2"]) != cases_hash(["2", "1"])


def test_calls_are_counted_before_a_run():
    kinds = all_kinds()

    assert judge_calls(ROOT, kinds) == 3
    assert judge_calls(ROOT, kinds, outcomes_by=PolicySpec()) == 3 + 3


@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        ({}, 0),
        ({"judge_outcomes": "always"}, 1),
        ({"judge_outcomes": "never"}, 0),
        ({"case_gate": "expected_outcomes"}, 1),
        ({"case_gate": "expected_outcomes", "judge_outcomes": "never"}, 1),
    ],
)
def test_outcomes_that_decide_nothing_are_not_judged_beside_checks(policy, calls):
    root = composite("all", leaf("text_check"))

    assert judge_calls(root, all_kinds(), outcomes_by=PolicySpec(**policy)) == calls
    assert judge_calls(root, all_kinds()) == 0


def test_outcomes_beside_a_judge_can_be_left_out():
    policy = PolicySpec(judge_outcomes="never")

    assert judge_calls(ROOT, all_kinds(), outcomes_by=policy) == 3


@pytest.mark.parametrize(
    ("path", "calls"),
    [("tone", 3), ("text_check", 0), ("", 3), ("@outcomes", 3), ("gone", 0)],
)
def test_one_evaluator_alone_makes_its_own_calls_again(path, calls):
    assert retry_judge_calls(ROOT, all_kinds(), path, outcomes_by=PolicySpec()) == calls


def test_a_judge_over_others_is_asked_again_with_each_of_them():
    panel = composite(
        "panel", leaf("tone", "llm_judge"), leaf("check", "text_check"), type="llm_judge"
    )
    root = composite("all", panel, leaf("beside", "llm_judge"))
    kinds = all_kinds()

    assert retry_judge_calls(root, kinds, "panel/check") == 1
    assert retry_judge_calls(root, kinds, "panel/tone") == 2
    assert retry_judge_calls(root, kinds, "panel") == 2
    assert retry_judge_calls(root, kinds, "beside") == 1


def test_the_models_asked_are_the_judge_and_those_evaluators_name():
    named = composite("all", leaf("a", "llm_judge", config={"model": "big"}), leaf("b", "rubric"))

    assert judge_models(named, all_kinds(), default="mock") == {"big", "mock"}
    assert judge_models(named, all_kinds(), default="") == {"big", ""}


def test_no_call_for_outcomes_is_needed_where_an_evaluator_supplies_them():
    async def behave(context):
        raise NotImplementedError

    kinds = {"metrics": make_kind("metrics", behave, supplies_outcomes=True)}

    policy = PolicySpec(judge_outcomes="always")

    assert needs_outcomes_call(ROOT, kinds, policy)
    assert not needs_outcomes_call(composite("all", leaf("metrics")), kinds, policy)


def test_outcomes_beside_the_tree_are_judged_as_often_as_the_evaluator_that_asks_most():
    once = composite("all", leaf("tone", "llm_judge"), leaf("text_check"))
    refused = composite("all", leaf("tone", "llm_judge", config={"samples": "many"}))

    assert [outcome_samples(root) for root in (once, refused, ROOT)] == [1, 1, 3]
    assert judge_calls(once, all_kinds(), outcomes_by=PolicySpec()) == 1 + 1
    assert retry_judge_calls(once, all_kinds(), OUTCOMES_PATH, outcomes_by=PolicySpec()) == 1
