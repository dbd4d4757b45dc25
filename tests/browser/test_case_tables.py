"""A spreadsheet becomes a suite that can be run: by keyboard alone, and without a barrier on both widths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.suites import Suite
from tests.browser.accessibility import CONTRAST, violations
from tests.browser.conftest import Console
from tests.browser.keyboard import enter, press, tab_to

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
ROWS = (
    "id;wording;Soll;outcomes;plan\r\n"
    "R-1;When is it due?;Soon;Names the days; pro\r\n"
    "R-1;Again?;;;\r\n"
    "R-2;<b>How much?</b>;;Names the sum;\r\n"
)


def begin(page: Page, live_server: LiveServer) -> None:
    """Upload the rows for a new suite, by keyboard alone."""
    page.goto(f"{live_server.url}/new-suite/")
    press(page, page.get_by_role("link", name="From a spreadsheet"))
    # Both pages have a title.
    page.wait_for_url("**/from-table/")
    enter(page, page.get_by_label("Title"), "Refunds")
    # From here the browser opens no window of its own; it may take a moment until it obeys.
    with page.expect_file_chooser() as asked:
        tab_to(page, page.get_by_label("File", exact=False).first)
        page.keyboard.press("Space")
    file = {"name": "refunds.csv", "mimeType": "text/csv", "buffer": ROWS.encode()}
    asked.value.set_files(file)
    press(page, page.get_by_role("button", name="Read the table"))


def choose(page: Page, column: str, words: str, *, back: bool = False) -> None:
    """Say what a column holds by typing the beginning of it."""
    tab_to(page, page.get_by_label(column, exact=True), back=back)
    page.keyboard.type(words)


def choose_in_silence(page: Page, console: Console, column: str, words: str) -> None:
    """Choose while the server does not answer, and ask again when it does."""
    for text in ("ERR_FAILED", "htmx:sendError", "afterRequest"):
        console.allow(text)
    page.route("**/case-tables/**", lambda route: route.abort())
    choose(page, column, words)
    expect(page.locator("#table-read").get_by_role("alert")).to_contain_text(
        "Can't reach the server."
    )
    page.unroute("**/case-tables/**")
    press(page, page.get_by_role("button", name="Try again"))


def assert_accessible(page: Page) -> None:
    """Look at the page wide and narrow, light and dark."""
    for width, theme in ((1440, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        assert violations(page) == []
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    assert violations(page, CONTRAST) == []


def test_a_spreadsheet_becomes_a_suite(
    page: Page, live_server: LiveServer, log_in: LogIn, console: Console
) -> None:
    log_in("editor")
    begin(page, live_server)
    expect(page.get_by_role("heading", name="refunds.csv")).to_be_visible()
    expect(page.get_by_role("heading", name="1 row rejected")).to_be_visible()
    first = page.get_by_role("table", name="The cases as they will be stored")
    expect(first.get_by_text("<b>How much?</b>", exact=True).first).to_be_visible()
    assert_accessible(page)
    choose_in_silence(page, console, "Soll", "Expected output")
    expect(first.get_by_role("paragraph").get_by_text("Soon", exact=True)).to_be_visible()
    choose(page, "wording", "Left out", back=True)
    expect(page.get_by_text("No column is the input")).to_be_visible()
    expect(page.get_by_label("wording", exact=True)).to_be_focused()
    for _ in ("Key", "Title", "Input"):
        page.keyboard.press("ArrowDown")
    expect(first).to_be_visible()
    page.reload()
    expect(page.get_by_label("Soll", exact=True)).to_have_value("expected_output")

    console.allow("422")
    press(page, page.get_by_role("button", name="Store the ticked cases"))
    expect(page.get_by_text("1 row is rejected. Correct the file")).to_be_visible()
    press(page, page.get_by_label("Leave out rejected rows"), "Space")
    press(page, page.get_by_role("button", name="Store the ticked cases"))
    expect(page.get_by_role("heading", name="Refunds is at version 1")).to_be_visible()
    assert_accessible(page)
    page.goto(f"{page.url}store/")
    press(page, page.get_by_role("link", name="Look at the cases"))
    expect(page.locator("#case-rows tbody tr")).to_have_count(2)
    assert Suite.objects.get().version == 1
