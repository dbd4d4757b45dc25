"""Comments on a result: written and answered by keyboard, with a member who is mentioned, on a phone too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.comments import Comment
from tests.browser.accessibility import violations
from tests.browser.conftest import Console
from tests.support.factories import make_scored_run, make_suite
from tests.support.members import make_member

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]


def test_a_member_is_mentioned_by_keyboard_and_answers(
    page: Page, live_server: LiveServer, log_in: LogIn, console: Console
) -> None:
    # Chromium tells of the text that is refused because somebody else changed it.
    console.allow("status of 422")
    run = make_scored_run(suite=make_suite(slug="support"), verdicts=["fail"])
    key = run.results.get().case.key
    make_member("editor", "ann")
    log_in("viewer")
    page.goto(f"{live_server.url}/suites/support/runs/1/{key}/1/")
    page.get_by_role("heading", name="Comments").scroll_into_view_if_needed()
    expect(page.locator("#comments-fold summary").first).to_contain_text("None")
    expect(page.get_by_label("New comment")).to_be_hidden()
    page.get_by_role("link", name="Comments", exact=True).click()
    field = page.get_by_label("New comment")
    field.press_sequentially("Is this right, @a")
    expect(page.get_by_role("option", name="@ann")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(field).to_have_value("Is this right, @ann ")
    expect(page.get_by_role("listbox")).to_have_count(0)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Comment added.")).to_be_visible()
    expect(page.locator(".mention")).to_have_text("@ann")
    assert violations(page) == []
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Your comment").fill("Is this wrong, @ann?")
    # Somebody has changed it in another window meanwhile.
    Comment.objects.update(revision=2, text="Changed")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("elsewhere meanwhile")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".mention")).to_have_text("@ann")
    page.locator("summary", has_text="Reply").click()
    page.get_by_label("Your reply").fill("I think so.")
    page.get_by_role("button", name="Reply").click()
    expect(page.locator(".replies")).to_contain_text("I think so.")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("button", name="Resolve").click()
    expect(page.locator(".threads summary").first).to_contain_text("Resolved by viewer")
    assert violations(page) == []
