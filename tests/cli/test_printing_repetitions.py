"""What files and the closing table say of repetitions: case by case, and over the run."""

from __future__ import annotations

import json

import pytest

from runs.finishing import summarise_run
from runs.models.runs import Run
from runs.results.documents import case_lines, run_file_document
from runs.results.files import junit_run
from runs.results.report import summary_table
from runs.results.runs import conclude
from tests.support.factories import make_result, make_run, make_score, make_suite
from tests.support.statements import statements_reading

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """Give a run of two cases, twice each: one is flaky, the other errored once."""
    run = make_run(suite=make_suite(cases=2), repetitions=2)
    first, second = run.suite.cases.all()
    for number, (case, end) in enumerate(
        (
            (first, {"verdict": "pass", "score": 0.9}),
            (first, {"verdict": "fail", "score": 0.3}),
            (second, {"verdict": "pass", "score": 0.8}),
            (second, {"status": "error"}),
        )
    ):
        repetition, latency = number % 2 + 1, {"latency_ms": 100 * (number + 1)}
        result = make_result(run=run, case=case, repetition=repetition, **end, **latency)
        if number < 2:
            dimensions = [{"key": "task", "name": "Task", "judge": 6 + number, "final": 6 + number}]
            final = {"final_score": 6.5 + number, "final_dimensions": {"task": 6 + number}}
            details = {"dimensions": dimensions, "final_evaluation": final}
            make_score(result=result, path="h", score=0.6, kind="hybrid_judge", details=details)
    assert summarise_run(run.pk)
    run.refresh_from_db()
    return run


def test_the_summary_table_shows_figures_over_repetitions(run: Run) -> None:
    table = summary_table(run)
    assert "Passed every time     0 of 2 cases (0.0%)" in table
    assert "Passed at least once  2 of 2 cases (100.0%)" in table
    assert "Flaky                 1 of 1 case (100.0%), verdicts vary" in table
    assert "Mean spread           0.60 of scores, over 1 case" in table


def test_the_file_of_cases_has_every_case_over_its_repetitions(run: Run) -> None:
    flaky, errored = map(json.loads, case_lines([run]))
    expected = {
        "run": f"{run.suite.slug}#1",
        "target": run.target_name,
        "case": "C-001",
        "verdict": "borderline",
        "results": 2,
        "scored": 2,
        "passed": 1,
        "all_k_passed": False,
        "any_k_passed": True,
        "flaky": True,
        "spread": 0.6,
        "final_score": 7.0,
        "final_dimensions": {"task": 6.5},
        "total_cost_usd": "0.032000000",
    }
    assert {name: flaky[name] for name in expected} == expected
    means = {
        "score": 0.6,
        "latency_ms": 150,
        "dimensions": {"task": 6.5},
        "run_cost_usd": "0.024000000",
    }
    assert {name: flaky["means"][name] for name in means} == means
    assert (errored["verdict"], errored["scored"], errored["spread"]) == ("pass", 1, None)
    assert errored["all_k_passed"] is False
    assert errored["final_score"] is None


def test_each_batch_of_cases_reads_the_scores_of_its_results_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(case_lines([run]))
    monkeypatch.setattr("runs.results.documents.CHUNK", 1)
    with statements_reading("runs_score") as statements:
        assert list(case_lines([run])) == whole
    assert statements
    assert not [sql for sql, _ in statements if "run_id" in sql]


def test_the_summary_has_the_figures_over_repetitions(run: Run) -> None:
    document = run_file_document(run, url="http://here").as_json()
    assert document["url"] == "http://here"
    assert document["summary"]["means"]["dimensions"] == {"task": 6.5}
    assert document["final_evaluation"] == {
        "final_score": 7.0,
        "final_dimensions": {"task": 6.5},
        "scored_results": 2,
    }
    assert document["over_repetitions"] == {
        "all_k_passed": 0,
        "any_k_passed": 2,
        "finished_cases": 2,
        "flaky": 1,
        "comparable_cases": 1,
        "mean_spread": 0.6,
        "spread_cases": 1,
    }


def test_a_junit_file_has_the_repetitions_in_its_properties(run: Run) -> None:
    properties = junit_run(run, conclude(run), url="http://here").properties
    assert (properties["all_k_passed"], properties["any_k_passed"], properties["flaky"]) == (
        *("0 of 2", "2 of 2", "1 of 1"),
    )
    assert (properties["repetitions"], properties["mean_spread"]) == ("2", "0.6")


def test_a_run_without_repetitions_shows_none() -> None:
    run = make_run(suite=make_suite(cases=1))
    make_result(run=run, case=run.suite.cases.get(), verdict="pass", score=1.0)
    assert summarise_run(run.pk)
    run.refresh_from_db()
    assert "Flaky" not in summary_table(run)
    assert "flaky" not in junit_run(run, conclude(run), url="").properties
    assert run_file_document(run, url="").over_repetitions is None
