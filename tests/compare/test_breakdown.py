"""A comparison by tag and metadata: groups with n of N, and p that are corrected for all groups."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from runs.models.runs import Run, RunStatus
from tests.support.factories import make_case, make_result, make_run, make_suite
from tests.support.members import make_client, make_member
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db
QUERY = "?baseline=support:1&candidate=support:2"


@pytest.fixture
def client() -> Client:
    return make_client(make_member("viewer"))


@pytest.fixture
def runs(db: None) -> list[Run]:
    """Two runs of 24 cases: all twelve that are tagged refund got worse, the others stayed."""
    suite = make_suite(slug="support")
    cases = [
        make_case(
            suite=suite,
            key=f"C-{n:03}",
            tags=["refund", "all of them"] if n % 2 else ["all of them"],
            metadata={"tier": "gold" if n < 6 else "silver", "nested": {"no": 1}, "size": n % 2},
        )
        for n in range(24)
    ]
    made = []
    for is_after in (False, True):
        run = make_run(suite=suite, status=RunStatus.COMPLETED)
        for n, case in enumerate(cases):
            is_worse = is_after and n % 2
            verdict, score = ("fail", 0.2) if is_worse else ("pass", 0.9)
            make_result(run=run, case=case, verdict=verdict, score=score)
        made.append(run)
    return made


def rows(response: Any) -> dict[str, str]:
    found = re.findall(r"<tr>\s*<th scope=\"row\".*?</tr>", response.text, re.DOTALL)
    texts = [" ".join(re.sub(r"<[^>]+>", " ", html.unescape(row)).split()) for row in found]
    return {re.split(r" \d+ of \d+ ", text)[0]: text for text in texts}


@pytest.mark.each_database
def test_cases_are_grouped_by_tag_with_corrected_evidence(client: Client, runs: list[Run]) -> None:
    response = client.get(f"/compare/breakdown/{QUERY}")
    shown = rows(response)
    assert [*shown] == ["all of them", "refund"]
    refund = shown["refund"].replace("\u00a0", " ")
    assert "12 of 12 100.0% → 0.0% −100.0 pts unlikely to be chance (p = 0.002)" in refund
    assert "90.0% → 20.0% −70.0 pts unlikely to be chance" in refund
    assert 'data-tone="bad"' in response.text
    assert "method for 4 tests" in text_of(response)
    link = re.search(r'href="([^"]+)#changes"\s*>refund<', response.text)
    assert link
    listed = client.get(html.unescape(link[1]))
    assert len(re.findall(r"<code>(C-\d+)</code>", listed.text)) == 12


def test_cases_are_grouped_by_a_key_of_their_metadata(client: Client, runs: list[Run]) -> None:
    response = client.get(f"/compare/breakdown/{QUERY}&by=tier")
    shown = rows(response)
    assert [*shown] == ["silver", "gold"]
    assert "6 of 6" in shown["gold"]
    assert shown["gold"].count("too few cases") == 1
    assert re.findall(r'<option value="([^"]*)"', response.text) == ["", "size", "tier"]
    link = re.search(r'href="([^"]+)#changes"\s*>gold<', response.text)
    assert link
    listed = client.get(html.unescape(link[1]))
    assert len(re.findall(r"<code>(C-\d+)</code>", listed.text)) == 6
    assert [*rows(client.get(f"/compare/breakdown/{QUERY}&by=nonsense"))][1] == "refund"


def test_a_group_that_no_filter_can_name_is_no_link(client: Client, runs: list[Run]) -> None:
    value = "long " * 400
    runs[0].suite.cases.update(metadata={"tier": value})
    response = client.get(f"/compare/breakdown/{QUERY}&by=tier")
    assert "24 of 24" in text_of(response)
    assert "#changes" not in response.text
    assert value.strip() not in response.text


def test_the_comparison_loads_it_when_it_is_opened(client: Client, runs: list[Run]) -> None:
    page = client.get(f"/compare/{QUERY}")
    assert 'hx-get="/compare/breakdown/?' in page.text
    assert 'hx-trigger="toggle from:closest details once"' in page.text
    assert not rows(page).keys() & {"refund"}
    headers = {"HX-Request": "true", "HX-Target": "breakdown"}
    part = client.get(f"/compare/breakdown/{QUERY}", headers=headers)
    assert part.text.lstrip().startswith('<div id="breakdown">')
    assert part["Cache-Control"] == "no-store"
    assert (
        client.get("/compare/breakdown/?baseline=support:1&candidate=support:1").status_code == 302
    )


def test_cases_without_tags_say_so(client: Client) -> None:
    suite = make_suite(slug="support")
    case = make_case(suite=suite, key="C-1")
    for _ in range(2):
        run = make_run(suite=suite, status=RunStatus.COMPLETED)
        make_result(run=run, case=case, verdict="pass", score=0.9)
    assert "No case of both runs has a tag." in text_of(client.get(f"/compare/breakdown/{QUERY}"))


def test_queries_do_not_grow_with_the_cases(
    client: Client, runs: list[Run], django_assert_max_num_queries: Any
) -> None:
    client.get(f"/compare/breakdown/{QUERY}")
    with django_assert_max_num_queries(14):
        client.get(f"/compare/breakdown/{QUERY}")
