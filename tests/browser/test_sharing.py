"""A link made by keyboard, opened without a login, kept as a file and revoked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.results import ResultOutput
from runs.models.sharing import ShareLink
from tests.browser.accessibility import violations
from tests.browser.conftest import Console
from tests.support.factories import make_scored_run, make_suite, make_target

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]


def test_a_link_is_made_by_keyboard_and_opened_without_an_account(
    page: Page,
    browser: Browser,
    console: Console,
    live_server: LiveServer,
    log_in: LogIn,
    tmp_path: Path,
) -> None:
    log_in("editor")
    suite = make_suite(slug="support", title="Customer support")
    make_scored_run(verdicts=["pass", "pass", "error"], suite=suite)
    make_scored_run(verdicts=["pass", "fail", "pass"], suite=suite)
    page.goto(f"{live_server.url}/compare/?baseline=support:1&candidate=support:2")
    link = made_by_keyboard(page)
    with browser.new_context(color_scheme="dark", accept_downloads=True) as context:
        context.on("page", console.watch)
        file = opened(context, link, tmp_path / "shared.html")
        assert context.cookies() == []
    with browser.new_context(viewport={"width": 390, "height": 900}) as context:
        context.on("page", console.watch)
        read_from_disk(context, file)
    page.get_by_role("button", name="Revoke May we ship?").press("Enter")
    expect(page.get_by_text("It can no longer be opened")).to_be_visible()
    assert ShareLink.objects.get().view_count == 2
    with browser.new_context() as context:
        gone = context.new_page()
        answer = gone.goto(link)
        assert answer is not None
        assert answer.status == 404
        expect(gone.get_by_role("heading", level=1)).to_have_text("This link does not work")


def made_by_keyboard(page: Page) -> str:
    """Make a link on the page of a comparison and return it; the page shows it no second time."""
    page.get_by_role("link", name="Share", exact=True).press("Enter")
    preview = page.get_by_role("region", name="Preview of the shared page")
    expect(preview).to_contain_text("Case 1")
    page.wait_for_load_state()
    page.get_by_label("Title").fill("May we ship?")
    heading = preview.get_by_role("heading", name="May we ship?")
    expect(heading).to_be_visible()
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        edges = preview.evaluate(
            "one => [one, one.querySelector('h3')].map(one => one.getBoundingClientRect().left)"
        )
        assert edges[1] >= edges[0], "the heading is cut off at the edge"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    expect(preview).to_contain_text("C-002")
    expect(page.get_by_role("radio", name="Figures and case names")).to_be_focused()
    page.get_by_role("button", name="Create link").press("Enter")
    made = page.get_by_label("Anyone who has it")
    expect(made).to_be_focused()
    link = made.input_value()
    page.reload()
    expect(page.get_by_text("May we ship?")).to_be_visible()
    expect(made).to_have_count(0)
    return link


def opened(context: BrowserContext, link: str, file: Path) -> Path:
    """Open a link without a login, and keep its page as a file."""
    page = context.new_page()
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))
    page.goto(link)
    expect(page.get_by_role("heading", level=1)).to_contain_text(
        "May we ship? Mean score regressed"
    )
    expect(page.locator("main")).to_contain_text("C-002")
    assert violations(page) == []
    assert not any("set-cookie" in one.all_headers() for one in answers)
    assert not any(".js" in one.url for one in answers)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as one file").press("Enter")
    download.value.save_as(file)
    return file


def read_from_disk(context: BrowserContext, file: Path) -> None:
    """Open the file without a server: nothing is fetched, and its own style sheet applies."""
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.get_by_role("heading", level=1)).to_contain_text(
        "May we ship? Mean score regressed"
    )
    assert asked == [file.as_uri()]
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("radio", name="Dark").check(force=True)
    assert page.evaluate(background) != light
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0


def test_a_link_is_made_without_javascript(
    browser: Browser, page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("editor")
    make_scored_run(verdicts=["pass", "fail"], suite=make_suite(slug="support"))
    state = page.context.storage_state()
    with browser.new_context(java_script_enabled=False, storage_state=state) as context:
        plain = context.new_page()
        plain.goto(f"{live_server.url}/suites/support/runs/1/")
        plain.get_by_role("link", name="Share", exact=True).click()
        plain.get_by_label("Figures and case names").check()
        plain.get_by_role("button", name="Create link").click()
        # What was chosen since was not looked at yet.
        expect(plain.get_by_role("alert")).to_contain_text("Check it again")
        plain.get_by_label("Figures", exact=True).check()
        plain.get_by_role("button", name="Preview").click()
        expect(plain.get_by_role("region", name="Preview: what")).to_contain_text("Case 1")
        plain.get_by_role("button", name="Create link").click()
        expect(plain.get_by_label("Anyone who has it")).to_have_value(re.compile(r"/s/[\w-]{43}/$"))


def test_a_name_without_spaces_makes_no_page_broader_than_the_window(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("editor")
    suite = make_suite(slug="support", title="Support" * 20)
    make_scored_run(verdicts=["pass"], suite=suite, target=make_target(name="agent" * 20))
    page.set_viewport_size({"width": 390, "height": 900})
    run = "/suites/support/runs/1/"
    for address in (
        "/suites/support/",
        run,
        "/shares/new/?kind=run&run=support:1&detail_level=traces",
    ):
        page.goto(f"{live_server.url}{address}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address


def test_paper_shows_all_of_a_long_output(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("editor")
    run = make_scored_run(verdicts=["fail"], suite=make_suite(slug="support"))
    ResultOutput.objects.update_or_create(
        result=run.results.get(), defaults={"text": "On.\n" * 200}
    )
    page.goto(f"{live_server.url}/shares/new/?kind=run&run=support:1&detail_level=outputs")
    output = page.get_by_role("group").filter(has_text="On.").first
    page.emulate_media(media="print")
    assert output.evaluate("one => one.scrollHeight <= one.clientHeight")
