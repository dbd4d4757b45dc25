"""A comparison of runs that judged the same outputs: it says first that only the judging differs."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from runs.compare.comparison import Comparison, build_comparison
from runs.compare.conclusion import conclude
from runs.compare.report import comparison_report
from runs.compare.rules import Tolerances
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.running.judging_again import judge_again
from runs.running.judging_plan import JudgingRequest
from runs.running.retrying import retry_results
from tests.support.factories import change_suite
from tests.support.scored_runs import CHECK, EXACT, STYLE, finished_run
from tests.support.trees import tree

pytestmark = pytest.mark.django_db(transaction=True)
LOOSE = {**EXACT, "config": {"match": "contains"}}


def judged_again(source: Run) -> Run:
    change_suite(source.suite, tree=tree(CHECK, LOOSE, STYLE))
    [run] = judge_again([source], JudgingRequest(), by=None)
    work_on_run(run.pk)
    run.refresh_from_db()
    return run


def compare(baseline: Run, candidate: Run) -> Comparison:
    return build_comparison(baseline, candidate, Tolerances())


def test_the_first_line_says_that_only_the_judging_differs_and_how(
    viewer_client: Client, editor_client: Client
) -> None:
    source = finished_run()
    run = judged_again(source)
    comparison = compare(source, run)
    conclusion = conclude(comparison)
    assert (conclusion.state, conclusion.headline) == ("inconclusive", "Only the judging differs")
    first = comparison_report(comparison, conclusion).splitlines()[0]
    assert first.startswith("Only the judging differs. Cases: 1 removed (“C-4”); evaluators: ")
    assert "exact" in first
    forced = conclude(comparison, is_forced=True)
    assert forced.headline != conclusion.headline
    names = {
        name: f"{one.suite.slug}:{one.number}"
        for name, one in zip(("baseline", "candidate"), (source, run), strict=True)
    }
    page = viewer_client.get(reverse("runs:compare"), names).content.decode()
    assert "<strong>Only the judging differs.</strong> Cases: 1 removed" in page
    assert "Only the judging differs: both judge the same outputs" in page
    answer = viewer_client.get(
        reverse("runs:api-comparison-report"),
        {"baseline_run_id": names["baseline"], "candidate_run_id": names["candidate"]},
    )
    assert answer.json()["text"].startswith(first)
    assert answer.json()["conclusion"].startswith("Only the judging differs: ")
    for level, has_names in (("figures", False), ("outputs", True)):
        fields = {"kind": "comparison", "detail_level": level, **names}
        shared = editor_client.get(reverse("runs:share-new"), fields).content.decode()
        assert "<strong>Only the judging differs.</strong>" in shared
        assert ("C-4" in shared) is has_names


def test_two_runs_that_judged_one_source_share_its_outputs_until_the_target_answers_again() -> None:
    source = finished_run()
    first, second = judged_again(source), judged_again(source)
    assert compare(first, second).is_of_same_outputs
    retry_results(source, asked_by=None, which="failed", keep_output=True)
    work_on_run(source.pk)
    source.refresh_from_db()
    assert compare(source, second).is_of_same_outputs
    retry_results(source, asked_by=None, which="failed")
    work_on_run(source.pk)
    source.refresh_from_db()
    assert not compare(source, second).is_of_same_outputs
    assert compare(first, second).is_of_same_outputs
    assert not compare(judged_again(source), second).is_of_same_outputs


def test_a_run_that_judges_a_judged_run_again_has_the_outputs_of_the_first() -> None:
    source = finished_run()
    first = judged_again(source)
    second, beside = judged_again(first), judged_again(source)
    for other in (first, source, beside):
        assert compare(other, second).is_of_same_outputs
    retry_results(source, asked_by=None, which="failed")
    work_on_run(source.pk)
    source.refresh_from_db()
    assert not compare(source, second).is_of_same_outputs
    assert compare(beside, second).is_of_same_outputs
    assert not compare(judged_again(source), second).is_of_same_outputs
