"""Drive one result: its calls on demand, folds, and a page that fills in by itself."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from evalsite.access.models import MemberSession
from runs.models.results import Result, ResultOutput
from tests.results.test_result_page import ATTACK, at, judged
from tests.support.factories import (
    make_call,
    make_case,
    make_result,
    make_run,
    make_scored_run,
    make_suite,
)

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]


def test_requests_and_replies_load_on_demand(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    result = judged(text_=f"**Yes.** {ATTACK}")
    make_call(result=result, status="server_error", http_status=500, reply=None)
    make_call(result=result)
    page.goto(live_server.url + at(result))
    page.get_by_role("link", name="Show requests and replies").click()
    calls = page.locator("#result-calls li")
    expect(calls).to_have_count(2)
    expect(calls.first).to_contain_text("Server error 500")
    calls.last.locator("summary").click()
    expect(calls.last).to_contain_text("Score this.")


def test_the_tree_unfolds_to_the_reasons_of_each_evaluator(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    page.goto(live_server.url + at(judged()))
    tone = page.locator(".tree details", has=page.locator("code", has_text="tone")).last
    expect(tone).to_contain_text("Kind enough.")


def test_an_open_result_updates_when_it_is_finished(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    suite = make_suite()
    run = make_run(suite=suite, status="running")
    result = make_result(run=run, case=make_case(suite=suite), status="running")
    page.goto(live_server.url + at(result))
    expect(page.locator("#result-progress")).to_contain_text("Running.")
    Result.objects.update(status="scored", verdict="pass", score=0.9, decided_by="0.90 ≥ 0.80")
    expect(page.get_by_role("heading", name="Why it passed")).to_be_visible()


def test_search_from_the_sidebar_opens_a_case_by_its_key(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    make_case(suite=make_suite(slug="support"), key="CS-042", title="A torn tent")
    page.goto(live_server.url + reverse("runs:run-list"))
    page.keyboard.press("/")
    page.keyboard.type("cs-042")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("A torn tent")


def test_the_flaky_chip_leads_to_the_repetitions_of_a_case(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    run = make_run(suite=make_suite(cases=2), repetitions=2)
    first, second = run.suite.cases.all()
    for case, scores in ((first, (0.9, 0.9)), (second, (0.9, 0.3))):
        for repetition, score in enumerate(scores, start=1):
            verdict = "pass" if score > 0.8 else "fail"
            make_result(run=run, case=case, repetition=repetition, verdict=verdict, score=score)
    place = {"slug": run.suite.slug, "number": run.number}
    page.goto(live_server.url + reverse("runs:run", kwargs=place))
    page.locator("#chip-flaky").click()
    expect(page.locator("#rows tr")).to_have_count(1)
    page.get_by_role("link", name="Repetition 1: pass, 0.90").click()
    expect(page.locator("#over")).to_contain_text("1 of 2 passed: verdicts differ.")
    # The text is there before the scripts that listen to keys.
    page.wait_for_load_state()
    page.keyboard.press("l")
    expect(page.locator("#verdict")).to_contain_text("Why it failed")


def test_a_result_opens_beside_its_table_on_a_wide_window(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("editor")
    run = make_scored_run(verdicts=("fail", "pass", "fail", *["pass"] * 30))
    address = reverse("runs:run", args=(run.suite.slug, run.number))
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{live_server.url}{address}?verdict=fail")
    row = page.locator("#rows a").first
    row.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    row.click()
    panel = page.locator("#result-panel")
    expect(panel.get_by_role("heading", name="Why it failed")).to_be_visible()
    expect(panel.locator(".stepper")).to_contain_text("1 of 2 failed")
    assert "/C-001/1/?from=run&verdict=fail" in page.url
    page.keyboard.press("j")
    expect(panel.locator(".stepper")).to_contain_text("2 of 2 failed")
    assert "/C-003/1/" in page.url
    # A screen reader reads the name of what has the focus now.
    shown = page.get_by_role("complementary", name=re.compile("^Case C-003 Fail"))
    expect(shown).to_be_focused()
    expect(page.locator("tr[data-shown]")).to_contain_text("C-003")
    page.go_back()
    expect(panel.locator(".stepper")).to_contain_text("1 of 2 failed")
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    assert page.url == f"{live_server.url}{address}?verdict=fail"
    assert page.evaluate("scrollY") == before
    expect(row).to_be_focused()
    row.press("Enter")
    expect(panel).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Why it failed")).to_be_visible()
    expect(panel).to_have_count(0)
    # One click, and what is missing can be typed.
    page.locator("summary", has_text="Add outcome").click()
    expect(page.get_by_label("Expected outcome", exact=True)).to_be_focused()


def test_on_a_narrow_window_a_result_is_a_page(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    run = make_scored_run(verdicts=("fail", "pass"))
    word = "very_" * 20 + "long"
    for result in run.results.all():
        ResultOutput.objects.update_or_create(result=result, defaults={"text": word})
    page.set_viewport_size({"width": 1000, "height": 800})
    page.goto(live_server.url + reverse("runs:run", args=(run.suite.slug, run.number)))
    page.locator("#rows a").first.click()
    expect(page.get_by_role("heading", name="Why it failed")).to_be_visible()
    expect(page.locator("#result-panel")).to_have_count(0)
    # On a phone no word of the output is cut.
    page.set_viewport_size({"width": 390, "height": 844})
    output = page.get_by_text(word).first
    assert output.evaluate("text => text.getBoundingClientRect().right") <= 390


def test_steps_pressed_before_a_result_is_there_wait_for_it(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    run = make_scored_run(verdicts=("fail", "fail", "fail"))
    address = reverse("runs:run", args=(run.suite.slug, run.number))
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{live_server.url}{address}?verdict=fail")
    held: list[Route] = []
    page.route("**/C-001/1/*", lambda route: held.append(route))
    with page.expect_request("**/C-001/1/*"):
        page.locator("#rows a").first.click()
    page.keyboard.press("j")
    page.keyboard.press("j")
    held[0].continue_()
    expect(page.locator("#result-panel .stepper")).to_contain_text("3 of 3 failed")
    assert "/C-003/1/" in page.url


def test_a_step_shows_the_next_result_without_loading_a_page(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    run = make_scored_run(verdicts=("fail", "pass", "fail", "fail"))
    place = reverse("runs:result", args=(run.suite.slug, run.number, "C-001", 1))
    page.goto(f"{live_server.url}{place}?from=run&verdict=fail")
    page.evaluate("() => { window.isFirst = true; }")
    stepper, heading = page.locator("main .stepper"), page.get_by_role("heading", level=1)

    page.keyboard.press("j")
    expect(stepper).to_contain_text("2 of 3 failed")
    # A screen reader reads the heading, and the tab is named after it.
    expect(heading).to_be_focused()
    expect(page).to_have_title(re.compile(r"^Case C-003, run #1"))
    page.get_by_role("navigation", name="On this page").get_by_role("link", name="Output").click()
    assert page.url.endswith("/C-003/1/?from=run&verdict=fail#output")
    page.keyboard.press("j")
    expect(stepper).to_contain_text("3 of 3 failed")

    # Back goes one state: to the part, to the result before.
    page.go_back()
    expect(stepper).to_contain_text("2 of 3 failed")
    page.go_back()
    assert page.url.endswith("/C-003/1/?from=run&verdict=fail")
    page.go_back()
    expect(stepper).to_contain_text("1 of 3 failed")
    expect(page).to_have_title(re.compile(r"^Case C-001, run #1"))
    assert page.evaluate("() => window.isFirst")

    # What is shown is the result of now, and after the login ended nothing.
    run.results.filter(case__key="C-003").update(verdict="pass", score=1)
    run.cases.refresh(run.pk, run.results.filter(case__key="C-003").values_list("case", flat=True))
    page.keyboard.press("j")
    expect(heading).to_contain_text("Pass")
    page.go_back()
    expect(stepper).to_contain_text("1 of 2 failed")
    MemberSession.objects.all().delete()
    page.keyboard.press("j")
    page.wait_for_url("**/login/**")


def test_a_key_pressed_right_after_a_link_to_a_part_keeps_the_way_back(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    run = make_scored_run(verdicts=("fail", "fail"))
    place = reverse("runs:result", args=(run.suite.slug, run.number, "C-001", 1))
    page.goto(f"{live_server.url}{place}?from=run")
    # The browser tells of the part only later: the step comes first.
    page.evaluate("""() => {
      window.isFirst = true;
      document.querySelector('main a[href="#output"]').click();
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
    }""")
    expect(page).to_have_title(re.compile("^Case C-002"))
    page.go_back()
    expect(page).to_have_title(re.compile("^Case C-001"))
    assert page.evaluate("() => window.isFirst")


def test_back_leads_from_a_reloaded_result_to_its_list(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    run = make_scored_run(verdicts=("fail", "fail"))
    page.goto(live_server.url + reverse("runs:run", args=(run.suite.slug, run.number)))
    page.locator("#rows a").first.click()
    expect(page.locator("#result-panel").get_by_role("heading", level=1)).to_be_visible()
    expect(page).to_have_title(re.compile("^Case C-001"))
    page.reload()
    page.keyboard.press("j")
    expect(page).to_have_title(re.compile("^Case C-002"))
    page.go_back()
    expect(page).to_have_title(re.compile("^Case C-001"))
    page.go_back()
    expect(page.locator("#rows tr")).to_have_count(2)
    expect(page.locator("#result-panel")).to_have_count(0)
