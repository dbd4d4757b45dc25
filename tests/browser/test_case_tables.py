"""A spreadsheet becomes a suite that can be run: by script, by keyboard, on both widths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Suite
from tests.browser.conftest import Console
from tests.browser.test_every_page import CONTRAST, EVERY_RULE, barriers

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
ROWS = (
    "id;wording;Soll;outcomes;plan\r\n"
    "R-1;When is it due?;Soon;Names the days; pro\r\n"
    "R-1;Again?;;;\r\n"
    "R-2;<b>How much?</b>;;Names the sum;\r\n"
)


def begin(page: Page, live_server: LiveServer) -> None:
    """Upload the rows for a new suite."""
    page.goto(f"{live_server.url}/suites/new/")
    page.get_by_role("link", name="From a spreadsheet").click()
    page.get_by_label("Title").fill("Refunds")
    file = {"name": "refunds.csv", "mimeType": "text/csv", "buffer": ROWS.encode()}
    page.get_by_label("File", exact=False).first.set_input_files(file)
    page.get_by_role("button", name="Read the table").click()


def no_barrier(page: Page) -> None:
    """Look at the page wide and narrow, light and dark."""
    for width, theme in ((1440, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        assert barriers(page, EVERY_RULE) == []
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    assert barriers(page, CONTRAST) == []


def test_a_spreadsheet_becomes_a_suite(
    page: Page, live_server: LiveServer, log_in: LogIn, console: Console
) -> None:
    log_in("editor")
    begin(page, live_server)
    expect(page.get_by_role("heading", name="refunds.csv")).to_be_visible()
    expect(page.get_by_role("heading", name="1 row rejected")).to_be_visible()
    first = page.get_by_role("table", name="The first cases")
    expect(first.get_by_role("cell", name="<b>How much?</b>", exact=True)).to_be_visible()
    no_barrier(page)
    page.get_by_label("Soll", exact=True).select_option("expected_output")
    expect(first.get_by_role("cell", name="Soon", exact=True)).to_be_visible()
    page.get_by_label("wording", exact=True).focus()
    page.get_by_label("wording", exact=True).select_option("ignored")
    expect(page.get_by_text("No column is the input")).to_be_visible()
    expect(page.get_by_label("wording", exact=True)).to_be_focused()
    page.get_by_label("wording", exact=True).select_option("input")
    expect(first).to_be_visible()
    page.reload()
    expect(page.get_by_label("Soll", exact=True)).to_have_value("expected_output")

    console.allow("422")
    page.get_by_role("button", name="Store 2 cases").click()
    expect(page.get_by_text("1 row is rejected. Mend the file")).to_be_visible()
    page.get_by_label("Rejected rows are left out").check()
    page.get_by_role("button", name="Store 2 cases").press("Enter")
    expect(page.get_by_role("heading", name="Refunds is at version 1")).to_be_visible()
    no_barrier(page)
    page.goto(f"{page.url}store/")
    page.get_by_role("link", name="Look at the cases").click()
    expect(page.locator("#case-rows tbody tr")).to_have_count(2)
    assert Suite.objects.get().version == 1
