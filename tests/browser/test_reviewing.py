"""Review by keyboard alone: twenty items one after the other, a note, a skip, an undo, and two browsers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from runs.finishing import summarise_run
from runs.models.results import ResultOutput
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import Run
from tests.browser.accessibility import violations
from tests.browser.conftest import Console, opened_profile
from tests.support.factories import make_score, make_scored_run, make_suite
from tests.support.members import make_client, make_member
from tests.support.queue import NO_AUDIT, item_of, queued_run

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
KEYS = {"p": "pass", "b": "borderline", "f": "fail"}
ITEMS = 21


@pytest.fixture
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """Open a profile for each test: a clock that a test installs stays in it."""
    with opened_profile(browser) as opened:
        yield opened


@pytest.fixture
def run(transactional_db: None) -> Run:
    """Make a run whose results all wait, the first with an output, outcomes and a judge."""
    made = queued_run(["borderline"] * ITEMS)
    result = item_of(made).result
    outcomes = [{"text": "Names KB-207", "passed": False, "justification": "No such rule."}]
    steps = [{"type": "tool", "name": "find_order", "input": "FO-1", "output": "249"}]
    ResultOutput.objects.create(result=result, text="Held.", outcomes=outcomes, trace=steps)
    metrics = {"metrics": [{"key": "tone", "name": "Tone", "score": 3.0, "weight": 1.0}]}
    make_score(result=result, path="tone", score=0.4, reasoning="Invents.", kind="metrics_judge")
    result.scores.update(details=metrics)
    return made


def title(page: Page, key: str) -> None:
    """Wait until the item is on the page."""
    expect(page.locator("#item-title code")).to_have_text(key)


def type_keys(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_twenty_items_are_reviewed_by_keyboard_alone(
    page: Page, live_server: LiveServer, log_in: LogIn, run: Run
) -> None:
    log_in("reviewer")
    page.goto(live_server.url)
    type_keys(page, "g", "v")
    title(page, "C-001")
    expect(page.locator(".sidebar .count")).to_have_text("21 waiting")
    assert violations(page) == []
    type_keys(page, "e")
    page.keyboard.type("The reason is invented.")
    type_keys(page, "Escape", "f", "Control+Enter")
    title(page, "C-002")
    expect(page.get_by_role("status").filter(has_text="C-001 saved")).to_contain_text(
        "Borderline 0.71"
    )
    page.keyboard.press("s")
    title(page, "C-003")
    for number in range(3, ITEMS + 1):
        title(page, f"C-{number:03}")
        # Shift with a verdict's key saves it at once.
        key = "pbf"[number % 3]
        type_keys(page, *([key, "Enter"] if number % 2 else [key.upper()]))
    title(page, "C-002")
    expect(page.get_by_text("You skipped this one before")).to_be_visible()
    assert Review.objects.count() == ITEMS - 1
    assert Review.objects.get(result__case__key="C-001").note == "The reason is invented."
    page.keyboard.press("u")
    title(page, "C-021")
    expect(page.get_by_text("Review undone.")).to_be_visible()
    type_keys(page, "p", "Enter")
    title(page, "C-002")
    type_keys(page, "b", "Enter")
    expect(page.get_by_role("heading", name="All reviewed")).to_be_visible()
    verdicts = Review.objects.standing().values_list("result__case__key", "verdict")
    expected = {f"C-{number:03}": KEYS["pbf"[number % 3]] for number in range(3, ITEMS)}
    assert dict(verdicts) == expected | {"C-001": "fail", "C-002": "borderline", "C-021": "pass"}
    assert not ReviewItem.objects.waiting().exists()


def test_identical_outputs_are_decided_at_once_by_keyboard(
    page: Page, live_server: LiveServer, log_in: LogIn, transactional_db: None
) -> None:
    suite = make_suite(**NO_AUDIT)
    for text in ("Held.", "Held.", "Sent."):
        run = make_scored_run(verdicts=["borderline"], suite=suite, summary=None)
        assert summarise_run(run.pk)
        ResultOutput.objects.update_or_create(
            result=run.results.get(), defaults={"text": text, "messages": []}
        )
    log_in("reviewer")
    page.goto(f"{live_server.url}/review/")
    expect(page.locator("#review-head")).to_contain_text("run #1")
    type_keys(page, "a", "f")
    expect(page.get_by_role("checkbox", name="Also decide 1 identical output")).to_be_checked()
    assert violations(page) == []
    # The key shows at once that it was heard, before there is an answer.
    held: list[Route] = []
    page.route("**/decide/", lambda route: held.append(route))
    with page.expect_request("**/decide/"):
        page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Save and next")).to_have_css("opacity", "0.6")
    held[0].continue_()
    expect(page.locator("#review-head")).to_contain_text("run #3")
    page.unroute("**/decide/")
    saved = page.get_by_role("status").filter(has_text="saved on 2 identical outputs")
    expect(saved).to_have_count(1)
    # The offer is gone with what it was for.
    expect(page.locator("#review-together")).to_have_count(0)
    page.keyboard.press("u")
    expect(page.get_by_text("2 identical outputs are back in the queue.")).to_be_visible()
    type_keys(page, "a", "p", "Enter")
    expect(page.locator("#review-head")).to_contain_text("run #3")
    verdicts = Review.objects.standing().values_list("result__run__number", "verdict")
    assert sorted(verdicts) == [(1, "pass"), (2, "pass")]


def test_hiding_the_judge_keeps_the_note_and_the_filters(
    page: Page, live_server: LiveServer, log_in: LogIn, run: Run
) -> None:
    log_in("reviewer")
    page.goto(f"{live_server.url}/review/")
    page.get_by_label("Note").fill("So far")
    page.get_by_role("switch", name="Hide the judge until I decide").focus()
    page.keyboard.press("Space")
    expect(page.get_by_text("appear after you decide")).to_be_visible()
    expect(page.get_by_label("Note")).to_have_value("So far")
    expect(page.get_by_text("Invents.")).to_have_count(0)
    page.get_by_label("Suite", exact=True).select_option(run.suite.slug)
    expect(page).to_have_url(f"{live_server.url}/review/?suite={run.suite.slug}")
    page.get_by_label("Met", exact=True).check(force=True)
    page.keyboard.press("p")
    page.keyboard.press("Enter")
    title(page, "C-002")
    expect(page.locator("#decision-message")).to_contain_text("automatic verdict:")
    assert Review.objects.get().outcome_marks == "1"
    assert f"suite={run.suite.slug}" in page.url
    policy = run.snapshot["policy"] | {"review_blind": True}
    Run.objects.filter(pk=run.pk).update(snapshot={**run.snapshot, "policy": policy})
    page.goto(f"{live_server.url}/suites/{run.suite.slug}/runs/{run.number}/C-003/1/")
    assert violations(page) == []
    page.get_by_role("link", name="Decide now").click()
    title(page, "C-003")
    expect(page.get_by_text("hides the judge until you decide")).to_be_visible()


def test_two_browsers_never_decide_the_same_item(
    browser: Browser, page: Page, live_server: LiveServer, log_in: LogIn, run: Run, console: Console
) -> None:
    log_in("reviewer")
    console.allow("409")
    page.goto(f"{live_server.url}/review/")
    title(page, "C-001")
    other = make_member("reviewer", "ben")
    context = browser.new_context()
    name, cookies = settings.SESSION_COOKIE_NAME, make_client(other).cookies
    context.add_cookies([{"name": name, "value": cookies[name].value, "url": live_server.url}])
    beside = context.new_page()
    beside.goto(f"{live_server.url}/review/")
    title(beside, "C-002")
    for one in (page, beside):
        type_keys(one, "p", "Enter")
    for one in (page, beside):
        expect(one.get_by_role("status").filter(has_text="saved.")).to_be_visible()
    here, there = (one.locator("#item-title code").inner_text() for one in (page, beside))
    assert {here, there} == {"C-003", "C-004"}
    said = Review.objects.values_list("result__case__key", "reviewer__username").order_by("id")
    assert sorted(key for key, _ in said) == ["C-001", "C-002"]
    assert dict(said)["C-002"] == "ben"
    context.close()
    item = item_of(run, here)
    page.get_by_label("Note").fill("Mine")
    ReviewItem.objects.filter(pk=item.pk).update(reserved_by=other)
    type_keys(page, "Escape", "p", "Enter")
    expect(page.get_by_role("alert").filter(has_text="ben has this result open")).to_be_visible()
    expect(page.get_by_label("Note")).to_have_value("Mine")
    page.get_by_role("link", name="Next result").click()
    title(page, "C-005")
    assert Review.objects.count() == 2


def test_an_idle_page_releases_its_item_after_an_hour(
    page: Page, live_server: LiveServer, log_in: LogIn, run: Run
) -> None:
    log_in("reviewer")
    page.clock.install()
    held: list[str] = []
    page.on("request", lambda sent: held.append(sent.url) if sent.url.endswith("/hold/") else None)
    page.goto(f"{live_server.url}/review/")
    title(page, "C-001")
    page.locator("#hold").evaluate("part => part.dataset.first = ''")
    with page.expect_response("**/hold/"):
        page.clock.fast_forward("59:00")
    # Its next request is planned when the answer was put into the page.
    expect(page.locator("#hold:not([data-first], .htmx-added, .htmx-settling)")).to_have_count(1)
    # Of real time a slow machine may have taken a minute before.
    asked = len(held)
    page.clock.fast_forward("02:00")
    page.evaluate("fetch(location.href).then((answer) => answer.text())")
    assert len(held) == asked
    page.keyboard.press("Shift")
    with page.expect_response("**/hold/"):
        page.clock.fast_forward("01:05")
