"""Drift of a judge on the charts of a suite: the same outputs, judged again by the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import scipy
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from evaluators.scoring.types import Verdict
from runs.charts.drift import drift_picture
from runs.finishing import summarise_run
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.reviews.services import ReviewDecision, ask_for_review, decide
from tests.support.factories import make_call, make_scored_run, make_suite, make_user

pytestmark = pytest.mark.django_db
FIRST = ["pass"] * 8 + ["fail"] * 4


def judge(
    suite: Suite, verdicts: Sequence[str], version: str, source: Run | None = None, **snapshot: Any
) -> Run:
    """Return a finished run whose judge answered by a version; with a source it judged those outputs again."""
    run = make_scored_run(
        verdicts=verdicts,
        suite=suite,
        source_run=source,
        judge_name="Juno",
        summary=None,
        leaf_scores=None,
    )
    again = {"judged_again": {"run": source.number, "results": 12}} if source else {}
    Run.objects.filter(pk=run.pk).update(snapshot=run.snapshot | again | snapshot)
    for result in run.results.all() if version else ():
        make_call(result=result, model_name="Juno", version=version)
    assert summarise_run(run.pk)
    return Run.objects.get(pk=run.pk)


def table(suite: Suite) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the table by figure and run."""
    return {(row.cells[0], row.cells[1]): tuple(row.cells[2:]) for row in drift_picture(suite).rows}


def test_judgings_of_the_same_outputs_show_how_the_judge_drifts(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    source = judge(suite, FIRST, "juno fp_a")
    assert "No outputs were judged twice" in drift_picture(suite).empty
    assert "pictures/drift" not in viewer_client.get("/suites/support/charts/").content.decode()
    # Neither other rules nor scores that were taken over are a judging of the same kind.
    judge(suite, FIRST, "juno fp_z", source, judge={"model_id": "other"})
    judge(suite, FIRST, "", source)
    assert drift_picture(suite).drawing is None
    judge(suite, FIRST, "juno fp_a", source)
    with CaptureQueriesContext(connection) as few:
        drift_picture(suite)
    changed = judge(suite, ["pass"] * 6 + ["borderline"] * 2 + ["fail"] * 4, "juno fp_b", source)
    ann = make_user(role="reviewer", name="ann")
    for result in source.results.order_by("position", "pk")[:10]:
        decide(ask_for_review(result, by=ann), ReviewDecision(Verdict.PASS), by=ann)
    with CaptureQueriesContext(connection) as more:
        found = drift_picture(suite)
    assert len(more) == len(few)
    rows = table(suite)
    assert {number for _, number in rows} == {"#1", "#4", "#5"}
    assert rows["Verdicts that changed", "#4"][1] == "0.0"
    judged_by, turned, _, results = rows["Verdicts that changed", "#5"]
    assert (judged_by, turned, results) == ("Juno, juno fp_b", "16.6", "12")
    wilson = scipy.stats.binomtest(2, 12).proportion_ci(method="wilson")
    row = next(row for row in found.rows if row.cells[:2] == ["Verdicts that changed", "#5"])
    assert row.values[4] == f"{wilson.low * 100:.6f} to {wilson.high * 100:.6f}"
    assert rows["Agreement with people", "#1"][1::2] == ("80.0", "10")
    assert rows["Agreement with people", "#5"][1::2] == ("60.0", "10")
    mean = sum(result.score or 0 for result in changed.results.all()) / 12
    assert rows["Mean score", "#5"][1] == f"{int(mean * 1000) / 10}"
    assert found.note.startswith(
        "12 outputs of #1, judged 3 times, in percent. The model behind Juno changed"
    )
    assert "between #4 and #5: juno fp_b in place of juno fp_a" in found.note
    # Cases that are tagged are the anchor set.
    suite.cases.filter(key__in=("C-007", "C-008", "C-009")).update(tags=["anchor"])
    assert table(suite)["Verdicts that changed", "#5"][1::2] == ("66.6", "3")
    # What the source has answered anew since is no longer the same output, even where other rules judged that.
    Run.objects.filter(pk=source.pk).update(snapshot=source.snapshot | {"judge": {"model_id": "x"}})
    later = Run.objects.latest("pk").created_at + timedelta(hours=1)
    source.results.filter(case__key="C-009").update(finished_at=later)
    Result.objects.exclude(run=source).update(keeps_output=True)
    assert table(suite)["Verdicts that changed", "#5"][1::2] == ("100.0", "2")
    page = viewer_client.get("/suites/support/charts/").content.decode()
    assert "/suites/support/pictures/drift/" in page
    picture = viewer_client.get("/suites/support/pictures/drift/").content.decode()
    assert "Drift of the judge" in picture
    file = viewer_client.get("/suites/support/pictures/drift.csv").content.decode()
    assert file.splitlines()[0] == "figure,run,judge,percent,interval,results"
