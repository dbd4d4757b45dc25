"""A list in which nothing matches says without which condition something does, and leads there."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.filters.queries import MAX_COUNTED
from runs.models.suites import Suite
from tests.support.factories import make_scored_run, make_suite

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]

RUN, CASES, SEARCH = "/suites/support/runs/2/", "/suites/support/cases/", "/search/"
PAIR = "/compare/?baseline=support:1&candidate=support:2&"
MANY = "/compare/many/?runs=support:1,support:2&"
# The head of a row with a case.
CASE = re.compile(r'<th scope="row">\s*(?:<a[^>]*>\s*)?<code>')


@pytest.fixture
def suite() -> Suite:
    suite = make_suite(slug="support", cases=0)
    for last in ("pass", "fail"):
        make_scored_run(suite=suite, verdicts=["pass", "fail", last, "pass"])
    return suite


def without(page: str) -> list[tuple[str, str]]:
    """Return the text and the address of each way out of an empty list."""
    links = re.findall(r'<a\s+href="([^"]*)"\s+data-without\s*>(.*?)</a>', page, re.DOTALL)
    plain = [" ".join(re.sub(r"<[^>]*>", "", text).split()) for _, text in links]
    return [
        (html.unescape(text), html.unescape(url))
        for text, (url, _) in zip(plain, links, strict=True)
    ]


@pytest.mark.parametrize(
    ("page", "query", "said"),
    [
        (RUN, "?q=verdict = fail score > 0.99", ["2 cases match without score > 0.99"]),
        (RUN, "?verdict=pass&q=C-002",
         ["1 case matches without verdict = pass", "2 cases match without C-002"]),
        (RUN, "?tag=nowhere", ["4 cases match without tag = nowhere"]),
        (RUN, "?q=C-001 C-002 C-003", []),
        (CASES, "?verdict=error&q=C-00",
         ["4 cases match without verdict = error"]),
        (CASES, "?q=C-001 case = C-002",
         ["1 case matches without C-001", "1 case matches without case = C-002"]),
        (PAIR, "show=improved&q=C-003", ["1 case matches without improved"]),
        (PAIR, "cell=fail-pass&q=C-003", ["1 case matches without fail before, pass now"]),
        (PAIR, "q=verdict fell tag = none score > 2",
         ["1 case matches without score > 2"]),
        (MANY, "differences=1&q=C-001",
         ["1 case matches without only differences", "1 case matches without C-001"]),
        (SEARCH, "?q=verdict = fail score > 0.99",
         ["3 results match without score > 0.99"]),
    ],
)  # fmt: skip
def test_each_way_out_of_an_empty_list_leads_to_as_many_rows_as_it_says(
    viewer_client: Client, suite: Suite, page: str, query: str, said: list[str]
) -> None:
    empty = viewer_client.get(page + quote(query, safe="?&=")).text
    assert 'scope="row"' not in empty.partition('<div class="empty">')[0].rpartition("<header>")[2]
    found = without(empty)
    assert [text for text, _ in found] == said
    if not said:
        assert "No single condition leaves out all" in empty
    for text, url in found:
        there = page.partition("?")[0] + url if url.startswith("?") else url
        part = viewer_client.get(there).text
        rows = part.count('name="case"') or len(CASE.findall(results(part)))
        assert rows == int(text.split()[0]), text


def results(page: str) -> str:
    """Return the table of cases or results of a page."""
    return re.search(r'<table class="(?:many )?results.*?</table>', page, re.DOTALL)[0]


def test_an_empty_list_is_explained_by_few_counts(viewer_client: Client, suite: Suite) -> None:
    def queries(address: str) -> int:
        with CaptureQueriesContext(connection) as done:
            assert "match without" in viewer_client.get(address).text
        return len(done.captured_queries)

    # Whose tags are read once.
    viewer_client.get(RUN)
    few, many = (
        queries(f"{RUN}?q={quote(' '.join(['score < 0', *['verdict = fail'] * more]))}")
        for more in (MAX_COUNTED - 1, 19)
    )
    assert few == many


@pytest.mark.parametrize("name", ["bulk", "export", "suite"])
def test_an_action_on_no_case_of_a_suite_is_refused_with_what_to_do(
    editor_client: Client, suite: Suite, name: str
) -> None:
    path = reverse(f"runs:case-{name}", args=(suite.slug,))
    for sent, said in (
        ({}, "No case is ticked. Tick some rows"),
        ({"everything": "1", "q": "nothing"}, "No case matches the filter. Change or clear it"),
    ):
        sent |= {"action": "tag", "tags": "late", "format": "csv"}
        refused = editor_client.post(path, sent, follow=True)
        assert said in refused.text
        assert refused.request["PATH_INFO"] == CASES
        # Where nothing is listed, nothing is offered.
        assert ('id="case-bulk"' in refused.text) == ("q" not in sent)
