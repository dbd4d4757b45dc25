"""Walk the editor of the evaluator tree: by keyboard alone, and with the mouse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Suite, SuiteDraft
from tests.factories import make_suite
from tests.runs.views.test_evaluators import TREE

LogIn = Callable[[str], User]


@pytest.fixture
def editor(page: Page, live_server: LiveServer, log_in: LogIn) -> Page:
    make_suite(slug="support", title="Support", tree=TREE.as_json())
    log_in("editor")
    page.goto(f"{live_server.url}/suites/support/evaluators/")
    return page


def expect_order(page: Page, *names: str) -> None:
    expect(page.locator("#evaluators .node .name code")).to_have_text(["suite", *names])


def test_evaluators_are_moved_weighed_and_saved_by_keyboard_alone(editor: Page) -> None:
    said = editor.locator("#tree-said")
    editor.get_by_role("link", name="length").focus()
    editor.keyboard.press("Alt+ArrowDown")
    expect(said).to_have_text("length cannot move down from here.")
    editor.keyboard.press("Alt+ArrowRight")
    expect(said).to_have_text("length is 3 of 3 in quality now.")
    expect(editor.get_by_role("link", name="length")).to_be_focused()
    editor.keyboard.press("Alt+ArrowUp")
    expect(said).to_have_text("length is 2 of 3 in quality now.")
    expect_order(editor, "safety", "no_pii", "no_harm", "quality", "facts", "length", "tone")
    weigh_by_keyboard(editor)
    menu = editor.get_by_label("What to do with length")
    menu.focus()
    editor.keyboard.press("Enter")
    deed = editor.get_by_role("button", name="Duplicate")
    expect(deed).to_be_visible()
    assert Axe().run(editor).response["violations"] == []
    deed.focus()
    editor.keyboard.press("Enter")
    expect(said).to_have_text("length has a copy after it.")
    editor.get_by_label("Borderline from", exact=True).fill("0.5")
    expect(editor.locator("#not-kept")).to_be_visible()
    questions: list[str] = []
    editor.on("dialog", lambda dialog: (questions.append(dialog.type), dialog.accept()))
    editor.get_by_role("button", name="Save as v2").focus()
    editor.keyboard.press("Enter")
    expect(editor.locator("#draft")).to_contain_text("Nothing is changed")
    assert questions == [], "what is saved with the form is not lost"
    assert Suite.objects.get().policy().borderline_threshold == 0.5
    expect_order(
        editor, "safety", "no_pii", "no_harm", "quality", "facts", "length", "length_2", "tone"
    )


def weigh_by_keyboard(editor: Page) -> None:
    """Go from a name over the switch to the weight; Enter keeps the form."""
    editor.keyboard.press("Tab")
    expect(editor.get_by_label("Required: length")).to_be_focused()
    editor.keyboard.press("Space")
    editor.keyboard.press("Tab")
    editor.keyboard.type("0.5")
    editor.keyboard.press("Tab")
    editor.keyboard.type("4")
    expect(editor.get_by_label("Weight of length, slider")).to_have_value("4")
    expect(editor.locator("#draft")).to_contain_text("Entered, not kept yet.")
    with editor.expect_event("dialog") as asked:
        editor.close(run_before_unload=True)
    assert asked.value.type == "beforeunload"
    asked.value.dismiss()
    editor.keyboard.press("Enter")
    expect(editor.locator("#draft")).to_contain_text("required")
    expect(editor.locator("#not-kept")).to_be_hidden()
    expect(editor.get_by_label("Minimum of length")).to_have_value("0.5")


def test_rows_are_dragged_into_composites_and_before_others(editor: Page) -> None:
    grip = editor.locator(".node", has=editor.get_by_role("link", name="length")).locator(".grip")
    quality = editor.locator(".node", has=editor.get_by_role("link", name="quality"))
    grip.drag_to(quality, target_position={"x": 90, "y": 34})
    expect_order(editor, "safety", "no_pii", "no_harm", "quality", "length", "facts", "tone")
    editor.get_by_label("Weight of facts", exact=True).fill("5")
    tone = editor.locator(".node", has=editor.get_by_role("link", name="tone")).locator(".grip")
    safety = editor.locator(".node", has=editor.get_by_role("link", name="safety"))
    tone.drag_to(safety, target_position={"x": 90, "y": 4})
    expect_order(editor, "tone", "safety", "no_pii", "no_harm", "quality", "length", "facts")
    expect(editor.get_by_label("Weight of facts", exact=True)).to_have_value("5")
    # A composite is not dropped into itself.
    quality.locator(".grip").drag_to(
        editor.locator(".node", has=editor.get_by_role("link", name="facts"))
    )
    expect_order(editor, "tone", "safety", "no_pii", "no_harm", "quality", "length", "facts")
    editor.get_by_label("Weight of facts", exact=True).fill("6")
    editor.get_by_role("link", name="facts").click()
    expect(editor.get_by_label("Weight", exact=False).first).to_have_value("6")
    editor.get_by_label("Name").fill("<b>facts<b>")
    editor.get_by_role("button", name="Keep in draft").click()
    expect(editor.get_by_role("link", name="<b>facts<b>")).to_be_visible()
    assert (
        SuiteDraft.objects.get().content["evaluators"]["children"][2]["children"][1]["weight"] == 6
    )
