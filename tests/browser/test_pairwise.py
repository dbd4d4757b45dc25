"""From the win rate of a run to a case that lost against the baseline and both answers, by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.finishing import summarise_run
from runs.models.results import ComparedOutput
from runs.models.runs import Run
from tests.browser.accessibility import WIDE, violations_in_every_look
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, LEAF, tree

LogIn = Callable[[str], User]
BETTER = {**LEAF, "name": "better", "kind": "pairwise", "weight": 0.0, "config": {}}
# By case: which place the judge preferred in each order, and the score that follows.
ORDERS = {
    "C-001": ("win", ("first", "second"), 1.0),
    "C-002": ("loss", ("second", "first"), 0.0),
    "C-003": ("tie", ("neither", "neither"), 0.5),
    "C-004": ("inconclusive", ("first", "first"), None),
}


@pytest.fixture
def compared(transactional_db: None) -> Run:
    """Make a baseline and a run that a judge compared with it, with one case of each outcome."""
    evaluators = tree(CHECK, BETTER)
    suite, target = make_suite(slug="support", title="Support", tree=evaluators), make_target()
    cases = [make_case(suite=suite, key=key, position=n) for n, key in enumerate(ORDERS)]
    before = make_run(suite=suite, target=target)
    snapshot = make_snapshot(suite=suite, target=target, tree=evaluators)
    run = make_run(
        suite=suite,
        target=target,
        snapshot={**snapshot, "baseline": {"run": 1, "target": target.name}},
    )
    for case, (verdict, places, score) in zip(cases, ORDERS.values(), strict=True):
        make_result(run=before, case=case, verdict="pass", score=1.0, output={"text": "By air"})
        result = make_result(
            run=run, case=case, verdict="pass", score=1.0, output={"text": f"By sea, {case.key}"}
        )
        make_score(result=result, path="mentions_refund", score=1.0, kind="text_check")
        orders = [{"better": place, "reasoning": f"The {place}."} for place in places]
        details = {"verdict": verdict, "orders": orders, "model": "juno-2"}
        reasoning = "" if score is not None else "inconclusive: asked in both orders"
        facts = {"kind": "pairwise", "details": details, "reasoning": reasoning}
        make_score(result=result, path="better", score=score, stage="judge", **facts)
        ComparedOutput.objects.create(result=result, text="By air")
    for made in (before, run):
        summarise_run(made.pk)
    return run


def test_a_lost_case_is_reached_from_the_win_rate_by_keyboard(
    page: Page, live_server: LiveServer, log_in: LogIn, compared: Run
) -> None:
    log_in("viewer")
    place = f"{live_server.url}/suites/support/runs/2/"
    page.goto(place)
    panel = page.locator("#run-pairwise")
    expect(panel).to_contain_text("Win rate 50.0%")
    expect(panel).to_contain_text("3 decided of 4 results")
    checked: set[str] = set()
    page.set_viewport_size(WIDE)
    assert violations_in_every_look(page, checked) == []
    loss = panel.get_by_role("link", name="1 loss")
    loss.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"q=pairwise\.better"))
    expect(page.locator("#rows tr")).to_have_count(1)

    page.goto(f"{place}C-002/1/")
    node = page.locator("details:has(> summary code:text-is('better'))").last
    node.locator("summary").focus()
    page.keyboard.press("Enter")
    for text in ("Loss", "The second.", "The first.", "By sea, C-002", "By air"):
        expect(node.get_by_text(text).first).to_be_visible()
    assert violations_in_every_look(page, checked) == []
    node.get_by_role("link", name="Run #1").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/runs/1/C-002/1/"))

    page.goto(f"{live_server.url}/compare/?baseline=support:1&candidate=support:2")
    expect(page.locator("#run-pairwise")).to_contain_text("1 win")
    assert violations_in_every_look(page, checked) == []
