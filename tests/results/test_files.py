"""The files of a run's results: lines, table, JUnit."""

from __future__ import annotations

import csv
import gc
import html
import json
import re
from collections.abc import Iterator
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.exports import specs
from runs.formats import tables
from runs.formats.junit import write_junit
from runs.models.results import EvaluatorScore, Result, ResultOutput
from runs.results import files
from runs.results.files import junit_run, result_lines, results_csv
from runs.results.runs import conclude
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
)
from tests.support.statements import statements_reading

pytestmark = pytest.mark.django_db


def test_the_results_of_a_run_are_downloaded_line_by_line(viewer_client: Client) -> None:
    run = make_scored_run(
        suite=make_suite(slug="support"),
        verdicts=("pass", "borderline", "fail", "error", "pending"),
    )
    page = viewer_client.get(reverse("runs:run", args=["support", run.number])).content.decode()
    address = "/suites/support/runs/1/results.jsonl"
    assert f'href="{address}"' in page

    response = viewer_client.get(address)
    assert response.streaming
    assert response["Content-Disposition"] == 'attachment; filename="support-1.jsonl"'
    lines = [json.loads(line) for line in response.getvalue().decode().splitlines()]
    assert [
        (line["eval_id"], line["status"], line["verdict"], line["score"]) for line in lines
    ] == [
        ("C-001", "scored", "pass", 0.92),
        ("C-002", "scored", "borderline", 0.71),
        ("C-003", "scored", "fail", 0.4),
        ("C-004", "error", None, None),
        ("C-005", "pending", None, None),
    ]


def test_page_and_api_offer_the_junit_file_of_the_command_line(viewer_client: Client) -> None:
    run = make_scored_run(
        suite=make_suite(slug="support"),
        verdicts=("pass", "borderline", "fail", "error", "pending"),
    )
    page = viewer_client.get(reverse("runs:run", args=["support", run.number])).content.decode()
    address = "/suites/support/runs/1/junit.xml"
    assert f'href="{address}"' in page

    response = viewer_client.get(address)
    assert response.streaming
    assert response["Content-Type"] == "application/xml"
    assert response["Content-Disposition"] == 'attachment; filename="support-1-junit.xml"'
    content = response.getvalue()
    assert viewer_client.get("/api/runs/support:1/junit.xml").getvalue() == content

    run.refresh_from_db()
    url, conclusion = "http://testserver/suites/support/runs/1/", conclude(run)
    expected = "".join(write_junit(junit_run(run, conclusion, url=url), result_lines(run)))
    assert content.decode() == expected
    root = ElementTree.fromstring(content)
    sums = ("tests", "failures", "errors", "skipped")
    for element in (root, *root):
        assert [element.get(name) for name in sums] == ["5", "2", "1", "1"]
    assert len(root.findall(".//testcase")) == 5
    found = {each.get("name"): each.get("value") for each in root.iterfind("*/properties/property")}
    assert (found["url"], found["conclusion"]) == (url, conclusion.sentence)


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_run_that_is_not_there_has_no_results(viewer_client: Client, ending: str) -> None:
    assert viewer_client.get(f"/suites/support/runs/1/results.{ending}").status_code == 404


def test_the_table_says_of_every_execution_what_the_lines_say(viewer_client: Client) -> None:
    run = make_scored_run(
        suite=make_suite(slug="support"), verdicts=("pass", "borderline", "error", "pending")
    )
    first = run.results.get(case__key="C-001")
    make_score(result=first, path="tone", score=1 / 3)
    Result.objects.filter(pk=first.pk).update(
        run_cost_usd="0.012", evaluation_cost_usd="0.003", latency_ms=640, reviewed_verdict="fail"
    )
    page = viewer_client.get(reverse("runs:run", args=["support", run.number])).content.decode()
    address = "/suites/support/runs/1/results.csv"
    assert f'href="{address}"' in page

    response = viewer_client.get(address)
    assert response.streaming
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"] == 'attachment; filename="support-1.csv"'
    rows = rows_of(response)
    content = viewer_client.get("/suites/support/runs/1/results.jsonl").getvalue().decode()
    for row, line in zip(rows, map(json.loads, content.splitlines()), strict=True):
        assert row["case"] == line["eval_id"]
        for name in ("score", "verdict", "decided_by", "error", "run_cost_usd", "total_cost_usd"):
            is_number = name == "score" or name.endswith("usd")
            value = float(row[name]) if is_number and row[name] else row[name] or None
            assert value == line[name], name
    assert rows[0]["reviewed_verdict"] == "fail"
    assert (rows[0]["latency_ms"], rows[0]["score:tone"]) == ("640", "0.333333333")
    assert (rows[2]["score"], rows[2]["score:tone"], rows[2]["status"]) == ("", "", "error")
    assert rows[2]["error"]


def test_no_cell_of_the_table_is_a_formula_to_a_spreadsheet(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    case = make_case(suite=suite, key="-1+1", title="=cmd()")
    run = make_run(suite=suite)
    make_result(run=run, case=case, status="error", verdict="", score=None, error="@SUM(A1)")

    [row] = rows_of(viewer_client.get("/suites/support/runs/1/results.csv"))

    assert (row["case"], row["title"], row["error"]) == ("'-1+1", "'=cmd()", "'@SUM(A1)")


def test_files_of_a_filtered_list_have_its_results_alone(viewer_client: Client) -> None:
    run = make_scored_run(
        suite=make_suite(slug="support"), verdicts=("pass", "fail", "borderline", "fail")
    )
    listed = reverse("runs:run-results", args=["support", run.number])
    page = viewer_client.get(listed, {"q": "score < 0.9", "verdict": "fail", "sort": "-case"})
    links = re.findall(r'href="([^"]+)" title="The (?:listed|same)', page.content.decode())
    answers = [viewer_client.get(html.unescape(link)) for link in links]
    table, with_texts, lines = answers
    assert [row["case"] for row in rows_of(table)] == ["C-002", "C-004"]
    assert [row["input"] for row in rows_of(with_texts)] == ["The tent arrived torn. What now?"] * 2
    keys = [json.loads(line)["eval_id"] for line in lines.getvalue().decode().splitlines()]
    assert keys == ["C-002", "C-004"]
    assert 'filename="support-1-filtered.csv"' in table["Content-Disposition"]
    assert "CSV with texts" not in viewer_client.get(listed).content.decode()


def test_a_table_can_have_inputs_and_outputs(viewer_client: Client) -> None:
    run = make_run(suite=make_suite(slug="support"))
    turns = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Torn, =cmd()"}]
    case = make_case(suite=run.suite, input=turns)
    make_result(run=run, case=case, verdict="pass", output={"text": "Sorry\nto hear"})
    address = "/suites/support/runs/1/results.csv"
    with CaptureQueriesContext(connection) as asked:
        [row] = rows_of(viewer_client.get(f"{address}?texts=1"))
    assert (row["input"], row["output"]) == ("Be brief\nTorn, =cmd()", "Sorry\nto hear")
    answers = '"runs_resultoutput"."text"'
    assert any(answers in query["sql"] for query in asked)
    # Answers of megabytes are not read for a table without them.
    with CaptureQueriesContext(connection) as asked:
        assert "input" not in rows_of(viewer_client.get(address))[0]
    assert not any(answers in query["sql"] for query in asked)


def test_a_file_by_a_wrong_filter_leads_to_the_page_that_says_why(viewer_client: Client) -> None:
    make_scored_run(suite=make_suite(slug="support"), verdicts=("pass",))
    answer = viewer_client.get("/suites/support/runs/1/results.csv?q=scoer+<+1")
    assert answer.status_code == 302
    assert "Did you mean score?" in viewer_client.get(answer["Location"]).content.decode()


def test_the_api_gives_the_results_that_match_a_filter(viewer_client: Client) -> None:
    make_scored_run(suite=make_suite(slug="support"), verdicts=("pass", "fail"))
    address = "/api/runs/support:1/results."
    answers = [
        viewer_client.get(address + form, {"filter": "score < 0.5"}) for form in ("csv", "jsonl")
    ]
    assert [row["case"] for row in rows_of(answers[0])] == ["C-002"]
    assert json.loads(answers[1].getvalue())["eval_id"] == "C-002"
    assert "output" in rows_of(viewer_client.get(f"{address}csv?texts=true"))[0]
    assert viewer_client.get(f"{address}csv?filter=scoer<1").status_code == 400


def test_the_table_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 2)
    monkeypatch.setattr(tables, "ROWS_A_PART", 2)
    run = make_scored_run(suite=make_suite(slug="support"), verdicts=("pass",) * 7)
    parts, lines, queries = results_csv(run), [], []
    while True:
        with CaptureQueriesContext(connection) as asked:
            part = next(parts, None)
        if part is None:
            break
        lines.append(part.count("\r\n"))
        queries.append(len(asked))
    # The names of the columns come with the first two rows; the ids of all results with the first piece.
    assert lines == [3, 2, 2, 1]
    assert queries[1:] == [6, 6, 6]


def rows_of(response: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(response.getvalue().decode())))


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_no_output_stays_in_memory_once_it_is_written() -> None:
    run = make_scored_run(verdicts=["pass"] * 3)
    ResultOutput.objects.bulk_create(
        ResultOutput(result=row, text="long") for row in run.results.all()
    )
    for _ in result_lines(run):
        pass
    kept = [
        row for row in gc.get_objects() if type(row).__name__ == "Row" and hasattr(row, "answer")
    ]
    assert len(kept) <= 1


def test_of_a_long_answer_no_more_is_read_than_a_file_shows() -> None:
    run = make_scored_run(verdicts=["fail"])
    ResultOutput.objects.create(result=run.results.get(), text="Sorry to hear that.")
    assert [line.output for line in result_lines(run)] == ["Sorry to hear that."]
    assert [line.output for line in result_lines(run, longest=5)] == ["Sorry"]


def test_results_of_many_evaluators_are_read_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand results of some hundred evaluators each take hundreds of megabytes."""
    run = make_scored_run(verdicts=["pass"] * 5)
    for result in run.results.all():
        for path in ("tone", "own"):
            make_score(result=result, path=path, score=0.5)
    whole = [line.as_json() for line in result_lines(run)]
    monkeypatch.setattr(files, "MAX_SCORES_AT_ONCE", 4)

    with statements_reading(EvaluatorScore._meta.db_table) as read:
        few = [line.as_json() for line in result_lines(run)]

    assert few == whole
    # They are counted once, and read two results at a time.
    assert len(read) == 1 + 3


@pytest.mark.parametrize(
    "file",
    ["results.jsonl", "results.csv", "results.csv?q=verdict=pass", "cases.jsonl", "junit.xml"],
)
def test_a_file_of_many_scores_is_large_however_few_its_rows(
    viewer_client: Client, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """A thousand results of some hundred evaluators are 75 MB."""
    run = make_scored_run(suite=make_suite(slug="support"), verdicts=["pass"] * 2)
    url = f"/suites/support/runs/{run.number}/{file}"
    assert viewer_client.get(url).status_code == 200

    monkeypatch.setattr(files, "SCORE_BYTES", specs.MAX_BYTES_AT_ONCE)
    for result in run.results.all():
        make_score(result=result, path="tone", score=0.5)
    assert viewer_client.get(url).status_code == 302
