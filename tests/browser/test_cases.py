"""A case is written, reordered, saved and edited by keyboard alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Locator, Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.suites import Case
from runs.suites.services import create_suite
from tests.support.factories import make_case, make_suite
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]


def test_a_case_is_written_and_edited_by_keyboard(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    suite = create_suite(slug="support", title="Support", by=log_in("editor"))
    page.goto(f"{live_server.url}/suites/support/cases/")
    press(page, "link", "New case", "Enter")
    reach(page, "textbox", "Key").press_sequentially("returns")
    page.keyboard.press("Tab")
    page.keyboard.type("Returns")
    reach(page, "textbox", "Message 1").press_sequentially("The tent arrived torn. What now?")
    reach(page, "textbox", "Expected outcome 1").press_sequentially("Names the 30 days")
    for outcome in ("Says who pays", "Stays kind"):
        page.keyboard.press("Alt+Enter")
        page.keyboard.type(outcome)
    expect(page.get_by_label("Expected outcome 3", exact=True)).to_have_value("Stays kind")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.get_by_label("Expected outcome 2", exact=True)).to_be_focused()
    press(page, "button", "Move outcome 2 up", "Space")
    expect(page.get_by_label("Expected outcome 1", exact=True)).to_have_value("Stays kind")
    press(page, "button", "Add an outcome", "Enter")
    expect(page.get_by_label("Expected outcome 4", exact=True)).to_be_focused()
    press(page, "button", "Remove outcome 4", "Enter")
    expect(page.get_by_label("Expected outcome 4", exact=True)).to_have_count(0)
    page.keyboard.press("Control+Enter")

    expect(page.get_by_text("returns is in the suite.")).to_be_visible()
    outcomes = page.locator("#expected-outcomes li p")
    expect(outcomes).to_have_text(["Stays kind", "Names the 30 days", "Says who pays"])
    # The text is there before the scripts that listen to keys.
    page.wait_for_load_state()
    page.keyboard.press("e")
    reach(page, "textbox", "Criteria optional").press_sequentially("Short answers")
    press(page, "button", "Save case", "Enter")
    expect(page.get_by_text("returns is at revision 2.")).to_be_visible()
    expect(page.get_by_role("link", name="revision 1", exact=True)).to_be_visible()
    assert suite.cases.filter(is_current=True).count() == 1
    assert Case.objects.get(is_current=True).criteria == "Short answers"


def test_a_case_between_others_of_long_keys_fits_on_a_phone(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("editor")
    suite = make_suite(slug="support")
    for key in ("A" * 200, "B" * 200, "C" * 200):
        make_case(suite=suite, key=key)
    page.set_viewport_size({"width": 390, "height": 844})

    page.goto(f"{live_server.url}/suites/support/cases/{'B' * 200}/")

    expect(page.get_by_role("link", name=f"Next case, {'C' * 200}")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_an_evaluator_with_a_long_name_fits_on_a_phone(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    log_in("editor")
    make_suite(slug="support", tree=tree({**CHECK, "name": "A" * 100}))
    page.set_viewport_size({"width": 390, "height": 844})

    page.goto(f"{live_server.url}/suites/support/evaluators/n2/")

    expect(page.get_by_text("A" * 100).first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def reach(page: Page, role: str, name: str) -> Locator:
    """Press Tab until the part of the page has the focus, and return it."""
    found = page.get_by_role(role, name=name, exact=True)
    expect(found).to_be_visible()
    page.wait_for_load_state()
    for _ in range(80):
        if found.evaluate("element => element === document.activeElement"):
            return found
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach the {role} {name}")


def press(page: Page, role: str, name: str, key: str) -> None:
    reach(page, role, name)
    page.keyboard.press(key)
