"""Which scores stand when outputs are judged again: a score is never taken for the answer to another question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from evaluators.kinds import all_kinds, rules_versions, text_check
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.engine.kept_scores import JudgedTree, KeptScores, keep_scores
from runs.engine.plan import Plan, TargetPlan, read_plan
from tests.support.trees import CHECK, JUDGED, LEAF, tree

SCRIPT = {
    **LEAF,
    "name": "own",
    "kind": "script",
    "config": {"command": ["python", "checks/check.py"]},
}
FILES = {"checks/check.py": "1", "golden/answers.json": "1", "prompts/tone.md": "1"}
JUDGE = {"model_id": "m", "reply_mode": "text", "parameters": {}}


def judged_tree(
    *nodes: Mapping[str, Any],
    files: Mapping[str, str] = FILES,
    url: str = "http://gateway:80/v1",
    **root: Any,
) -> JudgedTree:
    spec = EvaluatorSpec.model_validate(tree(*nodes, **root))
    models = {"judge": {**JUDGE, "base_url": url}}
    target = TargetPlan("agent", "recorded")
    return JudgedTree(Plan({}, PolicySpec(), spec, target, "judge", models, files), spec)


def keep(before: JudgedTree, after: JudgedTree) -> KeptScores:
    return keep_scores(before, after, all_kinds())


def test_a_script_which_may_read_every_file_of_the_suite_is_run_again_for_any_that_changed() -> (
    None
):
    prompt = {**JUDGED, "config": {"prompt": "./prompts/tone.md"}}
    whole = {"type": "code_judge", "command": ["python", "checks/check.py"]}
    before = judged_tree(SCRIPT, prompt, CHECK, aggregator=whole)
    assert set(keep(before, before).origins) == {"", "own", "right", "mentions_refund"}
    after = judged_tree(
        SCRIPT, prompt, CHECK, aggregator=whole, files={**FILES, "golden/answers.json": "2"}
    )
    kept = keep(before, after)
    assert set(kept.origins) == {"right", "mentions_refund"}
    assert kept.reasons == dict.fromkeys(("", "own"), "its files changed")


def test_a_script_which_reads_its_name_is_run_again_under_another() -> None:
    after = judged_tree({**SCRIPT, "name": "other"}, {**JUDGED, "name": "correct"})
    kept = keep(judged_tree(SCRIPT, JUDGED), after)
    assert (kept.origins, kept.reasons) == ({"correct": "right"}, {"other": "new"})


def test_a_second_judge_with_the_same_question_does_not_get_the_score_of_the_first() -> None:
    twin, moved = {**JUDGED, "name": "again"}, {**JUDGED, "name": "anew"}
    kept = keep(judged_tree(JUDGED), judged_tree(twin, JUDGED))
    assert (kept.origins, kept.reasons) == ({"right": "right"}, {"again": "new"})
    kept = keep(judged_tree(JUDGED), judged_tree(twin, moved))
    assert (kept.origins, kept.reasons) == ({"again": "right"}, {"anew": "new"})


def test_a_model_at_another_path_of_a_gateway_is_another_judge() -> None:
    first, second = (f"https://gateway/openai/deployments/{name}" for name in ("small", "large"))
    kept = keep(judged_tree(JUDGED, url=first), judged_tree(JUDGED, url=second))
    assert kept.reasons == {"right": "another judge"}
    assert keep(judged_tree(JUDGED, url=first), judged_tree(JUDGED, url=f"{first}/")).origins


def test_an_agent_that_judges_is_the_same_whoever_else_judges() -> None:
    reader = {**LEAF, "name": "reader", "kind": "agent_judge", "config": {"agent": "reader"}}
    before, after = judged_tree(reader, JUDGED), judged_tree(reader, JUDGED)
    agents = {"reader": TargetPlan("reader", "http", {"url": "http://reader/"})}
    models = {**before.plan.models, "other": {**JUDGE, "base_url": "http://other/v1"}}
    first = replace(before, plan=replace(before.plan, agents=agents))
    second = replace(after, plan=replace(after.plan, agents=agents, models=models, judge="other"))
    kept = keep(first, second)
    assert (kept.origins, kept.reasons) == ({"reader": "reader"}, {"right": "another judge"})
    moved = {"reader": replace(agents["reader"], config={"url": "http://elsewhere/"})}
    kept = keep(first, replace(first, plan=replace(first.plan, agents=moved)))
    assert kept.reasons == {"reader": "another judge"}


def test_a_model_at_another_port_of_a_machine_is_another_judge_and_the_usual_port_is_none() -> None:
    def kept(first: str, second: str) -> Mapping[str, str]:
        return keep(judged_tree(JUDGED, url=first), judged_tree(JUDGED, url=second)).reasons

    another = {"right": "another judge"}
    assert kept("http://gpu:8000/v1", "http://gpu:8001/v1") == another
    assert kept("http://gpu:80/v1", "http://GPU/v1") == {}
    assert kept("https://gpu:443/v1", "https://key@gpu/v1") == {}
    assert kept("https://gpu:80/v1", "https://gpu/v1") == another


def test_scores_of_a_kind_that_changed_its_rules_are_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert rules_versions() == {}
    monkeypatch.setattr(text_check, "RULES_VERSION", 2, raising=False)
    before = judged_tree(JUDGED, CHECK)
    after = replace(before, plan=replace(before.plan, rules=rules_versions()))
    kept = keep(before, after)
    assert kept.reasons == {"mentions_refund": "the rules of its kind changed"}
    assert keep(after, after).reasons == {}
    # The snapshot of a run has it.
    stored = {**after.plan.as_json(), "judge": None}
    assert read_plan(json.loads(json.dumps(stored))).rules == {"text_check": 2}
    assert "rules" not in before.plan.as_json()


def test_a_pass_mark_makes_no_score_stale_not_even_that_of_a_judge_over_the_evaluator() -> None:
    whole = {"type": "llm_judge", "prompt": "Is it good?"}
    before = judged_tree(JUDGED, tree(CHECK), aggregator=whole)
    inner = tree({**CHECK, "pass_mark": 0.5})
    kept = keep(before, judged_tree({**JUDGED, "pass_mark": 0.9}, inner, aggregator=whole))
    assert not kept.reasons
    assert "" in kept.origins
