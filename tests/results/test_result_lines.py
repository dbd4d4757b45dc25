"""What the lines of a results file say of each execution."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evaluators.kinds import read_config
from runs.execution.run_worker import work_on_run
from runs.formats.results_writing import write_results
from runs.results import files
from runs.results.files import result_lines
from runs.results.result_page import result_page
from runs.running.services import start_run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, LEAF, tree

pytestmark = pytest.mark.django_db

BOTH = {
    **LEAF,
    "name": "both",
    "kind": "composite",
    "weight": 2.0,
    "config": {"aggregator": {"type": "minimum"}},
    "children": [CHECK, {**CHECK, "name": "no_refund", "negate": True, "weight": 3.0}],
}


def lines(run):
    return [json.loads(text) for text in write_results(result_lines(run))]


@pytest.mark.django_db(transaction=True)
def test_a_run_is_told_as_it_was_scored():
    suite = make_suite(slug="refunds", tree=tree(CHECK, BOTH))
    output = {"output": "a refund", "latency_ms": 90, "cost_usd": "0.25"}
    make_case(suite=suite, key="C-1", recorded_output=output)
    make_case(suite=suite, key="C-2")
    run = start_run(suite=suite, target=make_target(name="agent"), started_by=None)
    work_on_run(run.pk)

    answered, missing = lines(run)
    assert (answered["suite"], answered["run"], answered["target"]) == ("refunds", 1, "agent")
    assert (answered["output"], answered["latency_ms"]) == ("a refund", 90)
    assert answered["run_cost_usd"] == 0.25
    # Who was not asked cost nothing, which is known.
    assert (answered["evaluation_cost_usd"], answered["total_cost_usd"]) == (0, 0.25)
    costs = (missing["run_cost_usd"], missing["evaluation_cost_usd"], missing["total_cost_usd"])
    assert costs == (0, 0, 0)
    check, both = answered["evaluator_results"]
    assert (check["name"], check["type"], check["score"]) == ("mentions_refund", "contains", 1.0)
    assert (both["score"], both["weight"], both["aggregator"]) == (0.0, 2.0, {"type": "minimum"})
    negated = both["evaluator_results"][1]
    assert (negated["score"], negated["weight"], negated["negate"]) == (0.0, 3.0, True)
    # What each gave on its own scale, before a negation, a composite too.
    raw = [(one["raw_score"], one["scale"]) for one in (check, both, negated)]
    assert raw == [(1.0, 1), (0.0, 1), (1.0, 1)]
    assert answered["score"] == pytest.approx(1 / 3)
    assert answered["verdict"] == "fail"

    assert (missing["status"], missing["score"], missing["verdict"]) == ("error", None, None)
    assert missing["error"].startswith("Nothing recorded: ")
    assert (missing["error_stage"], missing["evaluator_results"]) == ("target", [])


def test_an_errored_result_keeps_what_its_evaluators_said():
    suite = make_suite()
    run = make_run(suite=suite)
    result = make_result(
        run=run, case=make_case(suite=suite), status="error", error="tone: no reply"
    )
    make_score(result=result, path="tone", score=None, reasoning="no readable reply")
    make_score(result=result, path="refund", score=1.0, kind="text_check")
    [line] = lines(run)
    assert line["score"] is None
    assert [(one["name"], one["status"], one["score"]) for one in line["evaluator_results"]] == [
        ("tone", "unscored", None),
        ("refund", "scored", 1.0),
    ]


def test_a_case_with_evaluators_of_its_own_is_told_by_them():
    suite = make_suite()
    run = make_run(suite=suite)
    case = make_case(suite=suite, evaluators=tree(CHECK))
    make_score(
        result=make_result(run=run, case=case, verdict="pass", score=1.0),
        path="mentions_refund",
        score=1.0,
    )
    assert [one["name"] for one in lines(run)[0]["evaluator_results"]] == ["mentions_refund"]


def test_outcomes_judged_beside_the_tree_are_told_after_it():
    suite = make_suite()
    run = make_run(suite=suite)
    outcomes = [{"text": "Names the time", "passed": True, "justification": "It does"}]
    output = {"text": "In a week.", "outcomes": outcomes}
    result = make_result(
        run=run, case=make_case(suite=suite), verdict="pass", score=0.9, output=output
    )
    make_score(result=result, path="@outcomes", score=1.0, kind="outcomes")
    [line] = lines(run)
    assert line["expected_outcome_results"] == outcomes
    assert (line["evaluator_results"][-1]["name"], line["evaluator_results"][-1]["weight"]) == (
        "@outcomes",
        0.0,
    )


def test_the_queries_do_not_grow_with_the_results_of_a_piece(monkeypatch):
    suite = make_suite()
    run = make_run(suite=suite)

    def queries():
        with CaptureQueriesContext(
            connection,
        ) as seen:
            lines(run)
        return len(seen)

    def add(count):
        for _ in range(count):
            result = make_result(run=run, case=make_case(suite=suite), verdict="pass", score=0.9)
            make_score(result=result, path="tone", score=0.9)

    add(2)
    few = queries()
    add(8)
    assert queries() == few == 8
    monkeypatch.setattr(files, "CHUNK", 4)
    assert queries() == 2 + 6 * 3
    assert len(lines(run)) == 10


@pytest.mark.django_db(transaction=True)
def test_what_a_negated_evaluator_found_counts_alike_in_files_and_on_pages():
    suite = make_suite(slug="refunds", tree=tree({**CHECK, "negate": True}))
    make_case(suite=suite, key="C-1", recorded_output={"output": "nothing"})
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)
    [line] = lines(run)
    page = result_page(run, "C-1", 1)
    assert line["verdict"] == "pass"
    assert line["hits"] == [one.text for one in page.hits] != []
    assert line["misses"] == [one.text for one in page.misses] == []


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 1000},
        {"max_tokens": 1000, "max_duration_ms": 500},
        {"max_duration_ms": 500},
        {"max_cost_usd": 0.1},
    ],
)
def test_the_type_of_execution_metrics_names_no_limit_that_is_not_set(limits):
    config = read_config("execution_metrics", limits).model_dump(mode="json")
    root = tree({**LEAF, "name": "limits", "kind": "execution_metrics", "config": config})
    suite, target = make_suite(slug="limited", tree=root), make_target()
    snapshot = make_snapshot(suite=suite, target=target, tree=root)
    result = make_result(
        run=make_run(suite=suite, target=target, snapshot=snapshot),
        case=make_case(suite=suite),
        verdict="pass",
        score=1.0,
    )
    make_score(result=result, path="limits", kind="execution_metrics", score=1.0)
    [line] = lines(result.run)
    assert line["evaluator_results"][0]["type"] == "execution_metrics"
