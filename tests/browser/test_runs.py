"""Drive the run pages: live figures, filters, keys, stopping, and starting by the form."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from runs.finishing import summarise_run
from runs.models.runs import Run
from runs.models.suites import Suite
from tests.browser.conftest import Console
from tests.support.factories import (
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
    make_target,
)

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]


@pytest.fixture
def live_run(transactional_db: None) -> Run:
    """Make a run of 60 cases, half of them finished, as if a worker were at it."""
    suite = make_suite(slug="support", title="Customer support")
    started = timezone.now() - timedelta(minutes=4)
    run = make_run(suite=suite, status="running", started_at=started, finished_at=None)
    for number in range(1, 61):
        tags = ["refunds"] if number % 2 else ["delivery"]
        case = make_case(suite=suite, key=f"CS-{number:03}", position=number, tags=tags)
        verdict = ["pass", "pass", "borderline", "fail"][number % 4] if number <= 30 else ""
        make_result(run=run, case=case, verdict=verdict, score=0.9 if verdict else None)
    return run


@pytest.fixture
def run_page(page: Page, live_server: LiveServer, log_in: LogIn, live_run: Run) -> Page:
    log_in("editor")
    page.goto(f"{live_server.url}/suites/support/runs/1/")
    return page


def allow_silence(console: Console) -> None:
    """Expect the messages of a browser about unanswered requests."""
    for text in ("ERR_FAILED", "htmx:sendError", "afterRequest"):
        console.allow(text)


def test_figures_update_until_the_end_of_the_run(run_page: Page, live_run: Run) -> None:
    expect(run_page.locator("#run-live")).to_contain_text("30 of 60 results")
    Run.objects.update(done_count=45)
    expect(run_page.locator("#run-live")).to_contain_text("45 of 60 results")
    Run.objects.update(done_count=60, status="completed", finished_at=timezone.now())
    assert summarise_run(live_run.pk)
    expect(run_page.locator("#run-head")).to_contain_text("ran for")
    # It asks more often while the last figures are computed, and no more at the end.
    expect(run_page.locator("#run-live")).not_to_have_attribute("hx-trigger", re.compile("every"))
    expect(run_page.get_by_role("link", name="Run again")).to_be_visible()


def test_filters_change_rows_and_address_and_survive_a_reload(run_page: Page) -> None:
    run_page.get_by_role("link", name=re.compile(r"^Fail \d+")).click()
    expect(run_page).to_have_url(re.compile(r"\?verdict=fail$"))
    expect(run_page.locator("#rows tr")).to_have_count(7)
    run_page.keyboard.press("t")
    run_page.keyboard.type("CS-01")
    expect(run_page).to_have_url(re.compile(r"verdict=fail.*q=CS-01"))
    expect(run_page.get_by_label("Filter cases")).to_be_focused()
    expect(run_page.locator("#rows tr")).to_have_count(3)
    run_page.reload()
    expect(run_page.locator("#rows tr")).to_have_count(3)
    expect(run_page.get_by_label("Filter cases")).to_have_value("CS-01")


def test_a_filter_is_written_from_suggestions_by_keyboard(run_page: Page) -> None:
    field = run_page.get_by_role("combobox", name="Filter cases")
    offers = run_page.get_by_role("listbox", name="Suggestions")
    held: list[Route] = []
    run_page.keyboard.press("t")
    run_page.keyboard.type("ver")
    expect(offers.get_by_role("option")).to_have_count(1)
    expect(field).to_have_attribute("aria-expanded", "true")
    # The arrow key comes before the answer to the last letter, which keeps the choice.
    run_page.route("**/filter/?q=verd&**", lambda route: held.append(route))
    with run_page.expect_request("**/filter/?q=verd&**"):
        run_page.keyboard.type("d")
    run_page.keyboard.press("ArrowDown")
    expect(offers.get_by_role("option", selected=True)).to_contain_text("verdict")
    with run_page.expect_response("**/filter/?q=verd&**"):
        held.pop().continue_()
    expect(offers.get_by_role("option", selected=True)).to_contain_text("verdict")
    run_page.keyboard.press("Enter")
    expect(field).to_have_value("verdict ")
    run_page.keyboard.type("= fa")
    offers.get_by_role("option", name="fail").click()
    expect(field).to_have_value("verdict = fail ")
    expect(run_page.locator("#rows tr")).to_have_count(7)
    run_page.keyboard.type("scoer < 1")
    run_page.keyboard.press("Escape")
    expect(run_page.get_by_role("alert")).to_contain_text("Did you mean score?")
    expect(run_page.locator("mark")).to_have_text("scoer")
    expect(offers).to_have_count(0)
    run_page.keyboard.press("Escape")
    expect(field).not_to_be_focused()
    expect(field).to_have_value("verdict = fail scoer < 1")


def test_show_more_appends_rows(run_page: Page, console: Console) -> None:
    expect(run_page.locator("#rows tr")).to_have_count(50)
    allow_silence(console)
    run_page.route("**/results/**", lambda route: route.abort())
    run_page.get_by_role("link", name="Show more").click()
    expect(run_page.get_by_role("alert")).to_contain_text("Can't reach the server.")
    run_page.unroute("**/results/**")
    run_page.get_by_role("button", name="Try again").click()
    expect(run_page.locator("#rows tr")).to_have_count(60)
    expect(run_page.get_by_role("alert")).to_have_count(0)
    expect(run_page.get_by_role("link", name="Show more")).to_have_count(0)


def test_a_column_head_sorts_both_ways(run_page: Page) -> None:
    run_page.locator("#sort-case").click()
    expect(run_page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    expect(run_page.locator("#rows tr th code").first).to_have_text("CS-001")
    run_page.locator("#sort-case").click()
    expect(run_page.locator("#rows tr th code").first).to_have_text("CS-060")
    expect(run_page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "descending")


def test_columns_are_chosen_and_moved_beside_the_table(run_page: Page) -> None:
    heads = run_page.locator("table.results thead th:not(.pick)")
    run_page.get_by_role("button", name="Display").click()
    menu = run_page.get_by_role("dialog", name="Display of the table")
    menu.get_by_role("checkbox", name="Attempts").check()
    expect(heads.last).to_have_text("Attempts")
    menu.get_by_role("button", name="Move Score up").press("Enter")
    expect(heads.nth(1)).to_have_text("Score")
    menu.get_by_role("checkbox", name="Tags").press("Alt+ArrowUp")
    expect(heads.nth(3)).to_have_text("Tags")
    item = menu.get_by_role("listitem")
    item.filter(has_text="Cost").first.drag_to(item.first, target_position={"x": 150, "y": 2})
    expect(heads.first).to_have_text("Cost")
    menu.get_by_label("Sort by").select_option(label="Latency")
    expect(run_page.locator("th[aria-sort]")).to_have_text("Latency")
    expect(run_page).to_have_url(
        re.compile(r"\?sort=latency&columns=cost,verdict,score,case,tag,why")
    )
    # What is typed later keeps the columns, and what is chosen later keeps the filter.
    run_page.keyboard.press("Escape")
    run_page.locator("#results-text").fill("tag = refunds")
    expect(run_page).to_have_url(re.compile("q=tag.*columns=cost"))
    run_page.get_by_role("button", name="Display").click()
    menu.get_by_text("Compact", exact=True).click()
    expect(run_page).to_have_url(re.compile("q=tag.*columns=cost.*density=compact"))
    run_page.keyboard.press("Escape")
    run_page.set_viewport_size({"width": 390, "height": 844})
    assert run_page.evaluate("document.documentElement.scrollWidth") <= 390
    cell = run_page.locator("#rows td[data-label='Latency']").first
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"Latency"'


def test_a_menu_opened_again_offers_nothing_until_it_is_up_to_date(run_page: Page) -> None:
    run_page.get_by_role("button", name="Display").click()
    menu = run_page.get_by_role("dialog", name="Display of the table")
    expect(menu.get_by_role("checkbox", name="Attempts")).to_be_visible()
    run_page.keyboard.press("Escape")
    held: list[Route] = []
    run_page.route(re.compile("/display/"), lambda route: held.append(route))
    with run_page.expect_request(re.compile("/display/")):
        run_page.get_by_role("button", name="Display").click()
    expect(menu.get_by_role("checkbox", name="Attempts")).to_be_hidden()
    held[0].continue_()
    menu.get_by_role("checkbox", name="Attempts").check()
    expect(run_page.locator("table.results thead th").last).to_have_text("Attempts")


def test_what_is_chosen_waits_for_an_update_that_is_under_way(run_page: Page) -> None:
    run_page.get_by_role("button", name="Display").click()
    menu = run_page.get_by_role("dialog", name="Display of the table")
    expect(menu.get_by_role("checkbox", name="Attempts")).to_be_visible()
    held: list[Route] = []
    results = re.compile(r"/runs/\d+/results/(\?|$)")
    run_page.route(results, lambda route: held.append(route))
    with run_page.expect_request(results):
        run_page.evaluate("document.body.dispatchEvent(new Event('run-changed'))")
    menu.get_by_role("checkbox", name="Attempts").check()
    held[0].continue_()
    run_page.unroute(results)
    update = held[0].request.response()
    assert update is not None
    update.finished()
    expect(run_page.locator("table.results thead th").last).to_have_text("Attempts")
    expect(run_page.locator(".picks [name=everything]")).to_have_count(1)


def test_keys_open_a_result_and_the_next_one(run_page: Page) -> None:
    run_page.goto(run_page.url + "?sort=case")
    run_page.keyboard.press("j")
    run_page.keyboard.press("j")
    run_page.keyboard.press("Enter")
    opened = run_page.locator("#result-panel h1")
    expect(opened).to_contain_text("CS-002")
    run_page.keyboard.press("j")
    expect(opened).to_contain_text("CS-003")
    run_page.keyboard.press("k")
    expect(opened).to_contain_text("CS-002")


def test_cancelling_asks_first_and_keeps_results(run_page: Page, live_run: Run) -> None:
    run_page.get_by_role("button", name="Cancel run").click()
    dialog = run_page.get_by_role("dialog")
    expect(dialog).to_contain_text("30 of 60 results are finished and kept")
    dialog.get_by_role("button", name="Keep running").click()
    expect(dialog).to_be_hidden()
    run_page.get_by_role("button", name="Cancel run").click()
    dialog.get_by_role("button", name="Cancel run").click()
    expect(run_page.locator("#run-live")).to_contain_text("Cancelled by")
    expect(run_page.get_by_role("button", name="Run the 30 left")).to_be_visible()
    live_run.refresh_from_db()
    assert live_run.status == "stopped"


def test_lost_contact_is_shown_until_it_is_back(
    run_page: Page, console: Console, live_run: Run
) -> None:
    allow_silence(console)
    run_page.route("**/live/**", lambda route: route.abort())
    expect(run_page.get_by_text("Live updates paused.")).to_be_visible()
    run_page.unroute("**/live/**")
    expect(run_page.get_by_text("Live updates paused.")).to_be_hidden()


def test_a_live_page_whose_run_was_deleted_says_so(
    run_page: Page, live_run: Run, console: Console
) -> None:
    console.allow("404")
    live_run.results.all().delete()
    live_run.delete()
    expect(run_page.get_by_role("heading", level=1)).to_have_text("There is nothing here")


def test_a_refused_question_says_so_also_where_its_dialog_has_not_opened(
    run_page: Page, live_server: LiveServer, console: Console
) -> None:
    console.allow("403")
    # As a login in another tab changes it.
    changed = {"name": settings.CSRF_COOKIE_NAME, "value": "x" * 32, "url": live_server.url}
    run_page.context.add_cookies([changed])
    run_page.locator("table.results [type=checkbox]").nth(1).check()
    run_page.get_by_role("button", name="Add to review").click()
    expect(run_page.get_by_role("alert")).to_contain_text("The server refused this.")


def test_the_estimate_and_the_button_follow_the_form(
    page: Page, live_server: LiveServer, log_in: LogIn, console: Console
) -> None:
    log_in("editor")
    suite = make_suite(slug="support", judge=make_model(slug="juno-2"))
    for number in range(4):
        make_case(suite=suite, key=f"A{number}", recorded_output={"output": "hi"})
    make_target(name="agent 1")
    make_target(name="agent 2")
    page.goto(f"{live_server.url}/runs/new/")
    with page.expect_navigation():
        page.get_by_role("link", name=suite.title).click()
    page.get_by_label("agent 1").check()
    estimate = page.locator("#run-estimate")
    expect(estimate).to_contain_text("1 × 4 × 1 = 4")
    allow_silence(console)
    page.route("**/estimate/", lambda route: route.abort())
    page.get_by_label("agent 2").check()
    expect(estimate.get_by_role("alert")).to_contain_text("Can't reach the server.")
    page.unroute("**/estimate/")
    again = estimate.get_by_role("button", name="Try again")
    again.focus()
    again.press("Enter")
    expect(estimate).to_contain_text("2 × 4 × 1 = 8")
    expect(estimate.get_by_role("alert")).to_have_count(0)
    # The button that had the focus went with its banner: the keyboard goes on from what it brought.
    expect(estimate).to_be_focused()
    page.get_by_role("spinbutton", name="Repetitions").fill("3")
    expect(page.locator("#run-estimate")).to_contain_text("2 × 4 × 3 = 24")
    page.get_by_role("button", name="Start 2 runs").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Campaign")
    assert Run.objects.count() == 2


def choose_by_keyboard(page: Page, target: str, case: str) -> None:
    keys = page.keyboard
    page.get_by_label(target).focus()
    keys.press("Space")
    page.get_by_label("Cases", exact=True).focus()
    keys.type("Chosen")
    page.get_by_label("Search cases to choose").focus()
    keys.type(case.lower())
    expect(page.locator("#start-cases")).to_contain_text(f"1 case with “{case.lower()}”")
    page.get_by_label(f"{case} Case {case}").focus()
    keys.press("Space")


def test_a_run_of_chosen_cases_with_other_rules_is_started_by_keyboard(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("editor")
    suite = make_suite(slug="support", judge=make_model(slug="juno-2"))
    for number in range(60):
        make_case(suite=suite, key=f"A{number:02}", recorded_output={"output": "hi"})
    make_target(name="agent 1")
    make_target(name="agent 2")
    page.goto(f"{live_server.url}/suites/support/runs/new/")
    keys = page.keyboard
    estimate = page.locator("#run-estimate")
    choose_by_keyboard(page, "agent 1", "A57")
    expect(estimate).to_contain_text("1 × 1 × 1 = 1")
    page.locator("summary", has_text="Weights and thresholds").focus()
    keys.press("Enter")
    page.get_by_label("Weight of tone in this run").focus()
    keys.press("ControlOrMeta+a")
    keys.type("3")
    page.get_by_label("Samples").focus()
    keys.type("5")
    expect(estimate).to_contain_text("juno-2 5")
    with page.expect_navigation():
        keys.press("Enter")
    expect(page.locator("#start-run")).to_contain_text("1 changed for this run only")
    assert not Run.objects.exists()
    page.get_by_label("Samples").focus()
    keys.press("ControlOrMeta+Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run #1")
    expect(page.locator("#run-head")).to_contain_text("tone: Weight ×2 → ×3")
    assert [result.case.key for result in Run.objects.get().results.all()] == ["A57"]


def test_a_refused_form_keeps_what_was_entered(
    page: Page, live_server: LiveServer, log_in: LogIn, console: Console
) -> None:
    console.allow("422")
    log_in("editor")
    suite = make_suite(slug="support", judge=make_model(slug="juno-2"))
    make_case(suite=suite, recorded_output={"output": "hi"})
    make_target(name="agent 1")
    page.goto(f"{live_server.url}/suites/support/runs/new/")
    page.locator("summary", has_text="Name and notes").click()
    page.get_by_role("textbox", name="Note").fill("kept")
    Suite.objects.update(version=2)
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("main")).to_contain_text("this form was opened at version 1")
    expect(page.get_by_role("textbox", name="Note")).to_have_value("kept")
