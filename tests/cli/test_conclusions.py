"""How a run that is over ends a command: exit code and summary file."""

from __future__ import annotations

import json

import pytest

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.results.documents import run_file_document
from runs.results.runs import conclude
from runs.summary.cases import ExecutionRecord
from runs.summary.run import summarise
from tests.support.factories import make_run

pytestmark = pytest.mark.django_db

GOOD, BAD = ("scored", Verdict.PASS, 0.9), ("scored", Verdict.FAIL, 0.2)
WRONG = ("error", None, None)


def ended(*rows, cases_pass_threshold=0.5, metrics_pass_threshold=0.5, **columns):
    policy = PolicySpec(
        cases_pass_threshold=cases_pass_threshold, metrics_pass_threshold=metrics_pass_threshold
    )
    executions = [
        ExecutionRecord(f"C-{number}", status, verdict, score)
        for number, (status, verdict, score) in enumerate(rows)
    ]
    summary = summarise(executions, policy, is_completed="status" not in columns, seed=1)
    return make_run(summary=summary.as_json(), **columns)


@pytest.mark.parametrize(
    ("rows", "thresholds", "code", "sentence"),
    [
        ((GOOD, GOOD), {}, 0, "Passed: both gates met."),
        ((GOOD, BAD, WRONG), {"cases_pass_threshold": 0.3}, 0, "Passed: both gates met."),
        (
            (GOOD, BAD, BAD),
            {"metrics_pass_threshold": 0.3},
            1,
            "Failed: pass rate 33.3%, needs 50%.",
        ),
        (
            (GOOD, BAD),
            {"metrics_pass_threshold": 0.8},
            1,
            "Failed: mean score 55.0%, needs 80%.",
        ),
        (
            (BAD, BAD),
            {},
            1,
            "Failed: mean score 20.0%, needs 50%; pass rate 0.0%, needs 50%.",
        ),
        # One pass of three, and the errors might have been the two that are missing.
        (
            (GOOD, WRONG, WRONG),
            {},
            3,
            "Not evaluated: pass rate 33.3%, needs 50%, but only because of errors in 2 of 3 "
            "results. Check the errors and rerun those results.",
        ),
        # However the error had ended, too few pass.
        (
            (GOOD, BAD, BAD, BAD, WRONG),
            {"metrics_pass_threshold": 0.1},
            1,
            "Failed: pass rate 20.0%, needs 50%.",
        ),
        ((WRONG, WRONG), {}, 3, "Not evaluated: none of 2 results scored."),
    ],
)
def test_the_exit_code_distinguishes_failed_from_not_evaluated(rows, thresholds, code, sentence):
    conclusion = conclude(ended(*rows, **thresholds))
    assert (conclusion.code, conclusion.sentence) == (code, sentence)


@pytest.mark.parametrize(
    ("status", "reason", "sentence"),
    [
        ("stopped", "Cancelled by ada", "Not evaluated: Cancelled by ada."),
        ("budget_reached", "$5 of $5 is spent.", "Not evaluated: $5 of $5 is spent."),
        ("failed", "", "Not evaluated: Failed."),
        ("queued", "", "Not evaluated: the workers continue this run."),
    ],
)
def test_a_run_that_is_not_completed_was_not_evaluated(status, reason, sentence):
    run = ended(GOOD, GOOD, status=status, status_reason=reason)
    assert (conclude(run).code, conclude(run).sentence) == (3, sentence)


def test_the_summary_file_has_every_figure_as_json():
    run = ended(GOOD, BAD, metrics_pass_threshold=0.9)
    document = run_file_document(run, url="http://here/run").as_json()
    assert json.loads(json.dumps(document)) == document
    assert (document["suite"], document["number"], document["exit_code"]) == (run.suite.slug, 1, 1)
    assert document["url"] == "http://here/run"
    assert document["summary"]["cases_pass_rate_pct"] == 50.0


def test_costs_in_the_file_are_exact_text():
    run = ended(GOOD)
    run.summary["means"] |= {"run_cost_usd": "12345.000000001", "evaluation_cost_usd": None}
    run.save()
    document = run_file_document(run, url="http://here/run").as_json()
    means = document["summary"]["means"]
    assert (means["run_cost_usd"], means["evaluation_cost_usd"]) == ("12345.000000001", None)
