"""Walk the suites: filters, keys, live parts, import, and accessibility."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.suites import Suite
from tests.browser.accessibility import violations, violations_in_every_look
from tests.browser.conftest import Console
from tests.support.factories import make_case, make_scored_run, make_suite

LogIn = Callable[[str], User]
ONE_CASE = "tests: [{id: A, input: hi}]\n"
EXAMPLE = Path(__file__).parents[2] / "examples" / "quick-check" / "suite.yaml"


@pytest.fixture
def home(page: Page, live_server: LiveServer, log_in: LogIn) -> Page:
    suite = make_suite(slug="refunds", title="Refunds", tags=["release"])
    for number in range(1, 61):
        make_case(
            suite=suite,
            key=f"C-{number:03}",
            position=number,
            tags=["late" if number > 50 else "early"],
            expected_output="The **60-day** cover applies.",
            expected_outcomes=["States the refund time"],
            metadata={"channel": "chat"},
        )
    make_scored_run(suite=suite, verdicts=["pass", "borderline", "fail", "error"])
    started = timezone.now() - timedelta(minutes=4)
    make_scored_run(suite=suite, verdicts=["pass", "pending"], status="running", started_at=started)
    make_suite(slug="delivery", title="Delivery")
    log_in("admin")
    page.goto(f"{live_server.url}/")
    return page


def test_typing_in_the_filter_changes_rows_and_address(home: Page) -> None:
    home.keyboard.press("t")
    home.keyboard.type("refund")
    expect(home).to_have_url(re.compile(r"/\?q=refund$"))
    expect(home.locator("#suite-rows tbody tr")).to_have_count(1)
    expect(home.get_by_role("link", name="All 1")).to_have_attribute("aria-current", "true")
    expect(home.get_by_label("Filter suites")).to_be_focused()
    home.reload()
    expect(home.locator("#suite-rows tbody tr")).to_have_count(1)


def test_keys_move_between_rows_and_pages_and_can_be_turned_off(home: Page) -> None:
    home.keyboard.press("j")
    expect(home.get_by_role("link", name="Refunds", exact=True).last).to_be_focused()
    home.keyboard.press("g")
    home.keyboard.press("r")
    expect(home.get_by_role("heading", level=1)).to_have_text("Runs")
    # Its script hears the keys.
    home.wait_for_load_state()
    home.keyboard.press("g")
    home.keyboard.press("s")
    expect(home.get_by_role("heading", level=1)).to_have_text("Suites")
    home.wait_for_load_state()
    home.keyboard.press("?")
    keys = home.get_by_role("dialog", name="Keyboard shortcuts")
    keys.get_by_role("switch").uncheck()
    keys.get_by_role("button", name="Close").click()
    home.reload()
    home.keyboard.press("?")
    expect(keys).to_be_hidden()


def test_the_command_palette_goes_anywhere_and_does_what_the_page_offers(home: Page) -> None:
    suite = Suite.objects.get(slug="delivery")
    make_case(suite=suite, key="CS-001", title="A lost parcel")
    make_case(suite=suite, key="CS-0010", title="A late parcel")
    palette = home.get_by_role("dialog", name="Command palette")
    box = palette.get_by_role("combobox")
    chosen = palette.get_by_role("option", selected=True)

    # From within a field, a page of the sidebar by the beginnings of its words.
    home.keyboard.press("t")
    home.keyboard.press("Control+k")
    expect(palette.get_by_role("group", name="On this page")).to_contain_text("Import")
    expect(palette.get_by_role("status")).to_have_text(re.compile(r"^\d+ results$"))
    home.keyboard.type("lan mod")
    expect(chosen).to_have_text("Language models")
    expect(box).to_have_attribute("aria-activedescendant", chosen.get_attribute("id") or "")
    assert violations(home) == []
    home.keyboard.press("Escape")
    expect(home.get_by_label("Filter suites")).to_be_focused()

    # Typed and entered before the server answers: the case with this key opens, not what was listed until then.
    home.keyboard.press("Control+k")
    home.keyboard.type("cs-001")
    home.keyboard.press("Enter")
    expect(home.get_by_role("heading", level=1)).to_contain_text("A lost parcel")

    # An action of the page, by arrows and by a click of the mouse on the button.
    home.wait_for_load_state()
    home.get_by_role("button", name="Commands").click()
    home.keyboard.type("edit")
    home.keyboard.press("ArrowDown")
    home.keyboard.press("ArrowUp")
    expect(chosen).to_have_text("EditE")
    home.keyboard.press("Enter")
    home.wait_for_url("**/cases/CS-001/edit/")


def test_texts_are_set_in_the_font_that_the_site_brings(home: Page) -> None:
    loaded = "document.fonts.ready.then((fonts) => [...fonts].filter((one) => one.status === 'loaded').length)"
    assert home.evaluate(loaded) == 1
    # In the font of the system the same letters have another width.
    assert home.locator("h1").evaluate(
        "(title) => document.fonts.check('20px Inter', title.textContent)"
    )


def test_the_theme_is_kept_on_this_browser(home: Page) -> None:
    home.get_by_role("radio", name="Dark").check(force=True)
    dark = "rgb(13, 15, 18)"
    expect(home.locator("body")).to_have_css("background-color", dark)
    home.reload()
    expect(home.get_by_role("radio", name="Dark")).to_be_checked()
    expect(home.locator("body")).to_have_css("background-color", dark)


def test_a_live_part_without_an_answer_says_so_and_recovers(home: Page, console: Console) -> None:
    console.allow("dashboard")
    console.allow("suite-rows")
    banner = home.locator("#lost-contact")
    expect(banner).to_be_hidden()
    home.route("**/dashboard/", lambda route: route.abort())
    home.route("**/suite-rows/**", lambda route: route.abort())
    expect(banner).to_contain_text("Live updates paused.")
    home.unroute_all()
    expect(banner).to_be_hidden()


def test_a_live_part_redirects_to_the_login_after_the_session(
    home: Page, context: BrowserContext
) -> None:
    context.clear_cookies()
    expect(home.get_by_role("button", name="Log in")).to_be_visible()
    expect(home).to_have_url(re.compile(r"/login/\?next=/$"))


def test_more_cases_are_appended_and_a_tag_filters_them(
    home: Page, live_server: LiveServer
) -> None:
    home.get_by_role("link", name="Refunds", exact=True).last.click()
    home.get_by_role("link", name="Cases 60").click()
    rows = home.locator("#case-rows tbody tr")
    expect(rows).to_have_count(50)
    home.get_by_role("link", name="Show more cases").click()
    expect(rows).to_have_count(60)
    expect(home.locator("#case-more")).to_contain_text("60 of 60 cases")
    expect(home).to_have_url(f"{live_server.url}/suites/refunds/cases/")
    home.get_by_label("Tag", exact=True).select_option("late")
    expect(rows).to_have_count(10)
    expect(home).to_have_url(f"{live_server.url}/suites/refunds/cases/?tag=late")
    home.get_by_role("link", name="C-051").click()
    title = home.get_by_role("heading", level=1)
    expect(title).to_have_text("Case C-051")
    home.wait_for_load_state()
    home.keyboard.press("j")
    expect(title).to_have_text("Case C-052")


def test_an_example_is_imported(home: Page) -> None:
    home.get_by_role("link", name="Import", exact=True).click()
    home.get_by_label("Files", exact=True).set_input_files(EXAMPLE)
    home.get_by_role("button", name="Import", exact=True).click()
    expect(home.get_by_role("heading", level=1)).to_have_text("Quick check of a model")
    toast = home.locator(".toast")
    expect(toast).to_contain_text("is at version 1.")
    toast.get_by_role("button", name="Dismiss").click()
    expect(toast).to_have_count(0)


def test_a_folder_is_imported_without_hidden_files(home: Page, tmp_path: Path) -> None:
    files = {
        "one.yaml": "evaluators: [{type: llm_judge, prompt: ./tone.md}]\n" + ONE_CASE,
        "tone.md": "Is it kind?",
        "deep/two.yaml": ONE_CASE,
        ".env": "SECRET=1",
        "node_modules/x/three.yaml": ONE_CASE,
    }
    for name, text in files.items():
        (tmp_path / "evals" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "evals" / name).write_text(text)
    home.get_by_role("link", name="Import", exact=True).click()
    home.get_by_label("Folder").set_input_files(tmp_path / "evals")
    said = home.get_by_text("3 files will be sent, 2 hidden or cached ones will not.")
    expect(said).to_be_visible()
    home.get_by_role("button", name="Import", exact=True).click()
    expect(home.get_by_role("heading", level=1)).to_have_text("Imported")
    rows = home.get_by_role("region", name="Table of suites").locator("tbody tr")
    expect(rows).to_have_text([re.compile("evals/deep/two.yaml"), re.compile("evals/one.yaml")])
    assert violations(home) == []
    home.get_by_role("link", name="one").click()
    with home.expect_download() as download:
        home.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "one-v1.zip"


def test_a_slow_import_says_so(home: Page) -> None:
    home.get_by_role("link", name="Import", exact=True).click()
    home.get_by_label("Files", exact=True).set_input_files(EXAMPLE)
    # The moment between the click and the answer, held for as long as it takes to look.
    home.evaluate("addEventListener('submit', (event) => event.preventDefault())")
    home.get_by_role("button", name="Import", exact=True).click()
    expect(home.get_by_role("button", name="Reading and checking…")).to_be_disabled()


def test_the_phone_menu_has_the_rest_of_the_sidebar(home: Page) -> None:
    home.set_viewport_size({"width": 390, "height": 844})
    expect(home.get_by_role("button", name="Log out")).to_be_hidden()
    home.get_by_role("button", name="Menu").click()
    expect(home.get_by_role("button", name="Log out")).to_be_visible()


def test_the_pages_of_suites_are_accessible_and_never_scroll_sideways(
    home: Page, live_server: LiveServer
) -> None:
    checked: set[str] = set()
    addresses = (
        "/",
        "/?q=nothing",
        "/suites/refunds/",
        "/suites/delivery/",
        "/import/",
        "/suites/refunds/cases/",
        "/suites/refunds/cases/C-002/",
    )
    for address in addresses:
        home.goto(live_server.url + address)
        assert violations_in_every_look(home, checked) == []
