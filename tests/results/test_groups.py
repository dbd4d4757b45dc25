"""The table of a run in groups: their figures, the cases that each leads to, order, file and limits."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.filters.queries import ResultsQuery, in_state, matching_cases
from runs.finishing import read_executions
from runs.models.runs import Run
from runs.results.case_rows import MAX_GROUPS
from runs.results.groups import Grouping, group_list
from runs.summary.run import summarise
from tests.support.factories import make_case, make_result, make_run, make_score, make_suite

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


def make_grouped(*cases: tuple[dict[str, Any], Sequence[str]], repetitions: int = 1) -> Run:
    """Make a run whose cases have these columns and, for each repetition, this verdict or error."""
    suite = make_suite(cases=0)
    run = make_run(suite=suite, repetitions=repetitions)
    for number, (columns, verdicts) in enumerate(cases, start=1):
        case = make_case(suite=suite, key=f"C-{number}", **columns)
        for repetition, verdict in enumerate(verdicts, start=1):
            scored: dict[str, Any] = {"score": {"pass": 0.9, "borderline": 0.7}.get(verdict, 0.2)}
            if verdict == "error":
                scored = {"status": "error", "error": "Gone", "error_stage": "target"}
            make_result(
                run=run,
                case=case,
                verdict="" if verdict == "error" else verdict,
                repetition=repetition,
                latency_ms=1000 * number,
                run_cost_usd=Decimal("0.01"),
                evaluation_cost_usd=None,
                **scored,
            )
    return run


def grouped(run: Run, **params: Any) -> Grouping:
    query = ResultsQuery(**params)
    found = group_list(run, query, in_state(matching_cases(run, query), query))
    assert found is not None
    return found


def open_table(client: Client, run: Run, query: str) -> str:
    return client.get(reverse("runs:run-results", args=(run.suite.slug, run.number)) + query).text


def group_links(page: str) -> dict[str, str]:
    """Return the names of the groups on a page with their links, "" for a group without one."""
    rows = re.findall(r"<tr[^>]*>\s*<th scope=\"row\".*?</th>", page.split('id="rows"')[1], re.S)
    found = {}
    for row in rows:
        name = html.unescape(re.sub(r"<[^>]*>", "", row)).strip()
        link = re.search(r'hx-get="([^"]*)"', row)
        found[name] = html.unescape(link[1]) if link else ""
    return found


def file_rows(client: Client, page: str) -> list[dict[str, str]]:
    """Return the rows of the file “This table”."""
    link = re.search(r'href="([^"]*table\.csv[^"]*)"', page)
    assert link is not None
    response = client.get(html.unescape(link[1]))
    return list(csv.DictReader(io.StringIO(b"".join(response).decode("utf-8-sig"))))


def keys(page: str) -> list[str]:
    return re.findall(r"<code>(C-\d+)</code>", page)


def test_groups_begin_with_the_worst_and_lead_to_their_cases(viewer_client: Client) -> None:
    run = make_grouped(
        ({"tags": ["billing", "slow"]}, ["pass"]),
        ({"tags": ["billing"]}, ["error"]),
        ({"tags": ["slow"]}, ["fail"]),
        ({"tags": []}, ["pass"]),
    )
    figures = {
        group.name: (group.passed, group.counted, group.mean_score, group.scored, group.errors)
        for group in grouped(run, group="tag").groups
    }
    # An error has not passed, and has no score that could count as 0.
    assert list(figures.items()) == [
        ("slow", (1, 2, 0.55, 2, 0)),
        ("billing", (1, 2, 0.9, 1, 1)),
        (None, (1, 1, 0.9, 1, 0)),
    ]
    page = open_table(viewer_client, run, "?group=tag")
    assert "1 case counts in several groups" in " ".join(page.split())
    assert "1 of 2" in page
    assert {
        name: sorted(keys(viewer_client.get(url).text)) for name, url in group_links(page).items()
    } == {"slow": ["C-1", "C-3"], "billing": ["C-1", "C-2"], "No tag": ["C-4"]}


def test_a_group_has_the_figures_that_a_run_of_its_cases_would_have() -> None:
    run = make_grouped(
        ({"tags": ["a"]}, ["pass", "fail", "error"]),
        ({"tags": ["a"]}, ["pass", "pass", "pass"]),
        ({"tags": ["a"]}, ["borderline", "error", "error"]),
        repetitions=3,
    )
    (group,) = grouped(run, group="tag").groups
    summary = summarise(read_executions(run), run.policy, is_completed=True, seed=run.pk)
    assert (group.passed, group.counted) == (summary.passed, summary.executions) == (4, 9)
    assert group.pass_rate == pytest.approx(summary.cases_gate.share)
    assert group.interval == pytest.approx(summary.interval)
    assert group.mean_score == pytest.approx(summary.means.score)
    assert (group.scored, group.executions) == (summary.means.scored, 9)
    assert group.errors == summary.errors == 3
    assert group.latency_ms == pytest.approx(summary.means.latency_ms)
    assert group.cost_usd == summary.means.total_cost_usd == Decimal("0.09")


HOSTILE = (
    'a,b "quoted" \\',
    "none",
    "any",
    "<script>alert(1)</script>",
    "{{ 1 }}",
    "=1+1",
    "and (x or",
    "true",
    " padded ",
    "日本",
    "&amp;",
    "%2C",
    "-minus",
)


@pytest.mark.parametrize("key", ["plain", 'k,"e" y', "verdict", "a.b", "<b>", "none"])
def test_odd_keys_and_values_of_metadata_lead_to_their_cases(
    viewer_client: Client, key: str
) -> None:
    values: list[Any] = [
        *HOSTILE,
        "3",
        3,
        1.5,
        True,
        False,
        {"deep": 1},
        ["two", "values"],
        [],
        None,
    ]
    run = make_grouped(*(({"metadata": {key: value}}, ["pass"]) for value in values))
    page = viewer_client.get(
        reverse("runs:run-results", args=(run.suite.slug, run.number)), {"group": f"meta.{key}"}
    ).text
    assert "<script>alert" not in page
    groups = {group.name: group.cases for group in grouped(run, group=f"meta.{key}").groups}
    # An empty list and null are no value.
    assert groups[None] == 2
    assert [groups[name] for name in ("true", "3", "1.5", "false")] == [2, 2, 1, 1]
    links = group_links(page)
    assert len(links) == len(groups)
    counts = {(name or f"No {key}").strip(): count for name, count in groups.items()}
    for name, url in links.items():
        assert len(keys(viewer_client.get(url).text)) == counts[name], name


def test_a_link_keeps_filter_order_and_columns(viewer_client: Client) -> None:
    run = make_grouped(
        ({"tags": ["a"], "title": "Refund"}, ["fail"]),
        ({"tags": ["a"], "title": "Other"}, ["fail"]),
        ({"tags": ["b"], "title": "Refund"}, ["pass"]),
    )
    page = open_table(
        viewer_client, run, "?group=verdict&q=refund+or+C-3&sort=-latency&columns=case,latency"
    )
    links = group_links(page)
    assert list(links) == ["Pass", "Fail"]
    assert links["Fail"].endswith(
        "?verdict=fail&q=refund+or+C-3&sort=-latency&columns=case,latency"
    )
    page = open_table(viewer_client, run, "?group=tag&q=refund+or+C-3")
    found = viewer_client.get(group_links(page)["a"]).text
    assert keys(found) == ["C-1"]
    # Where the longer filter could not be read, the group is named without a link.
    long = "?group=tag&q=" + "+or+".join(["refund"] * 20)
    assert group_links(open_table(viewer_client, run, long)) == {"a": "", "b": ""}


def test_chosen_figures_are_shown_and_sort_the_groups(viewer_client: Client) -> None:
    run = make_grouped(
        ({"tags": ["a"]}, ["pass"]), ({"tags": ["a"]}, ["pass"]), ({"tags": ["b"]}, ["pass"])
    )
    for result, tone in zip(run.results.order_by("case__position"), (0.2, None, 0.4), strict=True):
        if tone is not None:
            make_score(result=result, path="tone", score=tone)
    query = "?group=tag&columns=case,evaluator.tone&sort=-evaluator.tone"
    page = open_table(viewer_client, run, query)
    assert list(group_links(page)) == ["b", "a"]
    cells = re.findall(r'data-label="tone">\s*(.*?)\s*<small>(.*?)</small>', page)
    assert cells == [("0.40", "1 of 1 case"), ("0.20", "1 of 2 cases")]
    first = file_rows(viewer_client, page)[0]
    assert (first["tag"], first["evaluator.tone"], first["evaluator.tone:cases"]) == (
        "b",
        "0.4",
        "1",
    )
    sorts = {
        "score": ["a", "b"],
        "-latency": ["b", "a"],
        "-cost": ["a", "b"],
        "-case": ["a", "b"],
        "evaluator.tone": ["a", "b"],
        "spread": ["a", "b"],
    }
    for sort, order in sorts.items():
        assert list(group_links(open_table(viewer_client, run, f"?group=tag&sort={sort}"))) == order


def test_what_the_run_does_not_have_is_said(viewer_client: Client) -> None:
    run = make_grouped(({}, ["pass"]))
    page = open_table(viewer_client, run, "?group=nonsense")
    assert "Not in this run" in page
    assert keys(page) == ["C-1"]
    page = open_table(viewer_client, run, "?group=meta.gone")
    assert "No case here has a value" in page
    assert list(group_links(page)) == ["No gone"]
    # A wrong filter is explained as it is over cases, and a run without results has no groups.
    assert "cannot be read" in open_table(viewer_client, run, "?group=tag&q=nothing+<+1")
    empty = make_run(suite=make_suite(cases=0))
    assert "This run has no cases" in open_table(viewer_client, empty, "?group=tag")


def test_thousands_of_groups_are_cut_on_the_page_and_whole_in_the_file(
    viewer_client: Client,
    django_assert_num_queries: Callable[[int], AbstractContextManager[Any]],
) -> None:
    few = make_grouped(({"metadata": {"id": "x"}}, ["pass"]))
    many = make_grouped(*(({"metadata": {"id": f"={n}"}}, ["pass"]) for n in range(130)))
    for run in (few, many):
        with django_assert_num_queries(12):
            page = open_table(viewer_client, run, "?group=meta.id")
    assert len(group_links(page)) == MAX_GROUPS
    assert "130 groups, 30 of them not listed" in " ".join(page.split())
    rows = file_rows(viewer_client, page)
    assert len(rows) == 130
    assert rows[0]["id"] == "'=0"
    assert {rows[0][name] for name in ("cases", "passed", "pass_rate", "scored")} == {"1", "1.0"}


def test_a_run_under_way_counts_what_has_ended(viewer_client: Client) -> None:
    run = make_grouped(({"tags": ["a"]}, ["pass"]), ({"tags": ["a"]}, ["fail"]))
    case = make_case(suite=run.suite, key="C-9", tags=["b"])
    make_result(run=run, case=case, verdict="", status="pending", score=None, latency_ms=None)
    Run.objects.filter(pk=run.pk).update(status="running")
    run.refresh_from_db()
    a, b = grouped(run, group="tag").groups
    assert (a.name, a.passed, a.counted) == ("a", 1, 2)
    assert (b.name, b.pass_rate, b.mean_score, b.scored, b.executions) == ("b", None, None, 0, 1)
    page = open_table(viewer_client, run, "?group=tag")
    assert 'hx-trigger="every 5s"' in page
    assert list(group_links(open_table(viewer_client, run, "?group=verdict"))) == [
        *("Fail", "Pass", "Waiting"),
    ]
