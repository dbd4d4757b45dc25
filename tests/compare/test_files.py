"""The files of a comparison: the figures of its page, case by case, to the last digit."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from evaluators.templatetags.figures import delta, score
from runs.compare import files
from runs.compare.comparison import build_comparison
from runs.compare.documents import comparison_document
from runs.compare.rules import Tolerances
from runs.engine.plan import read_plan
from runs.models.results import Result
from runs.models.runs import Run, RunStatus
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
)

pytestmark = pytest.mark.django_db
BEFORE = ("pass", "pass", "borderline", "fail", "pass", "error")
AFTER = ("pass", "fail", "pass", "fail", "error", "error")
TABLE, LINES = "/compare/cases.csv", "/compare/comparison.jsonl"


@pytest.fixture
def runs(db: None) -> tuple[Run, Run]:
    suite = make_suite(slug="support")
    done = {"status": RunStatus.COMPLETED}
    found = (
        make_scored_run(verdicts=BEFORE, suite=suite, **done),
        make_scored_run(verdicts=AFTER, suite=suite, **done),
    )
    # A score that no short decimal spells, and both costs.
    Result.objects.filter(run=found[1], case__key="C-002").update(
        score=1 / 3, run_cost_usd=Decimal("0.012345678"), evaluation_cost_usd=Decimal("0.001")
    )
    return found


@pytest.fixture
def get(runs: tuple[Run, Run], viewer_client: Client) -> Callable[..., Any]:
    def got(path: str, **more: str) -> Any:
        names = {"baseline": f"support:{runs[0].number}", "candidate": f"support:{runs[1].number}"}
        return viewer_client.get(path, names | more)

    return got


def rows_of(response: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(response.getvalue().decode().splitlines()))


def document_of(runs: tuple[Run, Run], *, only_shared: bool = False) -> dict[str, Any]:
    tolerances = Tolerances.from_policy(read_plan(runs[1].snapshot).policy)
    return comparison_document(
        build_comparison(*runs, tolerances, only_shared=only_shared)
    ).as_json()


def test_the_table_holds_each_case_with_every_digit_of_the_document(get, runs) -> None:
    response = get(TABLE, show="all")

    assert response.streaming
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"] == 'attachment; filename="support-1-support-2.csv"'
    rows = {row["case"]: row for row in rows_of(response)}
    told = {one["case"]: one for one in document_of(runs)["cases"]}
    assert rows.keys() == told.keys()
    for key, row in rows.items():
        assert (row["title"], row["status"]) == (told[key]["title"], told[key]["status"])
        assert row["score_change"] == spelt(told[key]["score_change"])
        for role in ("baseline", "candidate"):
            found = {name: row[f"{role}_{name}"] for name in told[key][role]}
            assert found == {name: spelt(value) for name, value in told[key][role].items()}
    assert rows["C-002"]["candidate_mean_score"] == repr(1 / 3)
    assert rows["C-002"]["has_flipped"] == "yes"
    assert rows["C-002"]["candidate_total_cost_usd"] == "0.013345678"
    assert (rows["C-006"]["candidate_verdict"], rows["C-006"]["candidate_mean_score"]) == ("", "")
    assert rows["C-006"]["candidate_state"] == "error"


def spelt(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def test_the_lines_are_the_document_and_then_each_case(get, runs) -> None:
    response = get(LINES, show="all")

    assert response.streaming
    assert response["Content-Type"] == "application/jsonl; charset=utf-8"
    head, *cases = map(json.loads, response.getvalue().decode().splitlines())
    listed = head.pop("listed")
    document = document_of(runs)
    by_key = {one["case"]: one for one in document.pop("cases")}
    assert head == document
    assert [one.pop("measured") for one in cases] == [[]] * len(cases)
    assert {one["case"]: one for one in cases} == by_key
    assert (listed["show"], listed["cases"], listed["of"]) == ("all", 6, 6)


def test_a_case_has_the_scores_of_its_evaluators_on_both_sides_in_both_files(
    get, runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CASES_AT_ONCE", 2)
    given = {"shared": (0.25, 1.0), "gone": (0.5, None), "new": (None, 0.75)}
    for key, path in {"C-001": "shared", "C-003": "gone", "C-006": "new"}.items():
        for run, value in zip(runs, given[path], strict=True):
            if value is not None:
                result = Result.objects.get(run=run, case__key=key)
                make_score(result=result, path=path, score=value)

    rows = {row["case"]: row for row in rows_of(get(TABLE, show="all"))}
    _, *cases = map(json.loads, get(LINES, show="all").getvalue().decode().splitlines())

    names = ("baseline", "candidate", "change")
    columns = [f"{name}_score:{path}" for path in ("shared", "new", "gone") for name in names]
    assert [*rows["C-001"]][-9:] == columns
    filled = {key: [row[name] for name in columns] for key, row in rows.items()}
    assert filled.pop("C-001") == ["0.25", "1.0", "0.75", *[""] * 6]
    assert filled.pop("C-006") == [*[""] * 4, "0.75", *[""] * 4]
    assert filled.pop("C-003") == [*[""] * 6, "0.5", "", ""]
    assert {*map(tuple, filled.values())} == {("",) * 9}
    measured = {case["case"]: case["measured"] for case in cases if case["measured"]}
    assert {
        key: [(one["evaluator"], *(one[name] for name in names)) for one in found]
        for key, found in measured.items()
    } == {
        "C-001": [("shared", 0.25, 1.0, 0.75)],
        "C-003": [("gone", 0.5, None, None)],
        "C-006": [("new", None, 0.75, None)],
    }


def test_the_files_hold_what_the_page_lists_in_its_order_and_with_its_figures(get) -> None:
    page = get("/compare/").content.decode()

    for path in (TABLE, LINES):
        assert f'href="{path}?baseline=support:1&amp;candidate=support:2"' in page
    # What stands in the head leads to every case.
    assert f'href="{TABLE}?baseline=support:1&amp;candidate=support:2&amp;show=all"' in page
    rows = rows_of(get(TABLE))
    places = [page.index(f"<code>{row['case']}</code>") for row in rows]
    assert rows[0]["case"] == "C-002"
    assert places == sorted(places)
    assert "<code>C-001</code>" not in page
    for row in rows:
        if row["score_change"]:
            assert delta(float(row["score_change"]), "pts") in page
            assert score(float(row["candidate_mean_score"])) in page


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({"show": "regressed"}, ["C-002"]),
        ({"cell": "borderline-pass", "show": "all"}, ["C-003"]),
        ({"show": "all", "q": "c-004"}, ["C-004"]),
        ({"show": "all", "sort": "case"}, [f"C-00{number}" for number in range(1, 7)]),
        ({"show": "added"}, []),
    ],
)
def test_the_filters_of_the_page_are_those_of_the_files(get, asked, keys) -> None:
    assert [row["case"] for row in rows_of(get(TABLE, **asked))] == keys
    head, *cases = map(json.loads, get(LINES, **asked).getvalue().decode().splitlines())
    assert [one["case"] for one in cases] == keys
    assert (head["listed"]["cases"], head["listed"]["of"]) == (len(keys), 6)


def test_tolerances_and_the_shared_cases_alone_are_those_of_the_address(get, runs) -> None:
    suite = runs[0].suite
    make_result(run=runs[1], case=make_case(suite=suite, key="NEW"), verdict="fail", score=0.1)

    response = get(LINES, cases="shared", max_pass_rate_drop="0.9", max_avg_score_drop="90")

    head = json.loads(response.getvalue().decode().splitlines()[0])
    assert head["only_shared_cases"]
    told = head["tolerances"]
    assert told["max_pass_rate_drop"]["value"] == 0.9
    assert told["max_pass_rate_drop"] != document_of(runs)["tolerances"]["max_pass_rate_drop"]
    assert head["candidate"]["case_count"] == 6
    assert head["pass_rate_change"] == document_of(runs, only_shared=True)["pass_rate_change"]
    assert "NEW" in [row["case"] for row in rows_of(get(TABLE, show="all"))]
    assert "NEW" not in [row["case"] for row in rows_of(get(TABLE, show="all", cases="shared"))]


def test_a_case_whose_verdicts_differ_is_flaky_and_no_cell_is_a_formula(viewer_client) -> None:
    suite = make_suite(slug="support")
    case = make_case(suite=suite, key="C-1", title="=HYPERLINK(1)")
    for again in ("pass", "fail"):
        run = make_run(suite=suite, repetitions=2, status=RunStatus.COMPLETED)
        for repetition, verdict in enumerate(("pass", again), 1):
            make_result(run=run, case=case, repetition=repetition, verdict=verdict, score=0.9)

    asked = {"baseline": "support:1", "candidate": "support:2", "show": "all"}
    [row] = rows_of(viewer_client.get(TABLE, asked))
    assert row["title"] == "'=HYPERLINK(1)"
    assert (row["baseline_flaky"], row["candidate_flaky"]) == ("no", "yes")
    assert (row["candidate_passed"], row["candidate_results"]) == ("1", "2")


@pytest.mark.parametrize("path", [TABLE, LINES])
def test_what_is_no_comparison_leads_to_the_page_and_no_run_is_not_found(get, runs, path) -> None:
    twice = get(path, candidate="support:1")
    assert (twice.status_code, twice["Location"]) == (
        302,
        "/compare/?baseline=support:1&candidate=support:1",
    )
    Run.objects.filter(pk=runs[1].pk).update(snapshot={**runs[1].snapshot, "version": 99})
    assert get(path)["Location"] == "/compare/?baseline=support:1&candidate=support:2"
    assert get(path, candidate="support:99").status_code == 404
    assert get(path, candidate="").status_code == 404
    assert Client().get(path).status_code == 302
