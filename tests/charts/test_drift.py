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
from runs.charts import drift
from runs.charts.drift import EVALUATOR_PICTURES, drift_picture
from runs.finishing import summarise_run
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.reviews.services import ReviewDecision, ask_for_review, decide
from tests.api.site import get
from tests.support.factories import (
    make_call,
    make_score,
    make_scored_run,
    make_suite,
    make_user,
)
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db
CHARTS, API = "/suites/support/charts/", "/api/suites/support/agreement/drift"
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
    # Scores that were aggregated again, or judged only to measure the judge, are no judging.
    other = make_suite(slug="other")
    first = judge(other, FIRST, "juno fp_a")
    make_scored_run(verdicts=FIRST, suite=other, source_run=first)
    judge(other, FIRST, "", first, measures_judge={"times": 1, "results": 12, "of": 12})
    assert "pictures/drift" not in viewer_client.get("/suites/other/charts/").content.decode()
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


RULES = tree(JUDGED, {**JUDGED, "name": "rude", "negate": True}, CHECK)


def test_each_evaluator_that_asks_a_judge_drifts_by_itself_in_pictures_files_and_api(
    viewer_client: Client,
) -> None:
    suite = make_suite(slug="support")
    nothing = get(viewer_client, API, "/api/suites/{slug}/agreement/drift")
    assert (nothing["outputs_of"], nothing["subjects"]) == (None, [])
    source = judge(suite, ["pass"] * 4, "juno fp_a", evaluators=RULES)
    again = judge(suite, ["pass"] * 3 + ["fail"], "juno fp_b", source, evaluators=RULES)
    for run, right in ((source, (1, 1, 1, 0.7)), (again, (1, 1, 0.7, 0))):
        for place, result in enumerate(run.results.order_by("position", "pk")):
            make_score(result=result, path="right", score=right[place])
            # Inverted: 0.8 passes. One was taken over from the source.
            details = {"kept": {"run": 1}} if run == again and place == 3 else {}
            make_score(result=result, path="rude", score=0.2, details=details)
            make_score(result=result, path="mentions_refund", score=0, kind="text_check")
    ann = make_user(role="reviewer", name="ann")
    for result in source.results.order_by("position", "pk")[:3]:
        decide(ask_for_review(result, by=ann), ReviewDecision(Verdict.PASS), by=ann)

    found = get(viewer_client, API, "/api/suites/{slug}/agreement/drift")
    assert (found["outputs_of"], found["outputs"], found["only_anchor"]) == (1, 4, False)
    assert "juno fp_b in place of juno fp_a" in found["model_changes"][0]
    assert [subject["evaluator"] for subject in found["subjects"]] == ["", "right", "rude"]
    whole, right_one, rude = (subject["judgings"] for subject in found["subjects"])
    assert whole[1]["changed"]["share"] == 0.25
    assert right_one[0]["changed"] is None
    # 0.7 is borderline: two verdicts of four changed, two of three people's decisions are met.
    wilson = scipy.stats.binomtest(2, 4).proportion_ci(method="wilson")
    assert right_one[1]["changed"] == {
        "share": 0.5,
        **{"low": pytest.approx(wilson.low), "high": pytest.approx(wilson.high), "of": 4},
    }
    assert right_one[1]["score"]["mean"] == pytest.approx(0.675)
    assert right_one[1]["agreement"]["share"] == pytest.approx(2 / 3)
    assert [(entry["score"]["mean"], entry["score"]["of"]) for entry in rude] == [
        *((pytest.approx(0.8), 4), (pytest.approx(0.8), 3))
    ]
    assert rude[1]["changed"]["of"] == 3

    for name, shown in (
        ("drift-scores", [("right", "#2", "67.5", "4"), ("rude", "#1", "80.0", "4")]),
        ("drift-changes", [("right", "#2", "50.0", "4"), ("rude", "#2", "0.0", "3")]),
        ("drift-agreement", [("right", "#1", "100.0", "3"), ("rude", "#2", "100.0", "3")]),
    ):
        rows = EVALUATOR_PICTURES[name](suite).rows
        cells = [(row.cells[0], row.cells[1], row.cells[3], row.cells[5]) for row in rows]
        assert set(shown) <= set(cells), (name, cells)
        page = viewer_client.get(f"/suites/support/pictures/{name}/").content.decode()
        assert "by evaluator" in page
        assert f"/suites/support/pictures/{name}/" in viewer_client.get(CHARTS).content.decode()
        file = viewer_client.get(f"/suites/support/pictures/{name}.csv").content.decode()
        assert file.splitlines()[0] == "evaluator,run,judge,percent,interval,results"


def test_of_many_evaluators_those_that_changed_most_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drift, "MAX_DRAWN", 1)
    suite = make_suite(slug="support")
    source = judge(suite, ["pass"] * 2, "juno fp_a", evaluators=RULES)
    again = judge(suite, ["pass"] * 2, "juno fp_a", source, evaluators=RULES)
    for run, rude in ((source, 0), (again, 1)):
        for result in run.results.all():
            make_score(result=result, path="right", score=1)
            make_score(result=result, path="rude", score=rude)
    picture = EVALUATOR_PICTURES["drift-scores"](suite)
    assert picture.note.startswith("The 1 of 2 that changed most. 2 outputs of #1")
    assert picture.drawing is not None
    assert len(picture.drawing.spots) == 2
    assert {row.cells[0] for row in picture.rows} == {"right", "rude"}
    assert "No result of them was reviewed" in EVALUATOR_PICTURES["drift-agreement"](suite).empty
