"""Create a token, use it, try the API on its page, and revoke the token."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.accessibility import violations
from tests.support.factories import make_scored_run, make_suite

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
DARK_AND_LIGHT: tuple[Literal["dark"], Literal["light"]] = ("dark", "light")
TOKEN = re.compile(r"evs_[\w-]{43}")


def violations_in_both_themes(page: Page) -> list[tuple[str, str, str]]:
    """Return what is wrong with the page dark and light, and leave it light."""
    found = []
    for theme in DARK_AND_LIGHT:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        found += violations(page)
    return found


def test_a_token_is_made_used_and_revoked_and_the_api_tried(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    make_scored_run(suite=make_suite(slug="support"), verdicts=["pass", "fail"])
    log_in("editor")
    page.goto(f"{live_server.url}/account/")
    page.get_by_role("main").get_by_role("link", name="API tokens").click()
    page.get_by_label("Name").fill("weekly report")
    page.get_by_role("button", name="Create token").click()
    secret = page.locator("#new-token").inner_text()
    assert TOKEN.fullmatch(secret)
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    assert violations(page) == []
    page.reload()
    expect(page.locator("#new-token")).to_have_count(0)

    page.get_by_role("link", name="Try the API").click()
    call = page.locator("#operations-runs-runs")
    call.locator(".opblock-summary-control").click()
    call.get_by_role("button", name="Try it out").click()
    call.get_by_placeholder("suite").fill("support")
    call.get_by_role("button", name="Execute").click()
    expect(call.locator(".live-responses-table")).to_contain_text('"name": "support:1"')
    expect(call.locator(".live-responses-table")).to_contain_text('"error": 0')
    assert violations_in_both_themes(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390

    page.goto(f"{live_server.url}/account/tokens/")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("link", name="Revoke weekly report").click()
    assert violations(page) == []
    page.get_by_role("button", name="Revoke the token").click()
    expect(page.get_by_role("cell", name="Revoked")).to_be_visible()
    expect(page.get_by_role("link", name="Revoke weekly report")).to_have_count(0)
