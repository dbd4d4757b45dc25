"""The results table as chosen: ordered by any evaluator or metric, with columns, density and files of the same."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.models.runs import Run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, tree

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


def scored_by(*evaluators: Mapping[str, Any], cases: int = 0) -> Run:
    """Make a run without results."""
    suite, target = make_suite(cases=cases), make_target()
    snapshot = make_snapshot(suite=suite, target=target, tree=tree(*evaluators))
    return make_run(suite=suite, target=target, snapshot=snapshot)


@pytest.fixture
def run() -> Run:
    """Return a run whose C-3 has no score of tone; `rude` is negated, `rubric` judges a metric."""
    run = scored_by({**CHECK, "name": "tone"}, {**CHECK, "name": "rude", "negate": True})
    suite = run.suite
    for number, tone in enumerate((0.9, 0.2, None, 0.5), start=1):
        case = make_case(suite=suite, key=f"C-{number}", metadata={"channel": f"ch{number}"})
        result = make_result(
            run=run, case=case, verdict="pass", score=number / 10, latency_ms=1000 * number
        )
        make_score(result=result, path="rude", score=0.25)
        if tone is not None:
            make_score(result=result, path="tone", score=tone)
        make_score(
            result=result,
            path="rubric",
            score=0.5,
            kind="metrics_judge",
            details={"metrics": [{"key": "clarity", "score": 5 - number}]},
        )
    return run


def open_table(client: Client, run: Run, query: str = "", name: str = "runs:run-results") -> str:
    return client.get(reverse(name, args=(run.suite.slug, run.number)) + query).text


def keys(page: str) -> list[str]:
    return re.findall(r"<code>(C-\d+)</code>", page)


def heads(page: str) -> list[str]:
    found = re.findall(r"<th[^>]*scope=\"col\"[^>]*>(.*?)</th>", page, re.DOTALL)
    texts = [re.sub(r"<[^>]*>|\s+", " ", head).strip() for head in found]
    # The first column ticks rows.
    return [text for text in texts if text]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("evaluator.tone", ["C-2", "C-4", "C-1", "C-3"]),
        ("-evaluator.tone", ["C-1", "C-4", "C-2", "C-3"]),
        ("metric.clarity", ["C-4", "C-3", "C-2", "C-1"]),
        ("-metric.clarity", ["C-1", "C-2", "C-3", "C-4"]),
    ],
)
def test_cases_without_the_score_come_last_in_both_directions(
    viewer_client: Client, run: Run, sort: str, order: list[str]
) -> None:
    page = open_table(viewer_client, run, f"?sort={sort}")
    assert keys(page) == order
    # What the table is sorted by is shown, with the direction.
    label = sort.rpartition(".")[2]
    assert label in heads(page)
    direction = "descending" if sort.startswith("-") else "ascending"
    assert f'aria-sort="{direction}"' in page


def test_an_order_by_scores_is_paged_without_gap_or_repeat(viewer_client: Client) -> None:
    run = scored_by({**CHECK, "name": "tone"}, cases=120)
    for number, case in enumerate(run.suite.cases.all()):
        result = make_result(run=run, case=case, verdict="pass")
        if number % 5:
            make_score(result=result, path="tone", score=(number % 7) / 10)
    for sign in ("", "-"):
        seen: list[str] = []
        query = f"?sort={sign}evaluator.tone"
        while query:
            page = open_table(viewer_client, run, query)
            seen += re.findall(r"<code>([^<]*)</code>", page)
            more = re.search(r'id="show-more" href="[^"?]*([^"]*)"', page)
            query = html.unescape(more[1]) if more else ""
        assert len(seen) == len(set(seen)) == 120


@pytest.mark.parametrize("sort", ["evaluator.", "evaluator.nothing", "metric.~~", "evaluator"])
def test_an_order_that_the_run_does_not_have_leaves_the_usual_one(
    viewer_client: Client, run: Run, sort: str
) -> None:
    page = open_table(viewer_client, run, f"?sort={sort}&after=0~nan~1~1")
    assert len(keys(page)) == 4
    assert ("Not in this run" in page) == ("." in sort[:-1])


def test_a_result_is_stepped_through_in_the_order_of_an_evaluator(
    viewer_client: Client, run: Run
) -> None:
    place = reverse("runs:result", args=(run.suite.slug, run.number, "C-4", 1))
    page = viewer_client.get(f"{place}?from=run&sort=evaluator.tone").text
    links = dict(re.findall(r'href="[^"]*/(C-\d)/1/[^"]*"\s+aria-keyshortcuts="([jk])"', page))
    assert links == {"C-2": "k", "C-1": "j"}
    assert "2 of 4" in page


def test_columns_have_the_order_of_the_address_and_values_after_negation(
    viewer_client: Client, run: Run
) -> None:
    chosen = "case,meta.channel,evaluator.rude,metric.clarity,latency,attempts"
    page = open_table(viewer_client, run, f"?sort=case&columns={chosen}&density=compact")
    assert heads(page) == ["Case", "channel", "rude", "clarity", "Latency", "Attempts"]
    row = page.split('id="rows"')[1].split("</tr>")[0]
    cells = re.findall(r'data-label="([^"]*)"[^>]*>\s*([^<]*?)\s*<', row)
    assert cells == [
        ("channel", "ch1"),
        ("rude", "0.75"),
        ("clarity", "4.0"),
        ("Latency", "1.0\N{NO-BREAK SPACE}s"),
        ("Attempts", "1"),
    ]
    assert 'data-density="compact"' in page


def test_unknown_columns_are_named_and_the_rest_is_shown(viewer_client: Client, run: Run) -> None:
    page = open_table(viewer_client, run, "?columns=score,evaluator.gone,nonsense,<b>")
    assert heads(page) == ["Case", "Score"]
    note = page.split("Not in this run")[1].split("</p>")[0]
    assert [html.unescape(name) for name in re.findall("<code>(.*?)</code>", note)] == [
        "nonsense",
        "<b>",
        "evaluator.gone",
    ]


def test_the_file_of_a_table_follows_columns_order_and_filter(
    viewer_client: Client, run: Run
) -> None:
    query = "?columns=score,evaluator.tone,case,tag&sort=-evaluator.tone&q=tone%20%3E%200.3"
    page = open_table(viewer_client, run, query)
    link = re.search(r'href="([^"]*table\.csv[^"]*)"', page)
    assert link is not None
    response = viewer_client.get(html.unescape(link[1]))
    lines = csv.reader(io.StringIO(b"".join(response).decode("utf-8-sig")))
    assert list(lines) == [
        ["score", "evaluator.tone", "case", "title", "tags"],
        ["0.1", "0.9", "C-1", "Case C-1", ""],
        ["0.4", "0.5", "C-4", "Case C-4", ""],
    ]


def test_the_choices_move_columns_without_javascript(viewer_client: Client, run: Run) -> None:
    here = reverse("runs:run-display", args=(run.suite.slug, run.number))
    page = viewer_client.get(f"{here}?columns=case,score,latency&q=tone%3E0&up=latency").text
    chosen = re.findall(r'value="([^"]*)"\s+checked', page.split("columns-chosen")[1])
    assert chosen == ["case", "latency", "score"]
    assert 'name="q" value="tone&gt;0"' in page
    assert {"evaluator.tone", "evaluator.rude", "metric.clarity", "meta.channel"} <= set(
        re.findall(r'name="column"\s+value="([^"]*)"', page)
    )
    # What the form sends becomes an address; the usual columns are none of it.
    sent = "?by=evaluator.tone&order=down&usual=case,score&column=latency&column=case"
    response = viewer_client.get(
        reverse("runs:run-results", args=(run.suite.slug, run.number)) + sent,
        headers={"HX-Request": "true"},
    )
    assert response["HX-Push-Url"].endswith("?sort=-evaluator.tone&columns=latency,case")
    assert heads(response.text) == ["Latency", "Case", "tone"]


@pytest.mark.parametrize(
    "query",
    ["?sort=evaluator.tone", "?columns=evaluator.tone,evaluator.rude,metric.clarity,tokens,tool"],
)
def test_queries_do_not_grow_with_results(
    viewer_client: Client,
    django_assert_max_num_queries: Callable[[int], AbstractContextManager[Any]],
    query: str,
) -> None:
    for count in (3, 60):
        run = scored_by({**CHECK, "name": "tone"}, cases=count)
        for case in run.suite.cases.all():
            result = make_result(run=run, case=case, verdict="pass")
            make_score(result=result, path="tone", score=0.5)
        with django_assert_max_num_queries(28):
            open_table(viewer_client, run, query)


def test_the_api_lists_results_in_the_same_order(viewer_client: Client, run: Run) -> None:
    client = viewer_client
    address = f"/api/runs/{run.suite.slug}:{run.number}/results"
    for sort in ("evaluator.tone", "-evaluator.tone", "-latency", "attention"):
        listed: list[str] = []
        following = f"{address}?sort={sort}&limit=3"
        while following:
            answer = client.get(following).json()
            listed += [result["case"] for result in answer["results"]]
            following = answer["next"]
        assert listed == keys(open_table(client, run, f"?sort={sort}"))
    for sort, message in (
        ("evaluator.gone", "This run has no scores of evaluator.gone."),
        ("nonsense", "A list is sorted by one of"),
    ):
        refused = client.get(f"{address}?sort={sort}")
        assert refused.status_code == 400
        assert message in refused.text
    assert client.get(f"{address}?sort=latency&cursor=x").status_code == 400
