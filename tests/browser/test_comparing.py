"""From the list of runs to the one case that broke and what it lost, by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Locator, Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.runs import Run, RunStatus
from tests.browser.accessibility import violations
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
    make_target,
)

LogIn = Callable[[str], User]
CASES = 12
BROKEN = "C-007"
MAX_STOPS = 80


@pytest.fixture
def pair(transactional_db: None) -> list[Run]:
    """Make two runs of twelve cases, of which one lost an outcome and its verdict."""
    suite = make_suite(slug="support", title="Support")
    cases = [make_case(suite=suite, key=f"C-{n:03}", position=n) for n in range(1, CASES + 1)]
    runs = []
    for word in ("air", "sea"):
        run = make_run(suite=suite, status=RunStatus.COMPLETED)
        for case in cases:
            is_lost = word == "sea" and case.key == BROKEN
            result = make_result(
                run=run,
                case=case,
                verdict="fail" if is_lost else "pass",
                score=0.3 if is_lost else 0.9,
                outcome_marks="10" if is_lost else "11",
                output={
                    "text": f"Ship it by {word} today" if case.key == BROKEN else "Yes",
                    "outcomes": [
                        {"text": "Is kind", "passed": True, "justification": "It is."},
                        {
                            "text": "Names the way by air",
                            "passed": not is_lost,
                            "justification": "It names the sea." if is_lost else "It does.",
                        },
                    ],
                },
            )
            make_score(result=result, path="tone", score=0.3 if is_lost else 0.9)
        runs.append(run)
    return runs


def test_the_broken_case_is_reached_from_the_headline_by_keyboard(
    page: Page, live_server: LiveServer, log_in: LogIn, pair: list[Run]
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}/runs/")
    for _ in pair:
        page.keyboard.press("j")
        page.keyboard.press("x")
    press(page, page.get_by_role("button", name="Compare selected"))
    page.wait_for_url(re.compile(r"baseline=support:1&candidate=support:2"))
    expect(page.locator("h1")).to_contain_text("#2 vs #1 (baseline)")
    expect(page.get_by_role("heading", name="Evaluators, #2 minus #1")).to_be_visible()
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert violations(page) == []
    page.emulate_media(color_scheme="light")
    assert violations(page) == []
    cell = page.get_by_role("link", name="1 case, pass before, fail now")
    press(page, cell)
    page.wait_for_url(re.compile(r"cell=pass-fail"))
    rows = page.locator("#changes tbody tr")
    expect(rows).to_have_count(1)
    expect(cell).to_be_focused()
    expect(cell).to_have_attribute("aria-current", "true")
    page.keyboard.press("j")
    expect(rows.get_by_role("link")).to_be_focused()
    page.keyboard.press("o")
    page.wait_for_url(re.compile(r"/compare/case/"))
    lost = page.get_by_role("row", name="Names the way by air")
    expect(lost).to_contain_text("No longer met")
    expect(lost).to_contain_text("It names the sea.")
    expect(page.locator("del")).to_have_text("air")
    expect(page.locator("ins")).to_have_text("sea")
    back_to_the_comparison(page)


def back_to_the_comparison(page: Page) -> None:
    page.go_back()
    # The page itself, not the part that has its address too.
    expect(page.locator("h1")).to_contain_text("#2 vs #1 (baseline)")
    expect(page.locator("#changes tbody tr")).to_have_count(1)
    page.go_back()
    expect(page.locator("#changes .chip[aria-current]")).to_contain_text("Changed")


def test_a_search_filters_cases_while_typing_and_fits_on_a_phone(
    page: Page, live_server: LiveServer, log_in: LogIn, pair: list[Run]
) -> None:
    log_in("viewer")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{live_server.url}/compare/?baseline=support:1&candidate=support:2&show=all")
    rows = page.locator("#changes tbody tr")
    expect(rows).to_have_count(CASES)
    page.keyboard.press("t")
    expect(page.locator("#changes-text")).to_be_focused()
    page.keyboard.type("c-007")
    expect(rows).to_have_count(1)
    expect(page.locator("#changes-text")).to_be_focused()
    expect(page.locator("#changes-text")).to_have_value("c-007")
    expect(page).to_have_url(re.compile(r"q=c-007"))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    # Before the list of runs lies over the counts of the candidate, half of which would be too small to touch.
    assert violations(page) == []
    page.get_by_label("Choose another run as candidate").press("Enter")
    page.get_by_role("link", name="Another run, of this suite or another").first.wait_for(
        state="attached"
    )


def test_a_third_run_is_added_the_differences_shown_and_the_baseline_changed(
    page: Page, live_server: LiveServer, log_in: LogIn, pair: list[Run]
) -> None:
    third = make_run(suite=pair[0].suite, status=RunStatus.COMPLETED)
    for result in pair[1].results.all():
        make_result(run=third, case=result.case, verdict="pass", score=0.8)
    Run.objects.filter(pk=third.pk).update(done_count=CASES)
    Run.objects.filter(pk__in=[run.pk for run in pair]).update(done_count=CASES)
    log_in("viewer")
    page.goto(f"{live_server.url}/compare/?baseline=support:1&candidate=support:2")
    page.locator("details.panel > summary").press("Enter")
    expect(page.locator("#breakdown select")).to_be_visible()
    page.locator("summary", has_text="Add a run").press("Enter")
    page.get_by_role("link", name=re.compile("^#3 ")).press("Enter")
    expect(page.locator("h1")).to_have_text("3 runs side by side")
    rows = page.locator("#many tbody tr")
    expect(rows).to_have_count(CASES)
    expect(rows.first).to_contain_text(BROKEN)
    assert violations(page) == []
    page.wait_for_load_state()
    page.locator("#many-text").fill("c-007")
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="Make #3 baseline").press("Enter")
    expect(page.locator("main")).to_contain_text("Compared with #3, the baseline")
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert violations(page) == []


def press(page: Page, place: Locator) -> None:
    """Tab to a place and press Enter on it."""
    expect(place).to_be_visible()
    for _ in range(MAX_STOPS):
        page.keyboard.press("Tab")
        if place.evaluate("e => e === document.activeElement"):
            return page.keyboard.press("Enter")
    raise AssertionError(f"{place} was not reached in {MAX_STOPS} stops")


@pytest.mark.django_db(transaction=True)
def test_a_comparison_shows_long_names_whole_on_a_phone(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("editor")
    suite = make_suite(slug="support")
    for letter in "AB":
        name = letter * 120
        make_scored_run(
            suite=suite, target=make_target(name=name), target_name=name, verdicts=["pass"]
        )
    page.set_viewport_size({"width": 390, "height": 844})

    page.goto(f"{live_server.url}/compare/?baseline=support:1&candidate=support:2")

    ends = page.locator(".versus header p, .banner p").evaluate_all(
        "parts => parts.map((part) => part.getBoundingClientRect().right)"
    )
    assert len(ends) > 2
    assert max(ends) <= 390
