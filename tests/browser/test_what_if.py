"""Walk what-if by keyboard alone: see the flips change, save, make a run of the scores; and without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Locator, Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.runs import Run
from runs.models.suites import SuiteDraft
from tests.browser.accessibility import violations
from tests.browser.conftest import Console
from tests.browser.keyboard import enter, press, retype, tab_to
from tests.support.factories import (
    make_score,
    make_scored_run,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import LEAF, tree

LogIn = Callable[[str], User]
ASKS = re.compile(r"/what-if/(\?|$)")
SAID = {"pass": (0.92, 0.92), "borderline": (0.92, 0.5), "fail": (0.5, 0.3)}
LEAVES = [
    {**LEAF, "name": name, "kind": "expected_output", "config": {}} for name in ("facts", "tone")
]


@pytest.fixture
def asked(transactional_db: None) -> Run:
    """Make a finished run of three cases, one a verdict, two evaluators each."""
    evaluators = tree(*LEAVES)
    suite, target = make_suite(slug="support", title="Support", tree=evaluators), make_target()
    snapshot = make_snapshot(suite=suite, target=target, tree=evaluators)
    run = make_scored_run(verdicts=list(SAID), suite=suite, target=target, snapshot=snapshot)
    for result in run.results.all():
        for name, score in zip(("facts", "tone"), SAID[result.verdict], strict=True):
            make_score(result=result, path=name, score=score)
    return run


def test_what_if_shows_flips_and_becomes_a_run_by_keyboard(
    page: Page, live_server: LiveServer, log_in: LogIn, asked: Run, console: Console
) -> None:
    console.allow("ERR_FAILED")
    console.allow("htmx:")
    log_in("editor")
    page.goto(f"{live_server.url}/suites/support/runs/{asked.number}/")
    panel = page.locator("#what-if")
    ask_and_wait(page, panel)
    expect(panel.locator(".flips")).to_contain_text("C-002")
    expect(panel.get_by_label("Run to try the draft on")).to_be_focused()
    expect(panel).to_contain_text("1 case would flip")
    expect(page.locator("#histogram figcaption")).to_contain_text("under this draft")
    expect(page.locator("#n2-share")).to_contain_text("90.9%")
    expect(page.locator("#draft-count")).to_have_text("Draft saved, 1 change")
    assert violations(page) == []
    enter(page, page.get_by_label("Pass from", exact=True), "1.5", back=True)
    expect(panel.get_by_role("alert")).to_contain_text("Can't show the effect.")
    expect(page.locator("#draft-count")).to_have_text("Not saved")
    retype(page, "0.85")
    expect(page.locator("#pass_threshold-help")).to_contain_text("Saved: 0.8.")
    expect(panel).to_contain_text("1 case would flip")
    move_a_threshold(page, panel)
    act_while_an_answer_comes(page, panel)
    for part, name in ((panel, "what-if"), (page.locator("#histogram"), "what-if-scores")):
        with page.expect_download() as saved:
            part.get_by_role("button", name="PNG").dispatch_event("click")
        assert saved.value.suggested_filename == f"support-1-{name}.png"
        assert saved.value.path().read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as saved:
        page.locator("#histogram").get_by_role("link", name="CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert lines[0].removeprefix("\ufeff") == "scores,results_before,results_after"
    assert [sum(int(line.split(",")[place]) for line in lines[1:]) for place in (1, 2)] == [3, 3]
    made = score_again(page)
    assert (made.pass_count, made.fail_count, made.source_run) == (2, 1, asked)


def ask_and_wait(page: Page, panel: Locator) -> None:
    """Open the editor and change a weight, with both answers kept back to see what stands until then."""
    held: list[Route] = []
    page.route(ASKS, lambda route: held.append(route))
    with page.expect_request(ASKS):
        press(page, page.get_by_role("button", name="More", exact=True))
        press(page, page.get_by_role("link", name="What if"))
    see_the_skeleton(panel)
    held.pop().continue_()
    expect(panel).to_contain_text("No case would flip")
    run = panel.get_by_label("Run to try the draft on")
    expect(run).to_have_value("1")
    expect(panel.locator(".skeleton")).to_have_count(0)
    with page.expect_request(ASKS):
        enter(page, page.get_by_label("Weight of facts", exact=True), "10")
    # What was told stands until something else is, without a skeleton over it.
    expect(panel).to_contain_text("No case would flip")
    expect(panel.locator(".skeleton")).to_have_count(0)
    held.pop().abort()
    expect(panel.get_by_role("alert")).to_contain_text("Can't reach the server.")
    with page.expect_request(ASKS):
        press(page, panel.get_by_role("button", name="Try again"))
    tab_to(page, run, back=True)
    held.pop().continue_()
    page.unroute(ASKS)


def move_a_threshold(page: Page, panel: Locator) -> None:
    """Move a line of the histogram by its keys and with the mouse; it writes the field."""
    field, line = (
        page.get_by_label("Pass from", exact=True),
        page.get_by_role("slider", name="Pass threshold"),
    )
    line.focus()
    page.keyboard.press("PageUp")
    expect(field).to_have_value("0.95")
    expect(panel.locator(".flips li")).to_contain_text("C-001")
    expect(panel.locator(".flips li")).to_be_in_viewport(ratio=1)
    expect(line).to_be_focused()
    expect(line).to_have_attribute("aria-valuetext", "0.95")
    press(page, panel.get_by_role("button", name="Pass → borderline: 1 case"))
    chosen = panel.get_by_role("button", name="Pass → borderline: 1 case")
    expect(chosen).to_have_attribute("aria-pressed", "true")
    expect(chosen).to_be_focused()
    page.keyboard.press("Enter")
    expect(chosen).to_have_attribute("aria-pressed", "false")
    box = line.locator(".knob").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] - 130, box["y"])
    page.mouse.up()
    expect(field).not_to_have_value("0.95")
    expect(panel.locator(".flips li")).to_contain_text("C-002")
    expect(page.locator("#draft-count")).to_contain_text("Draft saved")
    # Another score than the mouse left: the line follows a field once its answer has come.
    expect(field).not_to_have_value("0.86")
    enter(page, field, "0.86")
    expect(line).to_have_attribute("aria-valuetext", "0.86")
    expect(panel).to_contain_text("1 case would flip")


def act_while_an_answer_comes(page: Page, panel: Locator) -> None:
    """Press a button and read the table of scores while the answer that replaces both is on its way."""
    held: list[Route] = []
    page.route(ASKS, lambda route: route.continue_() if held else held.append(route))
    table = page.get_by_role("region", name="Table of scores")
    page.locator("#histogram-table > summary").click()
    with page.expect_request(ASKS):
        page.get_by_label("Pass from", exact=True).fill("0.84")
    cell = panel.locator("button[aria-pressed=false]")
    cell.focus()
    # After 300 ms the panel that waits is a skeleton; what has the focus keeps it and is still seen.
    panel.evaluate(
        "part => part.getAnimations({ subtree: true }).forEach((clock) => clock.finish())"
    )
    expect(panel.locator("td.total > a").first).to_have_css("opacity", "0")
    expect(cell).to_have_css("opacity", "1")
    expect(cell).to_be_focused()
    cell.click()
    table.focus()
    with page.expect_request(ASKS):
        held[0].continue_()
    expect(panel.locator("button[aria-pressed=true]")).to_have_count(1)
    page.unroute(ASKS)
    expect(table).to_be_focused()
    panel.locator("button[aria-pressed=true]").click()
    expect(panel.locator("button[aria-pressed=true]")).to_have_count(0)


def see_the_skeleton(panel: Locator) -> None:
    """Look at a panel that waits, just before 300 ms and then; the clock of its animation is stopped."""
    skeleton = panel.locator(".skeleton").first
    late = panel.locator(".late")
    for at, is_seen in ((299, False), (300, True)):
        late.evaluate(
            """(part, at) => {
              const [clock] = part.getAnimations();
              clock.pause();
              clock.currentTime = at;
            }""",
            at,
        )
        expect(skeleton).to_be_visible(visible=is_seen)


def score_again(page: Page) -> Run:
    """See all flips, open one, save the draft and make a run of the stored scores; return it."""
    panel = page.locator("#what-if")
    press(page, panel.get_by_role("button", name="Show as a table"))
    expect(page.get_by_role("row", name="C-002")).to_contain_text("0.71 → 0.88")
    assert violations(page) == []
    press(page, page.get_by_role("link", name="Borderline → pass 1", exact=True))
    expect(page).to_have_url(re.compile("change=borderline-pass"))
    press(page, page.get_by_role("row", name="C-002").get_by_role("link"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("C-002")
    page.go_back()
    press(page, page.get_by_role("link", name="Back to the evaluators"))
    press(page, page.get_by_role("button", name="Save as v2"))
    expect(page.locator("#draft")).to_contain_text("No changes yet")
    expect(panel).to_contain_text("1 case would flip")
    press(page, panel.get_by_role("button", name="Apply to run #1"))
    dialog = page.get_by_role("dialog", name="Apply to run #1?")
    expect(dialog).to_contain_text("with v2. No model calls, no cost.")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("button", name="Apply to run #1")).to_be_focused()
    page.keyboard.press("Enter")
    press(page, dialog.get_by_role("button", name="Apply to run #1", exact=True))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run #2")
    expect(page.locator("#run-head")).to_contain_text("rescored from run #1, at no cost")
    return Run.objects.get(number=2)


def test_without_javascript_a_button_previews_without_storing(
    browser: Browser, page: Page, live_server: LiveServer, log_in: LogIn, asked: Run
) -> None:
    log_in("editor")
    bare = browser.new_context(
        java_script_enabled=False, storage_state=page.context.storage_state()
    )
    plain = bare.new_page()
    plain.goto(f"{live_server.url}/suites/support/evaluators/?run=1")
    plain.get_by_label("Pass from", exact=True).fill("0.7")
    plain.get_by_role("button", name="Preview").click()
    expect(plain.locator("[aria-labelledby=flips-title]")).to_contain_text("1, ")
    expect(plain.get_by_role("status").first).to_contain_text("Your changes aren't saved yet.")
    assert not SuiteDraft.objects.exists()
    plain.get_by_role("button", name="Save draft").click()
    expect(plain.get_by_label("Pass from", exact=True)).to_have_value("0.7")
    assert SuiteDraft.objects.get().content["policy"]["pass_threshold"] == 0.7
    bare.close()
