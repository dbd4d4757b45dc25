"""A saved view from the member who saves it to those who open it: shared, a default, renamed, deleted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.support.factories import make_scored_run, make_suite

LogIn = Callable[[str], User]
# By what views are of: the page, the part with its rows, and what narrows them to one.
PAGES = {
    "results": ("/suites/support/runs/2/", "#rows tr", "verdict = fail"),
    "comparison": (
        "/compare/?baseline=support:1&candidate=support:2",
        "#changes tbody tr",
        "C-002",
    ),
    "cases": ("/suites/support/cases/", "#case-rows tbody tr", "C-002"),
    "runs": ("/compare/many/?runs=support:1,support:2", "#many tbody tr", "C-002"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_view_is_saved_shared_made_the_default_renamed_and_deleted(
    page: Page, live_server: LiveServer, log_in: LogIn, transactional_db: None, name: str
) -> None:
    suite = make_suite(slug="support", cases=0)
    make_scored_run(suite=suite, verdicts=["fail", "pass", "pass"])
    make_scored_run(suite=suite, verdicts=["pass", "fail", "pass"])
    path, row, text = PAGES[name]
    rows, views = page.locator(row), page.get_by_role("dialog", name="Saved views")

    log_in("editor")
    page.goto(live_server.url + path)
    count = rows.count()
    assert count > 1
    page.get_by_role("combobox", name="Filter cases").fill(text)
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Views").click()
    views.get_by_label("Save what is on screen as").fill("Broken")
    views.get_by_label("Share with all members").check()
    views.get_by_role("button", name="Save").click()
    page.wait_for_url(re.compile(r"[?&]view=\d+&q="))
    expect(page.get_by_role("status").filter(has_text="View Broken")).to_be_visible()

    # The plain page opens unchanged until the view is its default.
    page.goto(live_server.url + path)
    expect(rows).to_have_count(count)
    page.get_by_role("button", name="Views").click()
    views.get_by_role("link", name="Edit views").click()
    page.get_by_role("link", name="Edit Broken").click()
    page.get_by_label("Name").fill("Worse than before")
    page.get_by_label("Make it the default of the suite").check()
    page.get_by_role("button", name="Save view").click()

    log_in("viewer")
    page.goto(live_server.url + path)
    page.wait_for_url(re.compile(r"[?&]view=\d+&q="))
    expect(rows).to_have_count(1)
    expect(page.locator("#view-state")).to_have_text("View Worse than before")
    page.get_by_role("button", name="Views").click()
    views.get_by_role("link", name="No view").click()
    page.wait_for_url(re.compile(r"[?&]view=all"))
    expect(rows).to_have_count(count)
    page.get_by_role("button", name="Views").click()
    views.get_by_role("link", name=re.compile("Worse than before.*default of the suite")).click()
    expect(rows).to_have_count(1)

    log_in("admin")
    page.goto(f"{live_server.url}/suites/support/views/")
    page.get_by_role("link", name="Edit Worse than before").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url(re.compile(r"/views/$"))
    page.goto(live_server.url + path)
    expect(rows).to_have_count(count)
