"""Choose results by mouse and keys, see what a retry takes, and run it, with and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.finishing import summarise_run
from runs.models.reviews import ReviewItem
from runs.models.runs import Run, RunEvent
from tests.browser.conftest import PATIENCE_MS, Console
from tests.browser.keyboard import press
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_suite,
    refresh_cases,
)

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]


@pytest.fixture
def run(transactional_db: None) -> Run:
    """Make a completed run of 60 cases: 45 failed, 14 passed, one errored, all with an output."""
    suite = make_suite(slug="support", title="Customer support")
    run = make_run(suite=suite)
    for number in range(1, 61):
        case = make_case(suite=suite, key=f"CS-{number:03}", position=number)
        verdict = "pass" if number > 46 else "fail" if number > 1 else ""
        facts = {"verdict": verdict} if verdict else {"status": "error", "error": "gone"}
        score = {"pass": 0.9, "fail": 0.3}.get(verdict)
        result = make_result(run=run, case=case, score=score, output={"text": "Hi."}, **facts)
        make_score(result=result, path="tone", score=score)
    return run


@pytest.fixture
def run_page(page: Page, live_server: LiveServer, log_in: LogIn, run: Run) -> Page:
    log_in("editor")
    page.goto(f"{live_server.url}/suites/support/runs/1/?sort=case")
    return page


def test_keys_and_mouse_choose_rows_and_update_the_count(run_page: Page) -> None:
    bar = run_page.locator(".picks")
    expect(bar).to_be_hidden()
    for key in "jxjjx":
        run_page.keyboard.press(key)
    expect(bar).to_contain_text("2 results selected")
    expect(run_page.get_by_label("Choose CS-001")).to_be_checked()
    expect(run_page.get_by_label("Choose CS-003")).to_be_checked()
    run_page.keyboard.press("x")
    expect(bar).to_contain_text("1 result selected")
    run_page.get_by_label("Choose every row shown").check()
    expect(bar).to_contain_text("50 results selected")
    run_page.get_by_role("link", name="Show more").click()
    expect(run_page.locator("#rows tr")).to_have_count(60)
    expect(bar).to_contain_text("50 results selected")
    run_page.get_by_role("button", name="Clear selection").click()
    expect(bar).to_be_hidden()


def test_chosen_rows_are_retried(run_page: Page, run: Run) -> None:
    run_page.get_by_role("link", name=re.compile(r"^Fail 45")).click()
    expect(run_page.locator("#rows tr")).to_have_count(45)
    for key in ("CS-002", "CS-010"):
        run_page.get_by_label(f"Choose {key}").check()
    run_page.get_by_role("button", name="Rerun 2 results").click()
    dialog = run_page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 of 60 results")
    expect(dialog).to_contain_text("original configuration")
    dialog.get_by_role("link", name="Cancel").click()
    expect(dialog).to_be_hidden()
    expect(run_page.locator(".picks")).to_contain_text("2 results selected")
    run_page.get_by_role("button", name="Rerun 2 results").click()
    dialog.get_by_label("Rescore the existing outputs").check()
    dialog.get_by_role("button", name="Rerun 2 results").click()
    expect(run_page.get_by_text("2 results are queued again.")).to_be_visible()
    expect(run_page).to_have_url(re.compile(r"verdict=fail"))
    assert run.results.filter(status="pending", keeps_output=True).count() == 2


def test_failures_are_tagged_and_sent_to_review_by_keyboard(
    run_page: Page, run: Run, console: Console
) -> None:
    run_page.get_by_role("link", name=re.compile(r"^Fail 45")).click()
    bar = run_page.locator(".picks")
    expect(bar.get_by_label("Select all 45 that match")).to_be_visible()
    expect(bar.get_by_role("button")).to_have_count(0)
    for _ in range(2):
        run_page.keyboard.press("j")
        run_page.keyboard.press("x")
    expect(bar).to_contain_text("2 results selected")
    bar.get_by_role("button", name="Add to review").press("Enter")
    dialog = run_page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Add 2 results to the review queue")
    dialog.get_by_role("link", name="Cancel").press("Enter")
    expect(bar).to_contain_text("2 results selected")
    bar.get_by_role("button", name="More actions").press("Enter")
    run_page.get_by_role("button", name="Tag these cases").press("Enter")
    console.allow("status of 422")
    dialog.get_by_label("Tags", exact=True).fill("w" * 201)
    run_page.keyboard.press("Enter")
    expect(dialog).to_contain_text("characters")
    dialog.get_by_role("link", name="Cancel").press("Enter")
    expect(bar).to_contain_text("2 results selected")
    bar.get_by_role("button", name="More actions").press("Enter")
    run_page.get_by_role("button", name="Tag these cases").press("Enter")
    dialog.get_by_label("Tags", exact=True).fill("weak")
    run_page.keyboard.press("Enter")
    expect(run_page.get_by_text("2 cases tagged weak")).to_be_visible()
    expect(run_page).to_have_url(re.compile(r"verdict=fail"))
    run_page.get_by_label("Select all 45 that match").check()
    bar.get_by_role("button", name="Add to review").press("Enter")
    dialog.get_by_role("button", name="Add to review queue").press("Enter")
    expect(run_page.get_by_text("45 results added to the review queue.")).to_be_visible()
    assert ReviewItem.objects.filter(run=run).count() == 45


def test_all_filtered_rows_can_be_chosen(run_page: Page, run: Run) -> None:
    run_page.get_by_label("Choose CS-001").check()
    run_page.get_by_label("All 60 of this run").check()
    run_page.get_by_role("button", name="Rerun 60 results").click()
    dialog = run_page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Rerun 60 results")
    dialog.get_by_role("button", name="Rerun 60 results").click()
    expect(run_page.get_by_text("60 results are queued again.")).to_be_visible()
    assert run.results.filter(status="pending").count() == 60


def test_chosen_rows_survive_live_updates(run_page: Page, run: Run) -> None:
    Run.objects.update(status="running", finished_at=None)
    run.results.filter(case__key="CS-060").update(status="running", verdict="", score=None)
    refresh_cases(run)
    run_page.reload()
    run_page.get_by_label("Choose CS-002").check()
    run.results.filter(case__key="CS-003").update(verdict="pass", score=0.95)
    refresh_cases(run)
    expect(run_page.get_by_role("row", name="CS-003")).to_contain_text("Pass")
    expect(run_page.get_by_label("Choose CS-002")).to_be_checked()
    expect(run_page.locator(".picks")).to_contain_text("1 result selected")


def test_one_evaluator_is_retried_after_the_dialog_shows_its_cost(run_page: Page, run: Run) -> None:
    rerun = run_page.get_by_role("link", name=re.compile(r"^Rerun \d+ failed"))
    press(run_page, rerun)
    dialog = run_page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text(re.compile(r"Rerun \d+ results"))
    run_page.keyboard.press("Escape")
    expect(rerun).to_be_focused()
    press(run_page, run_page.get_by_role("button", name="Rescore"))
    press(run_page, run_page.get_by_role("link", name="Rescore with tone"))
    expect(dialog).to_contain_text("60 of 60 results have an output for it")
    expect(dialog).to_contain_text("up to 60 calls of juno-2")
    dialog.get_by_label("Only the 1 it could not score").check()
    dialog.get_by_role("button", name="Rescore").click()
    expect(run_page.get_by_text("1 result is queued again.")).to_be_visible()
    assert run.results.get(status="pending").retry_paths == ["tone"]


def test_title_age_and_sidebar_follow_a_live_run(run_page: Page, run: Run) -> None:
    # The sidebar marks an ended run once its figures are computed.
    summarise_run(run.pk)
    Run.objects.update(status="running", finished_at=None, done_count=30, created_at=timezone.now())
    run_page.reload()
    expect(run_page).to_have_title(re.compile(r"^Run #1, 50\.0%"))
    expect(run_page.locator("#run-age")).not_to_contain_text("just now")
    running = run_page.locator("#recent-suites [data-verdict=running]")
    expect(running).to_have_count(1)
    Run.objects.update(done_count=45)
    expect(run_page).to_have_title(re.compile(r"^Run #1, 75\.0%"))
    Run.objects.update(done_count=60, status="completed", finished_at=timezone.now())
    expect(run_page).to_have_title(re.compile(r"^Run #1, failed "))
    expect(running).to_have_count(0)


def test_older_events_stay_unfolded_during_the_run(run_page: Page, run: Run) -> None:
    Run.objects.update(status="running", finished_at=None)
    for number in range(10):
        RunEvent.objects.create(run=run, kind="model_slowed", text=f"event {number}")
    run_page.reload()
    run_page.get_by_text("2 older").click()
    expect(run_page.get_by_text("event 0")).to_be_visible()
    RunEvent.objects.create(run=run, kind="model_slowed", text="event 10")
    expect(run_page.get_by_text("event 10")).to_be_visible()
    expect(run_page.get_by_text("event 0")).to_be_visible()


def test_a_budget_that_is_too_low_is_kept_with_its_error(
    run_page: Page, run: Run, console: Console
) -> None:
    console.allow("422")
    Run.objects.update(status="budget_reached", budget_usd="0.1", evaluation_cost_usd="0.24")
    run.results.filter(verdict="pass").update(status="cancelled", verdict="")
    run_page.reload()
    run_page.get_by_label("New budget in US dollars").fill("0.2")
    run_page.get_by_role("button", name="Run the 14 left").click()
    expect(run_page.locator("#budget-error")).to_contain_text("has spent $0.24 of $0.2")
    expect(run_page.get_by_label("New budget in US dollars")).to_have_value("0.2")
    run_page.get_by_label("New budget in US dollars").fill("5")
    run_page.get_by_role("button", name="Run the 14 left").click()
    expect(run_page.get_by_text("14 results are left to run.")).to_be_visible()


def test_the_bar_and_the_dialog_fit_on_a_phone(run_page: Page) -> None:
    run_page.set_viewport_size({"width": 390, "height": 844})
    run_page.get_by_label("Choose CS-002").check()
    bar = run_page.locator(".picks")
    expect(bar).to_be_in_viewport()
    run_page.get_by_role("button", name="Rerun 1 result").click()
    box = run_page.get_by_role("dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert run_page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.fixture
def plain_page(browser: Browser, context: BrowserContext, console: Console) -> Iterator[Page]:
    """Open a page in a browser without JavaScript, with the cookies of the first."""
    plain = browser.new_context(java_script_enabled=False)
    plain.set_default_timeout(PATIENCE_MS)
    plain.add_cookies(context.cookies())
    yield plain.new_page()
    plain.close()


@pytest.fixture
def logged_in(log_in: LogIn) -> User:
    return log_in("editor")


def test_without_javascript_forms_do_the_same(
    logged_in: User, plain_page: Page, live_server: LiveServer, run: Run
) -> None:
    plain_page.goto(f"{live_server.url}/suites/support/runs/1/?verdict=fail")
    expect(plain_page.get_by_role("link", name="What if")).to_be_hidden()
    plain_page.get_by_role("button", name="More", exact=True).click()
    expect(plain_page.get_by_role("link", name="What if")).to_be_visible()
    plain_page.keyboard.press("Escape")
    expect(plain_page.get_by_label("Choose every row shown")).to_be_hidden()
    plain_page.get_by_label("Choose CS-002").check()
    plain_page.get_by_label("Choose CS-003").check()
    plain_page.get_by_role("button", name="Rerun selected").click()
    expect(plain_page.get_by_role("heading", level=1)).to_have_text("Rerun 2 results")
    plain_page.get_by_label("Rescore the existing outputs").check()
    plain_page.get_by_role("button", name="Rerun 2 results").click()
    expect(plain_page.get_by_text("2 results are queued again.")).to_be_visible()
    expect(plain_page).to_have_url(re.compile(r"\?verdict=fail$"))
    assert run.results.filter(status="pending", keeps_output=True).count() == 2

    plain_page.get_by_label("Choose CS-004").check()
    plain_page.get_by_label("Select all 43 that match").check()
    plain_page.get_by_role("button", name="Rerun selected").click()
    expect(plain_page.get_by_role("heading", level=1)).to_have_text("Rerun 43 results")
    plain_page.get_by_role("link", name="Cancel").click()
    plain_page.get_by_role("button", name="Rescore", exact=True).click()
    plain_page.get_by_role("link", name="Rescore with tone").click()
    expect(plain_page.get_by_role("heading", level=1)).to_have_text("Rescore with tone")
