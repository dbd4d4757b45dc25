"""An agent set up and tried in a browser, with scripts and without: a worker really asks it."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from tests.browser.accessibility import violations
from tests.services.site import Site
from tests.support.agent_server import AgentServer, says

REPLY = {
    "output": "Take it **back**.",
    "steps": [{"name": "look_up", "input": {"id": 7}, "output": "found"}],
    "files": {"note.md": "# Parcel"},
}


def fill(page: Page, agent: AgentServer, name: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Address").fill(agent.url)
    page.get_by_label("Name of header 1", exact=True).fill("Authorization")
    page.get_by_label("Value of header 1", exact=True).fill("Bearer typed-only-once")
    page.get_by_label("Secret").first.check()
    page.get_by_label(re.compile(r"^\s*Output\s+optional")).fill("output")
    page.get_by_label(re.compile("^Tool calls or steps")).fill("steps")
    page.get_by_label(re.compile("^Files")).fill("files")
    page.get_by_label(re.compile("^Text of your own")).fill("May I return it?")


def check_answer(page: Page, agent: AgentServer) -> None:
    answer = page.locator("#target-trial")
    expect(answer).to_contain_text("Take it back.")
    expect(answer).to_contain_text("look_up")
    expect(answer).to_contain_text("note.md")
    assert agent.asked[-1].headers["Authorization"] == "Bearer typed-only-once"
    assert "typed-only-once" not in page.content()


def test_an_agent_is_tried_before_it_is_saved(
    page: Page, site: Site, agent_server: AgentServer
) -> None:
    agent_server.behave(then=says(REPLY))
    page.goto(site.login_link())
    page.get_by_role("button", name="Log in as").click()
    page.goto(f"{site.url}/targets/new/?kind=http")
    fill(page, agent_server, "desk")
    page.get_by_role("button", name="Try", exact=True).click()
    check_answer(page, agent_server)
    assert violations(page) == []
    page.get_by_role("button", name="Add target").click()
    expect(page.get_by_role("heading", name="desk")).to_be_visible()
    expect(page.get_by_text("Authorization: secret, stored encrypted")).to_be_visible()
    page.get_by_label(re.compile("^Text of your own")).fill("And now?")
    page.get_by_role("button", name="Try", exact=True).click()
    check_answer(page, agent_server)
    assert agent_server.asked[-1].json == {"input": "And now?"}


def test_an_agent_is_tried_without_javascript(
    browser: Browser, site: Site, agent_server: AgentServer
) -> None:
    agent_server.behave(then=says(REPLY))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.login_link())
    page.get_by_role("button", name="Log in as").click()
    page.goto(f"{site.url}/targets/new/?kind=http")
    fill(page, agent_server, "plain")
    # A page that is on its way shows no button yet.
    with page.expect_navigation():
        page.get_by_role("button", name="Try", exact=True).click()
    again = page.get_by_role("button", name="Look again")
    while again.is_visible():
        with page.expect_navigation():
            again.click()
    check_answer(page, agent_server)
    page.get_by_role("button", name="Add target").click()
    expect(page.get_by_text("Authorization: secret, stored encrypted")).to_be_visible()
    context.close()
