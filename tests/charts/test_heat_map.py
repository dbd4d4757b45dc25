"""The heat map of a run: cases by evaluators, a page at a time."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.charts.heat_map import compared_heat_map, heat_map, heat_map_csv
from runs.compare.changes import ComparisonQuery
from runs.filters.queries import ResultsQuery, matching_cases, matching_keys
from runs.models.runs import Run
from tests.support.charts import make_heated_run
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db


def test_the_worst_case_comes_first_with_the_scores_that_count() -> None:
    run = make_heated_run((0.9, 0.0, 1.0), (0.4, 1.0, 0.34), (None, 0.0, None))
    shown = heat_map(run)
    assert [column.name for column in shown.columns] == ["no_leak", "tone"]
    assert [(row.key, row.texts, [cell.text for cell in row.cells]) for row in shown.rows] == [
        ("C-3", ["–"], ["1.0", "!"]),
        ("C-2", ["0.40"], [".00", ".34"]),
        ("C-1", ["0.90"], ["1.0", "1.0"]),
    ]
    assert [[cell.level for cell in row.cells] for row in shown.rows] == [[9, None], [0, 3], [9, 9]]


def test_a_column_leads_to_the_cases_it_scores_low() -> None:
    run = make_heated_run((0.9, 0.0, 1.0), (0.4, 1.0, 0.34))
    for column in heat_map(run).columns:
        text = parse_qs(urlsplit(column.url).query)["q"][0]
        assert matching_cases(run, ResultsQuery(text=text)).count() == 1


def test_every_cell_leads_to_its_result_and_is_no_stop_of_tab() -> None:
    make_heated_run((0.9, 0.0, 1.0), (0.4, 1.0, 0.34))
    client = make_client(make_member("viewer"))
    url = reverse("runs:run-heat-map", args=["support", 1])
    html = client.get(url, headers={"HX-Request": "true"}).content.decode()
    for key in ("C-1", "C-2"):
        result = reverse("runs:result", args=["support", 1, key, 1])
        assert html.count(f'<a href="{result}#evaluators" tabindex="-1">') == 2
    assert html.count('tabindex="0"') == 2  # its region, and the first case
    assert "<html" in client.get(url).content.decode()


def test_cases_come_in_pages() -> None:
    run = make_heated_run(*[(place / 10, 0.0, 1.0) for place in range(1, 6)])
    pages = [heat_map(run, page=page, rows=2) for page in (1, 2, 3)]
    assert [[row.key for row in page.rows] for page in pages] == [
        ["C-1", "C-2"],
        ["C-3", "C-4"],
        ["C-5"],
    ]
    assert [page.next_page for page in pages] == [2, 3, 0]


def test_further_rows_come_without_a_head() -> None:
    make_heated_run(*[(0.5, 0.0, 1.0)] * 101)
    client = make_client(make_member("viewer"))
    url = reverse("runs:run-heat-map", args=["support", 1])
    first = client.get(url, headers={"HX-Request": "true"}).content.decode()
    assert f'hx-get="{url}?page=2"' in first
    rest = client.get(f"{url}?page=2", headers={"HX-Request": "true"}).content.decode()
    assert "<thead" not in rest
    assert rest.count("<tr") == 1


def test_the_file_has_every_case() -> None:
    run = make_heated_run((0.9, 0.25, 1.0), (None, 0.0, None))
    assert heat_map_csv(heat_map(run, rows=None)).splitlines() == [
        "case,verdict,score,safety/no_leak,tone",
        "C-2,error,,1.0,",
        "C-1,pass,0.9,0.75,1.0",
    ]


def test_a_page_takes_the_same_queries_for_any_number_of_cases() -> None:
    counts = []
    for number in (1, 30):
        run = make_heated_run(*[(0.5, 0.0, 1.0)] * number)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            heat_map(run)
        counts.append(len(queries))
        run.suite.slug = f"old-{number}"
        run.suite.save()
    assert counts[0] == counts[1] <= 3


def test_a_run_without_cases_says_so() -> None:
    make_heated_run()
    client = make_client(make_member("viewer"))
    url = reverse("runs:run-heat-map", args=["support", 1])
    assert (
        "This run has no cases" in client.get(url, headers={"HX-Request": "true"}).content.decode()
    )


def make_pair() -> tuple[Run, Run]:
    """Make two runs of a suite: C-1 falls, C-2 rises, C-3 loses its score, C-4 is in the second alone."""
    before = make_heated_run((0.9, 0.0, 1.0), (0.4, 1.0, 0.34), (0.8, 0.0, 1.0))
    scores = ((0.5, 0.0, 0.2), (0.7, 0.0, 0.34), (None, 0.0, None), (0.1, 0.0, 0.0))
    return before, make_heated_run(*scores, suite=before.suite)


class TestTwoRuns:
    def test_both_scores_stand_side_by_side_and_what_fell_most_comes_first(self) -> None:
        shown = compared_heat_map(*make_pair())
        assert [(row.key, row.texts) for row in shown.rows] == [
            ("C-3", ["0.80", "–"]),
            ("C-1", ["0.90", "0.50"]),
            ("C-2", ["0.40", "0.70"]),
        ]
        assert [column.name for column in shown.columns] == ["no_leak", "tone"]
        assert [cell.text for cell in shown.rows[1].cells] == ["1.0", "1.0", "1.0", ".20"]

    def test_cells_lead_to_their_results_and_columns_to_what_fell(self) -> None:
        before, after = make_pair()
        shown = compared_heat_map(before, after)
        urls = [cell.url for cell in shown.rows[1].cells[:2]]
        assert urls == [
            f"{reverse('runs:result', args=['support', run.number, 'C-1', 1])}#evaluators"
            for run in (before, after)
        ]
        query = ComparisonQuery.read(
            {
                name: values[0]
                for name, values in parse_qs(urlsplit(shown.columns[1].url).query).items()
            }
        )
        assert matching_keys([after], before, query.text) == {"C-1"}

    def test_the_part_its_pages_and_the_file_name_both_runs(self) -> None:
        make_pair()
        client = make_client(make_member("viewer"))
        names = {"baseline": "support:1", "candidate": "support:2"}
        page = client.get(reverse("runs:compare"), names).content.decode()
        url = reverse("runs:comparison-heat-map")
        assert f'hx-get="{url}?baseline=support:1&amp;candidate=support:2"' in page
        html = client.get(url, names, headers={"HX-Request": "true"}).content.decode()
        assert 'data-pairs="#1 #2"' in html
        assert "<html" in client.get(url, names).content.decode()
        file = client.get(reverse("runs:comparison-heat-map-file"), names).content.decode()
        assert file.splitlines()[0] == (
            "case,verdict,score in #1,score in #2,safety/no_leak in #1,safety/no_leak in #2,"
            "tone in #1,tone in #2"
        )

    def test_cases_come_in_pages(self) -> None:
        pages = [
            compared_heat_map(*pair, page=page, rows=2) for pair in [make_pair()] for page in (1, 2)
        ]
        assert [[row.key for row in page.rows] for page in pages] == [["C-3", "C-1"], ["C-2"]]
        assert [page.next_page for page in pages] == [2, 0]
