"""The workers page as an operator meets it: on the real site, by keyboard and on a phone, and live."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from evaluators.sandbox.probe import find_sandbox
from runs.models.runs import WorkerProcess
from tests.browser.accessibility import violations_in_every_look
from tests.browser.conftest import Console
from tests.services.site import Site
from tests.support.factories import make_model, throttle_state
from tests.support.worker_lines import ago, ahead, make_open_run, make_run_worker, make_worker

LogIn = Callable[[str], User]


def test_the_site_shows_its_own_worker(page: Page, site: Site) -> None:
    page.goto(site.login_link())
    page.get_by_role("button", name="Log in as admin").click()
    sidebar = page.get_by_role("navigation", name="Site")
    sidebar.get_by_text("Settings", exact=True).click()
    sidebar.get_by_role("link", name="Workers").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Workers")
    expect(page.locator("#workers-live")).to_contain_text("1 worker is ready; nothing waits.")
    worker_lines = page.get_by_role(
        "table", name="Worker processes, each followed by the runs it works on"
    )
    expect(worker_lines).to_contain_text("inside the web process")
    expect(worker_lines).to_contain_text(find_sandbox().in_words)
    [worker] = site.web_workers()
    expect(worker_lines).to_contain_text(str(worker))


@pytest.mark.django_db(transaction=True)
def test_the_page_updates_and_keeps_the_focus(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("viewer")
    make_worker(heartbeat_at=ahead(600))
    page.goto(f"{live_server.url}/workers/")
    live = page.locator("#workers-live")
    expect(live).to_contain_text("1 worker is ready; nothing waits.")
    run = make_open_run(cases=9)
    expect(live).to_contain_text("1 run waits; 9 results wait.")
    link = page.locator("#queue-1")
    link.focus()
    worker = WorkerProcess.objects.get()
    make_run_worker(run=run, worker=worker, token="a", holds=4, heartbeat_at=ahead(600))
    expect(live).to_contain_text("1 worker executes 1 run; 5 results wait.")
    expect(link).to_be_focused()
    link.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run #1")


@pytest.mark.django_db(transaction=True)
def test_a_page_that_lost_contact_says_so(
    page: Page, live_server: LiveServer, log_in: LogIn, console: Console
) -> None:
    console.allow("net::ERR_FAILED")
    console.allow("htmx:")
    log_in("viewer")
    page.goto(f"{live_server.url}/workers/")
    page.route("**/workers/live/", lambda route: route.abort())
    expect(page.locator("#lost-contact")).to_be_visible()
    expect(page.locator("#workers-live")).to_contain_text("No worker is running.")
    page.unroute("**/workers/live/")
    expect(page.locator("#lost-contact")).to_be_hidden()


@pytest.fixture
def busy_site(transactional_db: None) -> None:
    """Fill every part of the page."""
    sandbox = "limits only: bubblewrap is not allowed here (setting up uid map: Permission denied)"
    at_work = make_worker(sandbox=sandbox, last_error="OSError: no space", last_error_at=ago(60))
    make_worker(pid=2, version="0.0.9")
    make_worker(pid=3, seen=1300)
    run = make_open_run(cases=9, title="Customer support, the core of it all")
    make_run_worker(run=run, worker=at_work, token="a", holds=4)
    make_open_run(cases=2, owner="command_line", heartbeat_at=ago(600))
    state = throttle_state(rate=2.5, slow_since=ago(60), paused_until=ahead(300))
    model = make_model(name="Juno 2", concurrency=8, throttle_state=state)
    model.slot_leases.create(holder="a", slots=2, wanted=8, expires_at=ahead(600))


def test_the_page_is_accessible_and_fits(
    page: Page, live_server: LiveServer, log_in: LogIn, busy_site: None
) -> None:
    log_in("admin")
    page.goto(f"{live_server.url}/workers/")
    expect(page.locator("#workers-live")).to_contain_text("paused for")
    assert violations_in_every_look(page, set()) == []
    links = page.get_by_role("navigation", name="Main").get_by_role("link").all()
    for width in (1440, 390, 360):
        page.set_viewport_size({"width": width, "height": 900})
        for link in links:
            expect(link).to_be_in_viewport()
