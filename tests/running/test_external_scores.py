"""Scores of other tools: stored beside ours, shown, filtered and written, and never part of a verdict."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.access.roles import Scope
from evaluators.models import AuditEntry
from runs.api.bodies import MAX_SCORES
from runs.files.importing_results import import_results
from runs.formats.results_reading import read_results
from runs.formats.results_writing import write_results
from runs.models.removals import RemovalPart
from runs.models.results import ExternalScore, Result
from runs.models.runs import Run
from runs.results import files
from runs.results.files import result_lines, results_csv, run_fingerprint
from runs.retention.queries import Selection
from runs.retention.services import begin_removal, remove_data
from runs.running.retrying import retry_results
from runs.specs.external_scores import MAX_NAMES
from runs.specs.problems import UnreadableFileError
from tests.api.site import Program
from tests.support.factories import again, make_case, make_result, make_run, make_suite

pytestmark = pytest.mark.django_db
PATH = "/runs/{run}/scores"
FAITH = {
    "case": "C-0",
    "source": "ragas",
    "name": "faithfulness",
    "value": 0.25,
    "reason": "Two <b> facts.",
}
STARS = {
    "case": "C-1",
    "source": "people",
    "name": "stars",
    "value": 4,
    "range": [1, 5],
    "label": "good",
}
LABEL = {"case": "C-1", "source": "filter", "name": "toxicity", "label": "toxic"}


@pytest.fixture
def run() -> Run:
    suite = make_suite(slug="support", cases=0)
    run = make_run(suite=suite)
    for number in range(3):
        case = make_case(suite=suite, key=f"C-{number}", position=number)
        make_result(run=run, case=case, verdict="pass", score=0.9, output={"text": "Yes."})
    return run


@pytest.fixture
def program(editor: User) -> Program:
    return Program(editor, Scope.RUN)


def push(program: Program, *scores: Any, status: int = 200) -> Any:
    return program.send("post", PATH, {"scores": list(scores)}, status, run="support:1")


def names(client: Client, filter: str) -> list[str]:
    found = client.get("/api/runs/support:1/results", {"filter": filter})
    assert found.status_code == 200, found.content
    return [row["case"] for row in found.json()["results"]]


def test_scores_are_not_sent_as_arrays_whose_quotes_are_escaped_one_by_one(
    run: Run, program: Program
) -> None:
    reasons = {"reason": 'A "quote" \\ and é'}
    with CaptureQueriesContext(connection) as made:
        push(program, FAITH, STARS)
        push(program, {**FAITH, **reasons}, {**STARS, **reasons})
    sent = [query["sql"] for query in made.captured_queries]
    assert not [sql for sql in sent if "runs_externalscore" in sql and "UNNEST" in sql]
    assert set(ExternalScore.objects.values_list("reason", flat=True)) == {reasons["reason"]}


def test_scores_are_stored_once_and_shown_beside_ours(
    run: Run, program: Program, viewer_client: Client
) -> None:
    before = run_fingerprint(run)
    assert push(program, FAITH, STARS, LABEL) == {"added": 3, "changed": 0, "unchanged": 0}
    assert push(program, LABEL, STARS, FAITH) == {"added": 0, "changed": 0, "unchanged": 3}
    other = {**STARS, "case": "C-0", "value": 1}
    assert push(program, {**FAITH, "value": 0.5}, other) == {
        "added": 1,
        "changed": 1,
        "unchanged": 0,
    }
    run = again(run)
    assert run.external_names == ["filter/toxicity", "people/stars", "ragas/faithfulness"]
    assert (run.pass_count, run_fingerprint(run) == before) == (3, False)

    result = Result.objects.get(case__key="C-1")
    shown = program.send("get", "/results/{result}", result=result.pk)
    assert shown["verdict"] == "pass"
    assert shown["external_scores"] == [
        {
            "source": "filter",
            "name": "toxicity",
            "score": None,
            "value": None,
            "range": [0, 1],
            "label": "toxic",
            "reason": None,
        },
        {
            "source": "people",
            "name": "stars",
            "score": 0.75,
            "value": 4,
            "range": [1, 5],
            "label": "good",
            "reason": None,
        },
    ]
    [line] = [line for line in result_lines(run) if line.eval_id == "C-1"]
    assert json.loads(json.dumps(line.as_json()))["external_scores"] == shown["external_scores"]
    assert (
        "external_scores"
        not in next(line for line in result_lines(run) if line.eval_id == "C-2").as_json()
    )
    rows = list(csv.DictReader("".join(results_csv(run)).splitlines()))
    columns = [f"external:{name}" for name in run.external_names]
    assert [[row[column] for column in columns] for row in rows] == [
        ["", "0.0", "0.5"],
        ["toxic", "0.75", ""],
        ["", "", ""],
    ]

    page = viewer_client.get(reverse("runs:result", args=("support", 1, "C-1", 1))).text
    assert 'data-score="people/stars"' in page
    assert "75.0%" in page
    assert "4 on a scale of 1 to 5" in " ".join(page.split())
    page = viewer_client.get(reverse("runs:result", args=("support", 1, "C-0", 1))).text
    assert "Two &lt;b&gt; facts." in page
    assert (
        "external-scores"
        not in viewer_client.get(reverse("runs:result", args=("support", 1, "C-2", 1))).text
    )


def test_they_are_fields_and_columns_of_the_run(
    run: Run, program: Program, viewer_client: Client
) -> None:
    push(program, FAITH, STARS, {**STARS, "case": "C-0", "value": 1}, LABEL)
    assert names(viewer_client, "stars > 0.5") == ["C-1"]
    assert names(viewer_client, "external.people/stars = none") == ["C-2"]
    assert names(viewer_client, "ragas/faithfulness < 50%") == ["C-0"]
    sorted_ = viewer_client.get("/api/runs/support:1/results", {"sort": "-external.people/stars"})
    assert [row["case"] for row in sorted_.json()["results"]] == ["C-1", "C-0", "C-2"]
    address = reverse("runs:run", args=("support", 1))
    page = viewer_client.get(address, {"columns": "case,external.people/stars"}).text
    assert "External people/stars" in page
    assert "0.75" in page
    spec = files.displayed_table_file(
        slug="support", number=1, query={"columns": "case,external.people/stars"}
    )
    assert "C-1" in "".join(spec.write())
    display = viewer_client.get(reverse("runs:run-display", args=("support", 1))).text
    assert "External scores" in display


@pytest.mark.parametrize(
    ("wrong", "place", "message"),
    [
        ({**FAITH, "case": "C-9"}, "/scores/1", "has no case 'C-9'"),
        (
            {**FAITH, "repetition": 2},
            "/scores/1",
            "has 1 repetition of case C-0, and no repetition 2",
        ),
        ({**FAITH, "value": 1.5}, "/scores/1", "Its value is 1.5, outside 0 to 1. Give its range"),
        ({**FAITH, "value": 1, "range": [1, 1]}, "/scores/1", "the first number must be lower"),
        ({**FAITH, "range": [-1e308, 1e308]}, "/scores/1", "-1e+308 to 1e+308, which is too wide"),
        ({**FAITH, "value": None}, "/scores/1", "neither value nor label"),
        ({**FAITH, "source": "a/b"}, "/scores/1", "has a slash"),
        ({**FAITH, "source": " "}, "/scores/1", "needs a source and a name"),
        ({**FAITH, "reason": "x" * 10_001}, "/scores/1", "10,000 is the limit"),
        (STARS, "/scores/1", "An earlier score of the batch"),
        ({**FAITH, "value": "NaN"}, "/scores/1/value", "finite"),
        ({**FAITH, "note": ""}, "/scores/1/note", "There is no such field"),
    ],
)
def test_what_cannot_be_stored_refuses_the_batch(
    run: Run, program: Program, wrong: Any, place: str, message: str
) -> None:
    problem = push(program, STARS, wrong, status=400)
    assert message in problem["errors"][place][0]
    assert not ExternalScore.objects.exists()


def test_batches_and_names_have_limits(run: Run, program: Program) -> None:
    push(program, *[{**FAITH, "name": f"m{n}"} for n in range(MAX_NAMES)])
    problem = push(program, FAITH, status=400)
    assert "would have 101 different scores; 100 is the limit" in problem["errors"]["/scores/0"][0]
    push(program, *[FAITH] * (MAX_SCORES + 1), status=400)
    assert ExternalScore.objects.count() == MAX_NAMES


@pytest.mark.writes_results
def test_they_go_with_the_output_and_the_texts_that_they_are_about(
    run: Run, program: Program
) -> None:
    push(program, FAITH, {**FAITH, "case": "C-1"})
    first, second = Result.objects.filter(case__key__in=("C-0", "C-1"))
    retry_results(run, asked_by=None, result_ids=[first.pk], keep_output=True)
    assert ExternalScore.objects.count() == 2
    Run.objects.filter(pk=run.pk).update(status="completed")
    Result.objects.filter(run=run).update(status="scored")
    retry_results(again(run), asked_by=None, result_ids=[second.pk])
    assert ExternalScore.objects.get().result_id == first.pk
    Run.objects.filter(pk=run.pk).update(status="completed")
    selection = Selection(RemovalPart.DETAILS, run.suite, runs=(again(run),))
    assert remove_data(begin_removal(selection, by=None, in_background=False).pk)
    assert (ExternalScore.objects.get().reason, ExternalScore.objects.get().value) == ("", 0.25)
    assert push(program, FAITH, status=409)["code"] == "no_more_scores"


def test_a_file_of_results_brings_them_back(run: Run, program: Program, admin: User) -> None:
    push(program, FAITH, STARS, LABEL)
    lines = list(result_lines(again(run)))
    for is_camel in (False, True):
        content = "".join(write_results(lines, is_camel=is_camel)).encode()
        slug = f"copy-{is_camel}".lower()
        read = import_results(content, file="a.jsonl", suite=None, imported_by=admin, slug=slug)
        [copy] = read.runs
        assert again(copy).external_names == again(run).external_names
        kept = [line.external_scores for line in result_lines(again(copy))]
        assert kept == [line.external_scores for line in lines]

    for wrong, words in (
        ({"value": 7}, "Its value is 7, outside 0 to 1"),
        ({"name": ""}, "It needs a source and a name."),
        *(
            ({"value": value}, f"the value {value!r} is not a number")
            for value in ("much", "", [], False)
        ),
        *(
            ({"range": given}, f"the range {given!r} is not two numbers, such as [1, 5]")
            for given in ([0, "much"], [1], "1-5")
        ),
    ):
        scores = [{**FAITH, **wrong}]
        line = {"eval_id": "C-0", "score": 1, "external_scores": scores}
        with pytest.raises(UnreadableFileError) as refused:
            read_results(json.dumps(line).encode())
        assert words in str(refused.value.problems[0])
    line["external_scores"] = [STARS, STARS]
    with pytest.raises(UnreadableFileError, match="people/stars is given twice"):
        read_results(json.dumps(line).encode())
    line["external_scores"] = [{**FAITH, "name": f"m{n}"} for n in range(MAX_NAMES + 1)]
    with pytest.raises(UnreadableFileError, match="101 different external scores; 100 is the"):
        read_results(json.dumps(line).encode())


def test_the_audit_says_who_added_them(
    run: Run, program: Program, editor: User, admin_client: Client
) -> None:
    push(program, FAITH, STARS)
    push(program, STARS)
    [entry] = AuditEntry.objects.filter(action="score")
    assert (entry.actor, entry.object_name) == (editor, "support #1")
    scores = ["people/stars", "ragas/faithfulness"]
    assert entry.after == {"scores": scores, "added": 2, "changed": 0}
    assert "added scores of other tools to" in admin_client.get("/audit/").text
