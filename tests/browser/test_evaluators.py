"""Walk the editor of the evaluator tree: by keyboard alone, and with the mouse."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.suites import Suite, SuiteDraft
from runs.tasks import try_evaluator
from tests.browser.accessibility import violations
from tests.browser.keyboard import enter, press, tab_to
from tests.suites.test_evaluator_pages import TREE
from tests.support.factories import make_case, make_model, make_result, make_run, make_suite
from tests.support.trees import CHECK, JUDGED, tree

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
    message = editor.locator("#tree-message")
    editor.get_by_role("link", name="length").focus()
    editor.keyboard.press("Alt+ArrowDown")
    expect(message).to_have_text("length cannot move down from here.")
    editor.keyboard.press("Alt+ArrowRight")
    expect(message).to_have_text("length is now 3 of 3 in quality.")
    expect(editor.get_by_role("link", name="length")).to_be_focused()
    editor.keyboard.press("Alt+ArrowUp")
    expect(message).to_have_text("length is now 2 of 3 in quality.")
    expect_order(editor, "safety", "no_pii", "no_harm", "quality", "facts", "length", "tone")
    weigh_by_keyboard(editor)
    menu = editor.get_by_label("Actions for length")
    menu.focus()
    editor.keyboard.press("Enter")
    action = editor.get_by_role("button", name="Duplicate")
    expect(action).to_be_visible()
    assert violations(editor) == []
    action.focus()
    editor.keyboard.press("Enter")
    expect(message).to_have_text("length is duplicated. The copy is right after it.")
    editor.get_by_label("Borderline from", exact=True).fill("0.5")
    questions: list[str] = []
    editor.on("dialog", lambda dialog: (questions.append(dialog.type), dialog.accept()))
    editor.get_by_role("button", name="Save as v2").focus()
    editor.keyboard.press("Enter")
    expect(editor.locator("#draft")).to_contain_text("No changes yet")
    assert questions == [], "what is saved with the form is not lost"
    assert Suite.objects.get().policy.borderline_threshold == 0.5
    expect_order(
        editor, "safety", "no_pii", "no_harm", "quality", "facts", "length", "length_2", "tone"
    )


def weigh_by_keyboard(editor: Page) -> None:
    """Go from a name over the switch to the weight; Enter keeps the form."""
    held: list[Route] = []
    editor.route("**/what-if/", lambda route: held.append(route))
    editor.keyboard.press("Tab")
    expect(editor.get_by_label("Required: length")).to_be_focused()
    editor.keyboard.press("Space")
    editor.keyboard.press("Tab")
    editor.keyboard.type("0.5")
    editor.keyboard.press("Tab")
    editor.keyboard.type("4")
    expect(editor.get_by_label("Weight of length, slider")).to_have_value("4")
    expect(editor.locator("#draft-count")).to_have_text("Saving …")
    with editor.expect_event("dialog") as asked:
        editor.close(run_before_unload=True)
    assert asked.value.type == "beforeunload"
    asked.value.dismiss()
    editor.unroute("**/what-if/")
    for route in held:
        route.continue_()
    editor.keyboard.press("Enter")
    expect(editor.locator("#draft")).to_contain_text("required")
    expect(editor.locator("#draft-count")).to_contain_text("Draft saved")
    expect(editor.get_by_label("Minimum of length")).to_have_value("0.5")


def test_an_evaluator_is_tried_by_keyboard_alone(
    page: Page, live_server: LiveServer, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[int] = []
    monkeypatch.setattr(
        "evalsite.celery.app.send_task",
        lambda name, *, kwargs, **options: queued.append(kwargs["trial_id"]),
    )
    suite = make_suite(
        slug="support", title="Support", tree=tree(CHECK, JUDGED), judge=make_model()
    )
    case = make_case(suite=suite, key="C-1")
    output = {"text": "Your refund takes 5 days.", "usage": {}}
    make_result(run=make_run(suite=suite), case=case, verdict="pass", score=0.9, output=output)
    log_in("editor")
    page.goto(f"{live_server.url}/suites/support/evaluators/")
    menu = page.get_by_label("Actions for all")
    press(page, menu)
    press(page, page.get_by_role("button", name="Try it"))
    expect(page.get_by_label("Case", exact=True)).to_have_value("C-1")
    press(page, page.get_by_role("button", name="Dry run"))
    trial = page.locator("#evaluator-trial")
    expect(trial).to_contain_text("Waiting for a worker")
    tried = trial.get_by_role("link", name="C-1 of run #1")
    tab_to(page, tried)
    work(queued.pop())
    expect(trial).to_contain_text("nothing is sent, started or paid")
    expect(trial).to_contain_text("Is it right?")
    expect(tried).to_be_focused()
    finding = trial.locator("details", has_text="mentions_refund").last
    press(page, finding.locator("summary"))
    expect(finding.locator(".why")).to_be_visible()
    assert violations(page) == []
    paste_by_keyboard(page, queued)


def work(trial: int) -> None:
    """Carry a try out as a worker does, in a thread without the loop of the browser."""

    def execute() -> None:
        try_evaluator(trial_id=trial)
        connections.close_all()

    thread = Thread(target=execute)
    thread.start()
    thread.join()


def paste_by_keyboard(page: Page, queued: list[int]) -> None:
    """Go to one evaluator, paste an output, try it and read why it fell short."""
    press(page, page.get_by_role("link", name="Evaluators").last, back=True)
    press(page, page.get_by_role("link", name="mentions_refund"))
    press(page, page.get_by_role("link", name="Try it on an output"))
    tab_to(page, page.get_by_label("The output of a run"))
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("An output you paste")).to_be_checked()
    press(page, page.get_by_text("Output to paste"))
    enter(page, page.get_by_role("textbox", name="Output"), "No money back.")
    press(page, page.get_by_role("button", name="Try it"))
    trial = page.locator("#evaluator-trial")
    expect(trial).to_contain_text("Waiting for a worker")
    work(queued.pop())
    expect(trial).to_contain_text("Fail")
    expect(trial).to_contain_text("a pasted output for C-1")


def test_rows_are_dragged_into_composites_and_before_other_rows(editor: Page) -> None:
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
    editor.get_by_role("button", name="Save to draft").click()
    expect(editor.get_by_role("link", name="<b>facts<b>")).to_be_visible()
    assert (
        SuiteDraft.objects.get().content["evaluators"]["children"][2]["children"][1]["weight"] == 6
    )
