"""Reading a run, home and the list of runs: what is on the first screen, by mouse, by keys and by Back."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from evaluators.scoring.types import Verdict
from runs.finishing import summarise_run
from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from runs.reviews.services import ReviewDecision, decide
from tests.support.factories import (
    make_campaign,
    make_score,
    make_scored_run,
    make_suite,
    make_user,
)

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
VERDICTS = ["pass"] * 10 + ["fail"] * 4 + ["error"]


@pytest.fixture
def run(transactional_db: None) -> Run:
    run = make_scored_run(suite=make_suite(slug="support", title="Support"), verdicts=VERDICTS)
    for result in run.results.all():
        make_score(result=result, path="tone", score=0.4)
        for place in range(16):
            make_score(result=result, path=f"evaluator_{place:02}", score=0.5 + place / 40)
    summarise_run(run.pk)
    return run


@pytest.fixture
def run_page(page: Page, live_server: LiveServer, log_in: LogIn, run: Run) -> Page:
    log_in("editor")
    page.goto(f"{live_server.url}/suites/support/runs/{run.number}/")
    return page


def test_verdict_gates_and_results_are_on_the_first_screen(run_page: Page) -> None:
    verdict, first = run_page.locator("#run-verdict"), run_page.locator("#rows th a").first
    expect(verdict).to_contain_text("Failed: mean score")
    top = run_page.locator("#run-results").bounding_box()
    row = first.bounding_box()
    assert top is not None
    assert row is not None
    assert (top["y"] < 700, row["y"] < 900) == (True, True)


# The pages with results, and what five Tabs reach from their beginning.
LISTS = {
    "/": "#suite-rows tbody th a",
    "/runs/": "#run-rows tbody th a",
    "/search/?q=verdict+%3D+fail": "#listed th a",
    "/targets/": "#listed th a",
    "/campaigns/": "#listed th a",
    "/review/": "[name=verdict]",
    "/compare/?baseline=support:1&candidate=support:2&show=all": "#changes tbody th a",
    "/compare/many/?suite=support": "#many tbody td a",
    "/suites/support/": "#health tbody th a",
    "/suites/support/cases/": "#case-rows tbody th a",
    "/suites/support/agreement/": "#listed th a",
    "/suites/support/runs/1/": "#rows th a",
}


def test_five_tabs_lead_to_the_first_result(run_page: Page, run: Run) -> None:
    later = make_scored_run(suite=run.suite, verdicts=VERDICTS, campaign=make_campaign())
    # Rules of the queue take items away that they would not pick themselves.
    summarise_run(later.pk)
    for result in later.results.all()[:2]:
        waiting = ReviewItem.objects.create(
            run=later, result=result, reasons=" borderline ", sampling_rate=0.5
        )
    decide(waiting, ReviewDecision(Verdict.FAIL), by=make_user(role="reviewer"))
    base = run_page.url.split("/suites/")[0]
    for path, place in LISTS.items():
        run_page.goto(base + path)
        tabs = 0
        while tabs < 5 and not run_page.locator(f"{place}:focus").count():
            run_page.keyboard.press("Tab")
            tabs += 1
            if run_page.locator(".skip:focus", has_text=re.compile("results|your verdict")).count():
                run_page.keyboard.press("Enter")
        assert run_page.locator(place).first.evaluate("e => e === document.activeElement"), path
    # A page without a list has no link that leads nowhere.
    run_page.goto(f"{base}/account/")
    expect(run_page.get_by_text("Skip to results")).to_be_hidden()


def test_counts_evaluators_and_rows_lead_to_cases_and_back_returns(run_page: Page) -> None:
    rows = run_page.locator("#rows tr")
    expect(rows).to_have_count(15)
    run_page.locator("#run-live .tally").get_by_role("link", name="4 fail").click()
    expect(rows).to_have_count(4)
    run_page.get_by_role("link", name=re.compile(r"^Pass 10")).click()
    expect(rows).to_have_count(10)
    expect(run_page).to_have_url(re.compile(r"verdict=pass"))
    run_page.go_back()
    expect(rows).to_have_count(4)
    run_page.go_back()
    expect(rows).to_have_count(15)

    evaluators = run_page.locator("#run-evaluators dl")
    evaluators.get_by_role("link", name="tone", exact=True).click()
    expect(run_page.locator("#results-text")).to_have_value("tone < 0.8")
    # The cell of the score has no link of its own: that of the row lies over it.
    run_page.wait_for_load_state()
    rows.first.locator("td.num").first.click(force=True)
    expect(run_page).to_have_url(re.compile(r"/runs/1/C-\d+/1/"))


def test_the_breakdown_leads_to_the_cases_that_fail_most(run_page: Page, run: Run) -> None:
    failing = run.results.filter(verdict="fail").values("case")
    run.suite.cases.filter(pk__in=failing).update(tags=["refund"])
    run.suite.cases.exclude(pk__in=failing).update(tags=["parcel"])
    run_page.get_by_text("Breakdown by tag and metadata").click()
    expect(run_page.locator("#breakdown tbody th")).to_have_text(["refund", "parcel"])
    run_page.locator("#breakdown").get_by_role("link", name="refund").click()
    expect(run_page.locator("#rows tr")).to_have_count(4)
    expect(run_page.locator("#results-text")).to_have_value("tag = refund")


def test_one_key_opens_the_first_failure_and_one_downloads_the_table(run_page: Page) -> None:
    with run_page.expect_download() as download:
        run_page.keyboard.press("d")
    assert download.value.suggested_filename.endswith(".csv")
    run_page.keyboard.press("]")
    expect(run_page.locator("#result-panel h1")).to_contain_text("Errored")


def test_typing_makes_one_step_for_back(run_page: Page) -> None:
    rows, field = run_page.locator("#rows tr"), run_page.locator("#results-text")
    field.press_sequentially("C-00")
    expect(run_page).to_have_url(re.compile(r"q=C-00$"))
    field.press_sequentially("3")
    expect(run_page).to_have_url(re.compile(r"q=C-003$"))
    expect(rows).to_have_count(1)
    run_page.go_back()
    expect(rows).to_have_count(15)


def test_what_waits_is_busy_until_the_answer_comes(run_page: Page) -> None:
    held: list[Route] = []
    run_page.route("**/results/?*", lambda route: held.append(route))
    chip = run_page.get_by_role("link", name=re.compile(r"^Fail 4"))
    chip.click()
    expect(run_page.locator("#run-results")).to_have_attribute("aria-busy", "true")
    expect(chip).to_have_class(re.compile("htmx-request"))
    expect(run_page.locator("#rows th a").first).to_have_css("opacity", "0")
    held[0].continue_()
    expect(run_page.locator("#rows tr")).to_have_count(4)
    expect(run_page.locator("[aria-busy]")).to_have_count(0)


def test_every_count_of_home_leads_to_its_list(
    page: Page, live_server: LiveServer, log_in: LogIn, run: Run
) -> None:
    log_in("viewer")
    make_scored_run(suite=make_suite(title="All is well"), verdicts=["pass"])
    page.goto(live_server.url)
    # What is wrong comes first.
    expect(page.locator("#suite-rows tbody tr").first).to_contain_text("Support")
    page.locator("#dashboard").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"\?show=failed"))
    expect(page.locator("#suite-rows tbody tr")).to_have_count(1)
    page.locator("#suite-rows .tally").get_by_role("link", name="4 fail").click()
    expect(page.locator("#rows tr")).to_have_count(4)
    panel = page.locator("#result-panel")
    expect(panel.locator("#verdict")).to_contain_text("Failed:")
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(page).to_have_url(re.compile(r"verdict=fail#"))


def test_runs_are_found_by_words_and_dates(
    page: Page, live_server: LiveServer, log_in: LogIn, run: Run
) -> None:
    log_in("viewer")
    make_scored_run(suite=make_suite(title="Billing"), verdicts=["pass"])
    page.goto(f"{live_server.url}/runs/")
    rows = page.locator("#run-rows tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("Filter runs").fill("bill")
    expect(rows).to_have_count(1)
    page.get_by_label("Filter runs").fill("")
    expect(rows).to_have_count(2)
    page.get_by_label("Started").select_option(label="Today")
    expect(page).to_have_url(re.compile(r"since="))
    page.go_back()
    expect(rows).to_have_count(2)


def test_forced_colours_keep_the_state_of_a_switch(
    context: BrowserContext, page: Page, live_server: LiveServer, log_in: LogIn, run: Run
) -> None:
    log_in("viewer")
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    page.goto(live_server.url)
    page.keyboard.press("?")
    switch = page.get_by_role("switch", name="Single-key shortcuts")
    on = switch.screenshot()
    switch.click()
    page.mouse.move(0, 0)
    expect(switch).not_to_be_checked()
    assert switch.screenshot() != on
    colours = "part => getComputedStyle(part, '::before').backgroundColor"
    tracks = "part => getComputedStyle(part).backgroundColor"
    assert switch.evaluate(colours) != switch.evaluate(tracks)
