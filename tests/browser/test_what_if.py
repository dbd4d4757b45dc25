"""Walk what-if: move a slider, see the flips change, save, make a run of the scores, and ask it in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Run, SuiteDraft
from tests.factories import make_score, make_scored_run, make_snapshot, make_suite, make_target
from tests.runs.trees import LEAF, tree

LogIn = Callable[[str], User]
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


def test_a_weight_shows_what_flips_and_becomes_a_run_of_its_own(
    page: Page, live_server: LiveServer, log_in: LogIn, asked: Run
) -> None:
    log_in("editor")
    page.goto(f"{live_server.url}/suites/support/runs/{asked.number}/")
    page.get_by_role("link", name="What if").click()
    panel = page.locator("#what-if")
    expect(panel).to_contain_text("Nothing of v1 changes a verdict of run #1.")
    expect(panel.get_by_label("Run that is asked")).to_have_value("1")
    weight = page.get_by_label("Weight of facts, slider")
    weight.focus()
    page.keyboard.press("End")
    expect(panel.locator(".flips")).to_contain_text("C-002")
    expect(panel).to_contain_text("1 case would flip")
    expect(page.locator("#histogram figcaption")).to_contain_text("under this draft")
    expect(page.locator("#n2-share")).to_contain_text("90.9%")
    assert not SuiteDraft.objects.exists()
    assert Axe().run(page).response["violations"] == []
    page.get_by_label("Pass from", exact=True).fill("1.5")
    expect(panel.get_by_role("alert")).to_contain_text("No figures.")
    page.get_by_label("Pass from", exact=True).fill("0.8")
    expect(panel).to_contain_text("1 case would flip")
    made = score_again(page)
    assert (made.pass_count, made.fail_count, made.source_run) == (2, 1, asked)


def score_again(page: Page) -> Run:
    """See all flips, save the draft and make a run of the stored scores; return it."""
    panel = page.locator("#what-if")
    panel.get_by_role("button", name="Show as a table").click()
    row = page.get_by_role("row", name="C-002")
    expect(row).to_contain_text("0.71 → 0.88")
    assert Axe().run(page).response["violations"] == []
    page.get_by_role("link", name="Back to the evaluators").click()
    page.get_by_role("button", name="Save as v2").click()
    expect(panel).to_contain_text("1 case would flip")
    panel.get_by_role("button", name="Score run #1 with this").click()
    dialog = page.get_by_role("dialog", name="Score run #1 with this?")
    expect(dialog).to_contain_text("under v2, without a model call and at no cost")
    dialog.get_by_role("button", name="Score run #1").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run #2")
    expect(page.locator("#run-head")).to_contain_text("scored again from run #1, at no cost")
    return Run.objects.get(number=2)


def test_without_scripts_a_button_previews_and_keeps_nothing(
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
    expect(plain.locator("#flips-title")).to_have_text("1 case would flip")
    expect(plain.get_by_role("status").first).to_contain_text("Nothing of it is kept")
    assert not SuiteDraft.objects.exists()
    plain.get_by_role("button", name="Keep in draft").click()
    expect(plain.get_by_label("Pass from", exact=True)).to_have_value("0.7")
    assert SuiteDraft.objects.get().content["policy"]["pass_threshold"] == 0.7
    bare.close()
