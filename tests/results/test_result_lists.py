"""Stepping through results: J and K keep the list that a result was opened from."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from runs.models.runs import Run
from runs.results import result_page
from tests.support.factories import make_scored_run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True, params=["read", "stored"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find neighbours in the rows of a small run, and by the order of the database as in a large one."""
    if request.param == "stored":
        monkeypatch.setattr(result_page, "MAX_READ", 0)


@pytest.fixture
def run() -> Run:
    # C-001 error, C-002 pass, C-003 fail, C-004 pass, C-005 fail, C-006 borderline
    return make_scored_run(verdicts=("error", "pass", "fail", "pass", "fail", "borderline"))


def page(client: Client, run: Run, key: str, query: str = "") -> str:
    place = {"slug": run.suite.slug, "number": run.number, "key": key, "repetition": 1}
    response = client.get(reverse("runs:result", kwargs=place) + query)
    assert response.status_code == 200
    return response.text


def keys(text: str) -> dict[str, str]:
    """Return the address behind each key of the stepper."""
    links = re.findall(r'href="([^"]*)"\s+aria-keyshortcuts="([jk\[\]])"', text)
    return {key: address.replace("&amp;", "&") for address, key in links}


def label(text: str) -> str:
    found = re.search(r"<span>([\d,]+ of [^<]*)</span>", text)
    return found[1].strip() if found else ""


def test_without_a_list_the_order_is_that_of_the_suite(viewer_client: Client, run: Run) -> None:
    text = page(viewer_client, run, "C-002")
    found = keys(text)
    assert ("C-001" in found["k"], "C-003" in found["j"]) == (True, True)
    assert label(text) == "2 of 6"
    assert "?" not in found["j"]


def test_a_filter_is_kept_in_both_directions(viewer_client: Client, run: Run) -> None:
    table = viewer_client.get(
        reverse("runs:run", args=(run.suite.slug, run.number)), {"verdict": "fail"}
    ).text
    assert "/C-003/1/?from=run&amp;verdict=fail" in table
    text = page(viewer_client, run, "C-003", "?from=run&verdict=fail")
    found = keys(text)
    assert label(text) == "1 of 2 failed"
    assert found["j"].endswith("/C-005/1/?from=run&verdict=fail")
    assert "k" not in found
    last = page(viewer_client, run, "C-005", "?from=run&verdict=fail")
    assert label(last) == "2 of 2 failed"
    assert "j" not in keys(last)


def test_the_sorting_is_kept(viewer_client: Client, run: Run) -> None:
    text = page(viewer_client, run, "C-002", "?from=run&sort=-case")
    assert "C-003" in keys(text)["k"]
    assert "C-001" in keys(text)["j"]
    assert label(text) == "5 of 6"


def test_a_text_filter_says_matching(viewer_client: Client, run: Run) -> None:
    text = page(viewer_client, run, "C-002", "?from=run&q=verdict%3Apass")
    assert label(text) == "1 of 2 matching"
    assert "C-004" in keys(text)["j"]


def test_brackets_lead_from_failure_to_failure(viewer_client: Client, run: Run) -> None:
    found = keys(page(viewer_client, run, "C-004"))
    # Failures stand on both sides: the brackets lead where K and J do.
    assert (found["["], found["]"]) == (found["k"], found["j"])
    for query in ("?from=run&verdict=fail", "?from=run&q=verdict%3Afail"):
        found = keys(page(viewer_client, run, "C-003", query))
        assert found["]"] == found["j"]
    found = keys(page(viewer_client, run, "C-006"))
    assert found["["] == found["k"]
    assert "C-005" in found["["]
    found = keys(page(viewer_client, run, "C-002", "?from=run&verdict=pass"))
    assert set(found) == {"j"}


@pytest.mark.parametrize("query", ["?from=run&verdict=fail", "?from=run&q=%28", "?from=elsewhere"])
def test_a_list_without_the_result_or_unreadable_still_shows_it(
    viewer_client: Client, run: Run, query: str
) -> None:
    assert "Why it passed" in page(viewer_client, run, "C-002", query)


def test_the_queries_do_not_grow_with_the_run(
    viewer_client: Client, django_assert_max_num_queries
) -> None:
    run = make_scored_run(verdicts=("fail", "pass") * 40)
    with django_assert_max_num_queries(50):
        page(viewer_client, run, "C-020", "?from=run&verdict=pass&sort=-score")
