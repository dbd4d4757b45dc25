"""What-if asked of runs in the database: read in a fixed number of queries, equal to what is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, TreeError
from evaluators.scoring.types import DomainError
from runs.models import stored as packing
from runs.models.results import EvaluatorScore, Result
from runs.models.runs import Run, RunStatus
from runs.what_if import stored
from runs.what_if.page import answer_what_if, askable_runs, edited_rules
from runs.what_if.stored import RunNotEndedError
from tests.support.scored_runs import (
    CHECK,
    EXACT,
    NO_CARD,
    SHORT,
    STYLE,
    TREE,
    finished_run,
    rules_of,
)
from tests.support.trees import tree

pytestmark = pytest.mark.django_db(transaction=True)


def states(found):
    return {flip.key: (flip.before.state, flip.after.state) for flip in found.flips}


def test_the_same_rules_give_what_is_stored():
    run = finished_run(repetitions=2)
    found = answer_what_if(run, rules_of(run))
    assert (found.flips, found.stale, found.fixed) == ((), (), 0)
    assert found.before == found.after
    assert found.before.distribution == {
        name: count for name, count in run.summary["distribution"].items() if name != "total"
    }
    assert found.before.cases_gate.share == run.summary["cases_gate"]["share"]
    assert found.before.metrics_gate.share == run.summary["metrics_gate"]["share"]
    assert (found.before.executions, found.before.errors, found.unanswered) == (10, 2, 2)


def test_settings_weights_and_bands_move_it_without_new_calls():
    run = finished_run()
    trimmed = {**EXACT, "config": {"match": "exact", "trim": True}}
    patient = {**STYLE, "children": [{**SHORT, "config": {"max_duration_ms": 120}}, NO_CARD]}
    root = EvaluatorSpec.model_validate({**TREE, "children": [CHECK, trimmed, patient]})
    found = answer_what_if(run, rules_of(run, root=root, policy=PolicySpec(pass_threshold=0.9)))
    assert found.is_exact
    before = {r.case.key: (r.verdict, r.score) for r in run.results.select_related("case")}
    assert before["C-1"] == ("borderline", 0.75)
    assert states(found) == {"C-1": ("borderline", "pass")}
    assert found.flips[0].after.decided_by == "1.00 ≥ 0.90"


def test_a_gate_that_lets_through_asks_for_calls_that_were_never_made():
    run = finished_run()
    gate = {"type": "safety_gate", "required": ["mentions_refund"], "gate_threshold": 0.0}
    root = EvaluatorSpec.model_validate({**TREE, "config": {"aggregator": gate}})
    found = answer_what_if(run, rules_of(run, root=root))
    assert {
        one.path: (one.instead, one.results, one.total) for one in found.stale
    } == dict.fromkeys(("exact", "style/short", "style/no_card"), ("open", 1, 4))
    assert states(found) == {"C-3": ("fail", "waiting")}


def test_it_takes_few_queries_however_many_results_there_are(django_assert_max_num_queries):
    run = finished_run()
    root = EvaluatorSpec.model_validate(
        {**TREE, "children": [CHECK, {**EXACT, "config": {"match": "contains"}}, STYLE]}
    )
    run = Run.objects.select_related("suite").defer("leaf_scores").get(pk=run.pk)
    with django_assert_max_num_queries(4):
        assert answer_what_if(run, rules_of(run, root=root)).is_exact


def test_scores_packed_by_another_version_are_read_from_the_rows(monkeypatch):
    run = finished_run()
    expected = answer_what_if(run, rules_of(run, policy=PolicySpec(pass_threshold=0.7)))
    run.leaf_scores = None
    stored.KEPT.values.clear()
    assert answer_what_if(run, rules_of(run, policy=PolicySpec(pass_threshold=0.7))) == expected
    monkeypatch.setattr(packing, "VERSION", 1)
    run.leaf_scores = packing.pack_leaf_scores(run.pk)
    monkeypatch.undo()
    stored.KEPT.values.clear()
    assert answer_what_if(run, rules_of(run, policy=PolicySpec(pass_threshold=0.7))) == expected


def test_what_is_kept_of_one_run_serves_no_other():
    one, other = finished_run(), finished_run(("We cannot help",))
    assert answer_what_if(one, rules_of(one)).before.executions == 5
    assert answer_what_if(other, rules_of(other)).before.executions == 1
    assert len(stored.KEPT.values) <= stored.MAX_KEPT


def test_cases_follow_their_own_evaluators():
    alone = {"evaluators": tree({**CHECK, "name": "own"})}
    joined = {
        "evaluators": tree({**CHECK, "name": "beyond", "weight": 4.0}),
        "evaluators_append": True,
    }
    run = finished_run(own={0: alone, 1: joined})
    assert answer_what_if(run, rules_of(run)).fixed == 0
    root = EvaluatorSpec.model_validate(
        {**TREE, "children": [CHECK, {**EXACT, "weight": 9.0}, STYLE]}
    )
    found = answer_what_if(run, rules_of(run, root=root))
    assert "C-0" not in states(found)
    assert states(found)["C-1"] == ("pass", "fail")
    assert found.is_exact


@pytest.mark.writes_results
def test_a_verdict_that_a_file_told_is_kept_and_counted():
    run = finished_run()
    Result.objects.filter(run=run, case__key="C-0").update(verdict="fail", is_forced=True)
    found = answer_what_if(run, rules_of(run, policy=PolicySpec(pass_threshold=0.99)))
    stored.KEPT.values.clear()
    found = answer_what_if(run, rules_of(run, policy=PolicySpec(pass_threshold=0.99)))
    assert found.fixed == 1
    assert "C-0" not in states(found)


def test_a_run_that_is_on_cannot_be_asked():
    run = finished_run()
    Run.objects.filter(pk=run.pk).update(status=RunStatus.RUNNING)
    run.refresh_from_db()
    with pytest.raises(RunNotEndedError, match="still running"):
        answer_what_if(run, rules_of(run))
    assert askable_runs(run.suite) == []


def test_an_edited_suite_tells_where_its_evaluators_came_from():
    run = finished_run()
    content = {
        "policy": {**run.snapshot["policy"], "pass_threshold": 0.7},
        "judge": "",
        "evaluators": {
            **TREE,
            "origin": "",
            "children": [
                {**CHECK, "origin": "mentions_refund"},
                {**EXACT, "name": "letter", "origin": "exact"},
                {
                    **STYLE,
                    "origin": "style",
                    "children": [
                        {**SHORT, "origin": "style/short"},
                        {**NO_CARD, "origin": "style/no_card"},
                    ],
                },
            ],
        },
    }
    rules, origins = edited_rules(run, content)
    found = answer_what_if(run, rules, origins=origins)
    assert found.is_exact
    assert states(found) == {"C-1": ("borderline", "pass")}
    assert rules.files == run.snapshot["files"]
    with pytest.raises(TreeError, match="sum to 0"):
        edited_rules(run, {**content, "evaluators": {**tree(replace_weight(CHECK))}})
    with pytest.raises(DomainError, match="pass_threshold"):
        edited_rules(run, {**content, "policy": {"pass_threshold": 7}})


def replace_weight(node):
    return {**node, "weight": 0.0}


def test_stored_parts_that_cannot_be_read_keep_the_score():
    run = finished_run()
    EvaluatorScore.objects.filter(result__run=run, path="exact").update(details={"matches": None})
    root = EvaluatorSpec.model_validate(
        {**TREE, "children": [CHECK, {**EXACT, "config": {"match": "contains"}}, STYLE]}
    )
    (stale,) = answer_what_if(run, rules_of(run, root=root)).stale
    assert (stale.path, stale.instead, stale.why) == (
        "exact",
        "kept",
        "Its stored parts cannot be read.",
    )
    assert replace(stale, results=3) == stale
