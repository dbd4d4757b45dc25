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
from runs.models.runs import Campaign, Run
from runs.models.suites import Suite
from runs.reviews.services import ReviewDecision, ask_for_review, decide
from tests.support.charts import make_heated_run
from tests.support.factories import (
    make_campaign,
    make_result,
    make_run,
    make_scored_run,
    make_suite,
    make_target,
)
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
        assert len(re.findall("<tr>", listed.split("<tbody")[1])) == count, url


ERRORS = re.compile(r'<li data-verdict="error"><a href="[^"]*">.*?<b>(\d+)</b>', re.DOTALL)
RATE = re.compile(
    r'<a href="([^"]*\?q=verdict[^"]*)">(\d+)\.\d%</a><small\s*>(\d+) of\s+(\d+)</small>'
)


def body_rows(page: str, table: str) -> int:
    """Return how many rows the table with this beginning of its tag has."""
    return page.partition(table)[2].partition("<tbody")[2].partition("</tbody>")[0].count("<tr")


def linked(page: str, part: str) -> tuple[str, int]:
    """Return the address and the number of the first count that is a link behind a text."""
    found = re.search(r'<a\b[^>]*href="([^"]*)"[^>]*>\s*(\d+)', page.partition(part)[2], re.DOTALL)
    assert found, f"no count behind {part}"
    return html.unescape(found[1]), int(found[2])


def test_a_gate_without_a_figure_leads_nowhere(viewer_client: Client) -> None:
    make_scored_run(
        suite=make_suite(slug="support"), verdicts=["pending"], status="queued", finished_at=None
    )
    for address in ("/suites/support/runs/1/", "/runs/"):
        page = viewer_client.get(address).text
        assert "–" in page
        assert not re.search(r"<a\b[^>]*>–</a>", page), address


def test_counts_of_home_lead_to_as_many_suites_runs_and_results_as_they_say(
    viewer_client: Client, editor: User, suite: Suite
) -> None:
    make_scored_run(suite=make_suite(title="Travel"), verdicts=["pass", "error"])
    make_suite(title="Never run")
    for title in ("On", "Also on"):
        make_scored_run(
            suite=make_suite(title=title), verdicts=["running"], status="running", finished_at=None
        )
    for result in suite.runs.get(number=2).results.order_by("position")[:3]:
        ask_for_review(result, by=editor)
    home = viewer_client.get("/").text
    dashboard = home.partition('id="dashboard"')[2].partition("</dl>")[0]
    chips = CHIP.findall(home.partition('id="suite-chips"')[2])
    suites = [linked(dashboard, "Gates failing"), *((url, int(count)) for url, count in chips)]
    assert len(suites) == 6
    for url, count in suites:
        listed = viewer_client.get(urljoin("/", html.unescape(url))).text
        assert body_rows(listed, '<table class="suites"') == count, url
    # Errors are counted in results, and lead to the suites that have them.
    url, count = linked(dashboard, "Errors")
    erring = viewer_client.get(url).text
    errors = [int(each) for each in ERRORS.findall(erring)]
    assert (sum(errors), len(errors)) == (count, 1)
    url, count = linked(dashboard, "Running now")
    assert (body_rows(viewer_client.get(url).text, "<table"), count) == (2, 2)
    for part in ("Waiting for review", 'class="num waiting"'):
        url, count = linked(home, part)
        assert f"{count} of {count} waiting" in " ".join(viewer_client.get(url).text.split())


def test_counts_of_a_suite_campaign_and_target_lead_to_as_many_rows_as_they_say(
    viewer_client: Client, suite: Suite
) -> None:
    target = make_target(name="agent 1.5")
    Run.objects.update(target=target, target_name=target.name)
    tabs = viewer_client.get("/suites/support/").text.partition('class="tabs"')[2]
    for part, table in ((">Cases", "<table"), (">Runs", "<table")):
        link, _, after = tabs.partition(part)
        url = html.unescape(re.findall(r'href="([^"]*)"', link)[-1])
        count = re.search(r">(\d+)<", after)
        assert count, f"{part} has no count"
        assert body_rows(viewer_client.get(url).text, table) == int(count[1]), url
    address = f"/campaigns/{Campaign.objects.get().pk}/"
    chips = CHIP.findall(viewer_client.get(address).text.partition('id="campaign-cases"')[2])
    assert len(chips) > 1
    for url, number in chips:
        listed = viewer_client.get(urljoin(address, html.unescape(url))).text
        assert body_rows(listed, '<table class="compact cross"') == int(number), url
    # The pass rate of a target leads to what did not pass, as everywhere.
    for address in ("/targets/", f"/targets/{target.pk}/"):
        page = viewer_client.get(address).text
        rates = RATE.findall(page)
        assert len(rates) == 1
        url, rate, passed, ran = rates[0]
        assert int(rate) == 100 * int(passed) // int(ran)
        assert rows(viewer_client.get(url).text) == int(ran) - int(passed)


def test_a_figure_that_is_missing_leads_nowhere(viewer_client: Client) -> None:
    campaign, target = make_campaign(), make_target()
    columns = {"suite": campaign.suite, "campaign": campaign, "target": target}
    run = make_scored_run(verdicts=["error"], **columns)
    for address in ("/", "/targets/", f"/targets/{target.pk}/", f"/campaigns/{campaign.pk}/"):
        page = viewer_client.get(address).text
        assert f"/suites/{run.suite.slug}/" in page
        assert "–" in page
        assert not re.search(r"<a\b[^>]*>\s*(<b>)?\s*–", page), address


def test_counts_of_repetitions_lead_to_as_many_cases_as_they_say(viewer_client: Client) -> None:
    run = make_run(suite=make_suite(slug="support", cases=3), repetitions=2)
    ends = (("pass", "pass"), ("pass", "fail"), ("fail", "fail"))
    for case, verdicts in zip(run.suite.cases.order_by("position"), ends, strict=True):
        for number, verdict in enumerate(verdicts, start=1):
            make_result(run=run, case=case, repetition=number, verdict=verdict, score=0.5)
    page = viewer_client.get("/suites/support/runs/1/").text.partition('id="run-repetitions"')[2]
    for part, count in (("Passed every time", 1), ("Passed at least once", 2), ("Flaky", 1)):
        url, number = linked(page, part)
        assert (number, rows(viewer_client.get(url).text)) == (count, count), part
    columns = COLUMN.findall(viewer_client.get("/suites/support/runs/1/pictures/repetitions/").text)
    assert len(columns) == 3
    for url, number in columns:
        assert rows(viewer_client.get(urljoin(RUN, html.unescape(url))).text) == int(number), url


@pytest.mark.parametrize(
    "address", [f"{RUN}heat-map/", f"/compare/heat-map/{PAIR.partition('/compare/')[2]}"]
)
def test_every_cell_of_a_heat_map_opens_the_result_that_it_shows(
    viewer_client: Client, address: str
) -> None:
    before = make_heated_run((0.9, 0.0, 1.0), (0.4, 1.0, 0.34), (None, 0.0, None))
    make_heated_run((0.5, 1.0, 0.2), (0.4, 1.0, 0.34), (0.6, 0.0, 0.5), suite=before.suite)
    heated = viewer_client.get(address).text
    cells = re.findall(r"<td[^>]*data-(?:level|state)[^>]*>(.*?)</td>", heated, re.DOTALL)
    assert len(cells) == (12 if "compare" in address else 6)
    for cell in cells:
        link = re.search(r'<a href="([^"]*)" tabindex="-1">([^<]*)</a>', cell)
        assert link, cell
        result = viewer_client.get(html.unescape(link[1]))
        assert result.status_code == 200
        figure = link[2].lstrip("0")
        if figure != "!":
            assert f"{float(figure):.2f}" in result.text, cell
    # The head of a column lists what the evaluator scored low, or what fell.
    for url in re.findall(r'<th[^>]*>\s*<a\s+href="([^"]*\?[^"]*q=[^"]*)"', heated):
        assert rows(viewer_client.get(urljoin(address, html.unescape(url))).text) > 0, url
