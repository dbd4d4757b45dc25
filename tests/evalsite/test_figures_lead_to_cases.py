"""Every count, bar and figure that pages draw leads to its cases, and a count to as many rows as it says."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import urljoin

import pytest
from django.contrib.auth.models import User
from django.test import Client

from evaluators.scoring.types import Verdict
from runs.models.runs import Campaign
from runs.models.suites import Suite
from runs.reviews.services import ReviewDecision, ask_for_review, decide
from tests.support.factories import make_campaign, make_scored_run, make_suite
from tests.support.queue import queued_run

pytestmark = pytest.mark.django_db

RUN, PAIR = "/suites/support/runs/2/", "/compare/?baseline=support:1&candidate=support:2"
PAGES = (
    *("/", "/suites/support/", "/runs/", RUN, PAIR, f"{PAIR}&show=all"),
    *("/suites/support/charts/", "/campaigns/{campaign}/"),
)
TALLY = re.compile(r'<ul class="tally">(.*?)</ul>', re.DOTALL)
COUNT = re.compile(r'<li data-verdict="\w+">(?:<a href="([^"]*)">)?.*?<b>(\d+)</b>', re.DOTALL)
STRIP = re.compile(r'<svg class="dist"(.*?)</svg>', re.DOTALL)
GATES = re.compile(r'<dl class="gates">(.*?)</dl>', re.DOTALL)
GATE = re.compile(r'<dd class="num">(.*?)</dd>', re.DOTALL)
MATRIX = re.compile(r'<table class="matrix.*?</table>', re.DOTALL)
# A cell of the matrix or a chip: its address and the cases behind it.
CELL = re.compile(r'<a\b[^>]*href="([^"]*)"[^>]*>\s*(\d+)', re.DOTALL)
CHIP = re.compile(
    r'<a\b(?=[^>]*class="chip")[^>]*href="([^"]*)"[^>]*>[^<]*(?:<svg.*?</svg>)?[^<]*<b>(\d+)</b>',
    re.DOTALL,
)


@pytest.fixture
def suite() -> Suite:
    suite = make_suite(slug="support", cases=0)
    campaign = make_campaign(suite=suite)
    for verdicts in (["pass", "fail", "borderline", "error"], ["fail", "pass", "pass", "pass"]):
        make_scored_run(suite=suite, verdicts=verdicts, campaign=campaign)
    return suite


def rows(page: str) -> int:
    """Return how many cases the table of a page lists."""
    tables = re.findall(r'<table class="results.*?</table>', page, re.DOTALL)
    return sum(len(re.findall(r'<th\s+scope="row"', table)) for table in tables)


def counts(page: str) -> Iterator[tuple[str, int]]:
    """Yield the address and the number of each count of a page; fails for one without an address."""
    for tally in TALLY.findall(page):
        for url, count in COUNT.findall(tally):
            assert url, f"no link at {tally}"
            yield html.unescape(url), int(count)
    for cell in [part for table in MATRIX.findall(page) for part in CELL.findall(table)]:
        yield html.unescape(cell[0]), int(cell[1])
    # Chips of other pages filter suites or runs.
    for url, count in CHIP.findall(page) if '<table class="results' in page else ():
        yield html.unescape(url), int(count)


def test_counts_bars_and_gates_lead_to_as_many_cases_as_they_say(
    viewer_client: Client, suite: Suite
) -> None:
    followed = set()
    campaign = Campaign.objects.get().pk
    for address in [page.format(campaign=campaign) for page in PAGES]:
        response = viewer_client.get(address)
        assert response.status_code == 200
        page = response.text
        for strip in STRIP.findall(page):
            assert strip.count("<rect") == strip.count("<a "), f"{address}: {strip}"
        for gate in [part for part in GATES.findall(page) for part in GATE.findall(part)]:
            assert "<a href=" in gate, f"{address}: {gate}"
        for url, count in counts(page):
            there = urljoin(address, url)
            if there in followed:
                continue
            followed.add(there)
            assert rows(viewer_client.get(there).text) == count, f"{address}: {there}"
    # Of both runs each verdict, and of the comparison its chips and the cells of its matrix.
    assert len(followed) > 15
    assert any("cell=" in url for url in followed)


# A column of a picture in its table: its address and, last, its number of cases.
COLUMN = re.compile(
    r'<tr>\s*<th scope="row"[^>]*>\s*<a href="([^"]*)">.*?<td[^>]*>\s*(\d+)\s*</td>\s*</tr>',
    re.DOTALL,
)


@pytest.mark.parametrize("name", ["scores", "latency", "cost"])
def test_columns_of_histograms_lead_to_as_many_cases_as_they_say(
    viewer_client: Client, suite: Suite, name: str
) -> None:
    page = viewer_client.get(f"{RUN}pictures/{name}/").text
    columns = COLUMN.findall(page)
    assert columns
    for url, count in columns:
        assert rows(viewer_client.get(urljoin(RUN, html.unescape(url))).text) == int(count), url


def test_counts_of_the_agreement_lead_to_as_many_results_as_they_say(
    editor: User, viewer_client: Client
) -> None:
    run = queued_run(["pass", "fail", "pass", "borderline"], slug="support")
    for result, person in zip(
        run.results.order_by("position"), ("pass", "fail", "fail", "pass"), strict=True
    ):
        decide(ask_for_review(result, by=editor), ReviewDecision(Verdict(person)), by=editor)
    address = "/suites/support/agreement/"
    page = viewer_client.get(address).text
    judges = re.findall(r'<a\s+href="([^"]*#cases)"\s+aria-label="(\d+) decision', page)
    cells = [*counts(page), *((html.unescape(url), int(count)) for url, count in judges)]
    assert len(cells) == 5
    for url, count in cells:
        there = viewer_client.get(urljoin(address, url)).text
        listed = there.split('id="cases"')[1].split("</table>")[0]
        assert len(re.findall("<tr>", listed.split("<tbody>")[1])) == count, url
