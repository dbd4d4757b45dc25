"""Several runs side by side: their figures, a row for each case, what differs, and the filters and files of it."""

from __future__ import annotations

import csv
import html
import re
from typing import Any

import pytest
from django.test import Client

from runs.compare.many import COUNTED
from runs.models.results import ResultOutput
from runs.models.runs import Run, RunStatus
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_scored_run,
    make_suite,
    refresh_cases,
)
from tests.support.members import make_client, make_member
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db
VERDICTS = (
    ("pass", "pass", "pass", "fail"),
    ("pass", "fail", "pass", "fail"),
    ("pass", "pass", "error", "pass"),
)


@pytest.fixture
def client() -> Client:
    return make_client(make_member("viewer"))


@pytest.fixture
def runs() -> list[Run]:
    suite = make_suite(slug="support")
    return [
        make_scored_run(verdicts=verdicts, suite=suite, status=RunStatus.COMPLETED)
        for verdicts in VERDICTS
    ]


def address(runs: list[Run], path: str = "/compare/many/", **more: Any) -> str:
    names = ",".join(f"support:{run.number}" for run in runs)
    return f"{path}?runs={names}" + "".join(f"&{name}={value}" for name, value in more.items())


def keys(response: Any) -> list[str]:
    return re.findall(r"<code>(C-\d+)</code>", response.content.decode())


@pytest.mark.each_database
@pytest.mark.parametrize(
    ("more", "listed"),
    [
        ({}, ["C-004", "C-002", "C-003", "C-001"]),
        ({"differences": 1}, ["C-004", "C-002", "C-003"]),
        ({"sort": "case"}, ["C-001", "C-002", "C-003", "C-004"]),
        ({"sort": "-case"}, ["C-004", "C-003", "C-002", "C-001"]),
        ({"sort": "2"}, ["C-002", "C-004", "C-001", "C-003"]),
        ({"sort": "3"}, ["C-003", "C-001", "C-002", "C-004"]),
        ({"q": "c-002"}, ["C-002"]),
        ({"q": "verdict = error"}, ["C-003"]),
        ({"q": "verdict fell"}, ["C-002"]),
    ],
)
def test_cases_are_listed_by_difference_case_or_run_and_filtered(client, runs, more, listed):
    assert keys(client.get(address(runs, **more))) == listed


@pytest.mark.each_database
def test_a_cursor_of_another_list_is_refused(client, runs):
    refused = client.get(address(runs, "/api/runs/compare/many", cursor="x"))
    assert (refused.status_code, [*refused.json()["errors"]]) == (400, ["cursor"])
    other = client.get(address(runs, "/api/runs/compare/many", baseline="support:9"))
    assert (other.status_code, [*other.json()["errors"]]) == (400, ["baseline"])


@pytest.mark.each_database
def test_a_page_goes_on_after_the_last_case_of_the_one_before_with_the_same_counts(client, runs):
    for sort in ("case", "-case", "difference", "-difference", "1", "-2"):
        whole = client.get(address(runs, "/api/runs/compare/many", sort=sort)).json()
        listed, url = [], address(runs, "/api/runs/compare/many", sort=sort, limit=1)
        while url:
            COUNTED.values.clear()
            page = client.get(url).json()
            assert (page["cases_total"], page["cases_differing"]) == (4, 3)
            listed += [case["case"] for case in page["cases"]]
            url = page["next"]
        assert listed == [case["case"] for case in whole["cases"]]
        assert len(listed) == 4
    for text, counts in (("verdict = fail", (2, 2)), ("C-001", (1, 0)), ("none", (0, 0))):
        page = client.get(address(runs, "/api/runs/compare/many", filter=text)).json()
        assert (page["cases_total"], page["cases_differing"]) == counts


def test_every_cell_leads_to_its_result_and_says_how_it_changed(client, runs):
    response = client.get(address(runs, sort="case"))
    text, page = text_of(response), response.content.decode()
    scores = "Pass, 0.92"
    assert f"C-001 Case C-001 {scores} {scores} ±0.0 pts {scores} ±0.0 pts 0.00" in text
    row = page[page.index("<code>C-002") : page.index("<code>C-003")]
    assert re.findall(r'href="(/[^"]+)"', row) == [
        f"/suites/support/runs/{run.number}/C-002/1/" for run in runs
    ]
    assert row.count('data-tone="bad"') == 1
    last = page[page.index("<code>C-004") :]
    assert last.count('data-tone="good"') == 1


def test_the_baseline_is_chosen_and_runs_are_added_and_removed(client, runs):
    more = make_scored_run(verdicts=VERDICTS[0], suite=runs[0].suite, status=RunStatus.COMPLETED)
    page = html.unescape(client.get(address(runs)).content.decode())
    names = [f"support:{run.number}" for run in runs]
    assert f'href="?runs={",".join(names)}&baseline={names[1]}"' in page
    assert f'href="?runs={names[0]},{names[2]}"' in page
    assert f'href="?runs={",".join(names)},support:{more.number}"' in page
    assert f'href="/compare/?baseline={names[0]}&candidate={names[2]}"' in page
    other = text_of(client.get(address(runs, baseline=names[1])))
    assert "Compared with #2, the baseline" in other
    pair = html.unescape(client.get(address(runs[:2])).content.decode())
    assert "Remove" not in pair
    assert "2 runs side by side" in pair
    two = client.get(f"/compare/?baseline={names[0]}&candidate={names[1]}")
    assert (
        f"/compare/many/?runs={names[0]},{names[1]},{names[2]}&amp;baseline={names[0]}" in two.text
    )


def test_three_to_six_runs_of_a_suite_are_ticked_in_the_list(client, runs):
    names = [f"support:{run.number}" for run in runs]
    ticked = "&".join(f"run={name}" for name in reversed(names))
    found = client.get(f"/compare/?{ticked}")
    assert found["Location"] == f"{address(runs)}&baseline={names[0]}"
    assert client.get(f"/compare/many/?{ticked}")["Location"] == address(runs[::-1])
    other = make_scored_run(verdicts=VERDICTS[0], suite=make_suite(slug="other"))
    refused = client.get(f"/compare/?{ticked}&run=other:{other.number}", follow=True)
    assert "Select two runs, or up to six runs of one suite" in text_of(refused)


@pytest.mark.parametrize(
    ("names", "answer"),
    [
        ("support:1", "Choose 2 to 6 runs of one suite."),
        ("support:1,support:1", "Choose 2 to 6 runs of one suite."),
        (",".join(f"support:{n}" for n in range(1, 8)), "Choose 2 to 6 runs of one suite."),
        ("support:1,other:1", "Choose runs of one suite"),
        ("support:1,support:99", 404),
        ("support:1,nonsense", 404),
        ("", "Compare two runs"),
    ],
)
def test_runs_that_cannot_stand_side_by_side_say_why(client, runs, names, answer):
    response = client.get(f"/compare/many/?runs={names}")
    if isinstance(answer, int):
        assert response.status_code == answer
    else:
        assert answer in text_of(response)
    if names and not isinstance(answer, int):
        refused = client.get(f"/api/runs/compare/many?runs={names}")
        assert refused.status_code == 400
        assert answer in refused.json()["errors"]["runs"][0]


def test_a_case_that_a_run_does_not_have_differs_and_has_no_cell(client, runs):
    case = make_case(suite=runs[0].suite, key="ONLY")
    make_result(run=runs[1], case=case, verdict="pass", score=0.9)
    document = client.get(address(runs, "/api/runs/compare/many", filter="ONLY")).json()
    (only,) = document["cases"]
    assert (only["differs"], only["spread"]) == (True, 0.0)
    assert [cell and cell["state"] for cell in only["cells"]] == [None, "pass", None]
    assert "Not in this run" in text_of(client.get(address(runs)))


def test_figures_of_a_run_that_goes_on_are_not_made_up(client, runs):
    active = make_run(suite=runs[0].suite, status=RunStatus.RUNNING)
    make_result(
        run=active, case=runs[0].results.first().case, status="pending", verdict="", score=None
    )
    text = text_of(client.get(address([runs[0], active])))
    assert "Running" in text
    assert "Waiting, –" in text


def test_a_filter_that_cannot_be_read_says_so_and_keeps_the_page(client, runs):
    page = text_of(client.get(address(runs, q="tone <")))
    assert "This filter cannot be read." in page
    assert "3 runs side by side" in page
    refused = client.get(address(runs, "/api/runs/compare/many", filter="tone <"))
    assert refused.status_code == 400
    assert "filter" in refused.json()["errors"]


def test_the_part_alone_is_swapped(client, runs):
    part = client.get(address(runs), headers={"HX-Request": "true", "HX-Target": "many"})
    assert part.text.lstrip().startswith('<div id="many"')
    assert "<html" not in part.text
    assert part["Cache-Control"] == "no-store"


def test_the_table_has_every_case_with_all_digits(client, runs):
    runs[1].cases.filter(case__key="C-001").update(score=0.123456789)
    answer = client.get(address(runs, "/compare/many/cases.csv", sort="case"))
    rows = list(csv.DictReader(b"".join(answer).decode().splitlines()))
    assert [row["case"] for row in rows] == ["C-001", "C-002", "C-003", "C-004"]
    assert rows[0]["#2 mean_score"] == "0.123456789"
    assert (rows[1]["#1 verdict"], rows[1]["#2 verdict"]) == ("pass", "fail")
    assert (rows[2]["#3 verdict"], rows[2]["#3 mean_score"]) == ("error", "")
    few = client.get(address(runs, "/compare/many/cases.csv", differences=1))
    assert len(list(csv.DictReader(b"".join(few).decode().splitlines()))) == 4


def test_what_a_filter_found_is_marked_in_its_row(client, runs):
    result = runs[1].results.get(case__key="C-002")
    ResultOutput.objects.create(result=result, text="We sent the parcel back")
    refresh_cases(runs[1])
    page = client.get(address(runs, q="parcel")).content.decode()
    assert keys(client.get(address(runs, q="parcel"))) == ["C-002"]
    assert re.findall(r"<mark\s*>([^<]*)</mark>", page) == ["parcel"]
    assert "Output:" in page


def test_queries_do_not_grow_with_the_cases_or_the_runs(
    client, runs, django_assert_max_num_queries
):
    client.get(address(runs))
    with django_assert_max_num_queries(14) as few:
        client.get(address(runs[:2]))
    suite = runs[0].suite
    many = [make_scored_run(verdicts=VERDICTS[0] * 12, suite=suite) for _ in range(6)]
    with django_assert_max_num_queries(len(few.captured_queries)):
        assert "6 runs side by side" in text_of(client.get(address(many)))
