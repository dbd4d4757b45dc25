"""The site as it is really served: gunicorn, the embedded worker, a database of its own."""

from __future__ import annotations

import json
import os
import signal
import urllib.request

from playwright.sync_api import Page, expect

from tests.services.processes import wait_until
from tests.services.site import Site, is_healthy


def test_a_first_visit_by_the_link_of_the_command_line(page: Page, site: Site) -> None:
    page.goto(site.login_link())
    page.get_by_role("button", name="Log in as admin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Suites")
    page.get_by_role("navigation", name="Site").get_by_text("Settings", exact=True).click()
    page.get_by_role("link", name="Members").click()
    expect(page.get_by_role("row", name="admin")).to_contain_text("Active")


def test_a_killed_process_restarts(site: Site) -> None:
    with urllib.request.urlopen(f"{site.url}/healthz") as answer:
        assert json.load(answer)["worker"] == "ok"
    [before] = site.web_workers()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: site.web_workers() not in ([], [before]) and is_healthy(site.url))
