"""Walk the pages of logging in and of members, with a keyboard's and a phone's eyes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from evalsite.access.members import login_path
from tests.browser.conftest import Console
from tests.support.members import PASSWORD, make_member

REFUSED = "the server responded with a status of"


def test_log_in_by_name_and_password(page: Page, live_server: LiveServer, console: Console) -> None:
    make_member("viewer", "mira")
    console.allow(f"{REFUSED} 422")
    page.goto(f"{live_server.url}/account/")
    page.get_by_label("Username").fill("mira")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("correct username and password")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("mira")
    expect(page).to_have_url(f"{live_server.url}/account/")


def test_a_one_time_link_takes_one_click(page: Page, live_server: LiveServer) -> None:
    mira = make_member("viewer", "mira")
    page.goto(live_server.url + login_path(mira))
    page.get_by_role("button", name="Log in as mira").click()
    page.goto(f"{live_server.url}/account/")
    expect(page.get_by_role("heading", level=1)).to_have_text("mira")


def test_an_admin_adds_a_member_who_sets_a_password(
    page: Page, context: BrowserContext, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    log_in("admin")
    page.goto(f"{live_server.url}/members/")
    page.get_by_role("link", name="Add a member").click()
    page.get_by_label("User name").fill("jonas")
    page.get_by_label("Editor", exact=False).check()
    page.get_by_role("button", name="Add member").click()
    link = page.get_by_label("Open it to set a password").input_value()
    page.get_by_role("button", name="Log out").click()

    page.goto(link)
    page.locator("[name=new_password1]").fill(PASSWORD)
    page.locator("[name=new_password2]").fill(PASSWORD)
    page.get_by_role("button", name="Set password and log in").click()
    page.goto(f"{live_server.url}/account/")
    expect(page.locator("main")).to_contain_text("Editor")


def test_removing_the_last_admin_is_refused_with_a_reason(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User], console: Console
) -> None:
    admin = log_in("admin")
    console.allow(f"{REFUSED} 422")
    page.goto(f"{live_server.url}/members/{admin.pk}/")
    page.get_by_role("button", name="Deactivate").click()
    expect(page.get_by_role("alert")).to_contain_text("admin is the last active admin")


@pytest.mark.parametrize(
    ("path", "status", "heading"),
    [("/members/", 403, "You cannot do this"), ("/nowhere/", 404, "There is nothing here")],
)
def test_an_error_page_links_back(
    page: Page,
    live_server: LiveServer,
    log_in: Callable[[str], User],
    console: Console,
    path: str,
    status: int,
    heading: str,
) -> None:
    log_in("viewer")
    console.allow(f"{REFUSED} {status}")
    response = page.goto(live_server.url + path)
    assert response is not None
    assert response.status == status
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page.get_by_role("link", name="Back to suites")).to_be_visible()


@pytest.mark.parametrize("path", ["/login/", "/account/", "/account/password/", "/members/"])
def test_nothing_is_cut_off_on_a_phone(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User], path: str
) -> None:
    if path != "/login/":
        log_in("admin")
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(live_server.url + path)
    sideways = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(sideways) == 0
