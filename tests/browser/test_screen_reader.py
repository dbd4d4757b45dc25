"""The five main tasks as a screen reader meets them: names, order of what decides, and what is announced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from playwright.sync_api import Browser, BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.finishing import summarise_run
from runs.models.runs import Run
from tests.browser.conftest import opened_profile
from tests.support.factories import (
    make_score,
    make_scored_run,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.queue import item_of, queued_run
from tests.support.trees import LEAF, tree

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
LEAVES = [
    {**LEAF, "name": name, "kind": "expected_output", "config": {}} for name in ("facts", "tone")
]
SCORES = {"pass": (0.92, 0.92), "fail": (0.5, 0.3)}


@pytest.fixture
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """Open a profile for each test: a clock that a test installs stays in it."""
    with opened_profile(browser) as opened:
        yield opened


@pytest.fixture
def runs(transactional_db: None) -> list[Run]:
    """Make two finished runs of one suite; in the second a case fails that passed in the first."""
    evaluators = tree(*LEAVES)
    suite = make_suite(slug="support", title="Support", tree=evaluators)
    target = make_target(name="agent 1.5")
    made = []
    for verdicts in (["pass", "pass"], ["pass", "fail"]):
        snapshot = make_snapshot(suite=suite, target=target, tree=evaluators)
        run = make_scored_run(verdicts=verdicts, suite=suite, target=target, snapshot=snapshot)
        for result in run.results.all():
            for name, score in zip(("facts", "tone"), SCORES[result.verdict], strict=True):
                make_score(result=result, path=name, score=score)
        made.append(run)
    return made


def test_the_tasks_are_named_in_order_and_their_answers_announced(
    page: Page, live_server: LiveServer, log_in: LogIn, runs: list[Run]
) -> None:
    log_in("editor")
    main = page.get_by_role("main")

    # 1. Why did a case fail? The verdict is in the heading, the cause under the first one below it.
    page.goto(f"{live_server.url}/suites/support/runs/2/C-002/1/")
    expect(main).to_match_aria_snapshot("""
      - heading /Fail/ [level=1]
      - navigation "On this page"
      - region "Why it failed":
        - heading "Why it failed" [level=2]
    """)

    # 2. What would another threshold change? The answer is announced once it is there.
    page.goto(f"{live_server.url}/suites/support/evaluators/")
    flips = page.get_by_role("status").and_(page.locator("#flip-message"))
    expect(flips).to_have_text("No case would flip")
    page.get_by_label("Pass from", exact=True).fill("0.95")
    expect(flips).to_have_text("1 case would flip")
    expect(page.get_by_role("slider", name="Pass threshold").first).to_have_attribute(
        "aria-valuetext", "0.95"
    )
    expect(page.get_by_role("status").filter(has_text="Draft saved")).to_have_count(1)

    # 3. Did it get worse? The conclusion is a status before the figures, the cases follow in a named table.
    page.goto(f"{live_server.url}/compare/?baseline=support:1&candidate=support:2")
    expect(main).to_match_aria_snapshot("""
      - 'heading /#2 vs #1/ [level=1]'
      - status
      - region "Headline"
      - region "Cases":
        - heading "Cases" [level=2]
        - region "Table of cases":
          - table /Cases of run 1 and run 2/
    """)

    # 4. Start a run: every choice has a name, and the estimate is a live region.
    page.goto(f"{live_server.url}/suites/support/runs/new/")
    expect(page.get_by_role("checkbox", name=re.compile("agent 1.5"))).to_have_count(1)
    expect(page.locator("#run-estimate")).to_have_attribute("aria-live", "polite")
    expect(page.get_by_role("button", name=re.compile("^Start run"))).to_have_count(1)
    page.get_by_role("checkbox", name=re.compile("agent 1.5")).check()
    expect(page.locator("#run-estimate")).to_contain_text("1 × 2 × 1 = 2")


def test_a_decision_is_asked_for_by_name_and_announced(
    page: Page, live_server: LiveServer, log_in: LogIn, transactional_db: None
) -> None:
    run = queued_run(["borderline"] * 2)
    log_in("reviewer")
    page.goto(f"{live_server.url}/review/")
    key = item_of(run).result.case.key
    expect(page.locator("#item-title")).to_contain_text(key)
    verdicts = page.get_by_role("radio")
    for name in ("Pass", "Borderline", "Fail"):
        expect(verdicts.and_(page.get_by_role("radio", name=re.compile(f"^{name}")))).to_have_count(
            1
        )
    page.keyboard.press("f")
    expect(page.get_by_role("radio", name=re.compile("^Fail"))).to_be_checked()
    page.get_by_role("button", name=re.compile("^Save")).click()
    expect(page.get_by_role("status").filter(has_text=f"{key} saved")).to_have_count(1)


# What a window that is not looked at says of itself, and what it tells the desktop.
IN_THE_BACKGROUND = """
  Object.defineProperty(document, "hidden", { get: () => !window.isLookedAt });
  window.desktop = [];
  window.Notification = class extends EventTarget {
    static permission = "granted";
    static requestPermission = async () => "granted";
    constructor(title, { body, tag }) { super(); window.desktop.push(`${tag}: ${body}`); }
  };
"""


def test_the_end_of_a_long_run_is_announced_in_every_tab(
    context: BrowserContext, page: Page, live_server: LiveServer, log_in: LogIn, runs: list[Run]
) -> None:
    member, run = log_in("editor"), runs[1]
    elsewhere = context.new_page()
    elsewhere.add_init_script(IN_THE_BACKGROUND)
    elsewhere.goto(f"{live_server.url}/account/")
    elsewhere.get_by_role("switch", name="Also on the desktop").check()
    own = Run.objects.filter(pk=run.pk)
    own.update(created_by=member, status="running", summary=None, finished_at=None)
    page.clock.install()
    page.goto(f"{live_server.url}/targets/")
    own.update(status="completed", finished_at=F("started_at") + timedelta(minutes=4))
    assert summarise_run(run.pk)
    page.clock.run_for(16_000)

    text = "Support #2 ended."
    expect(page.get_by_role("status").filter(has_text=text)).to_have_count(1)
    expect(page).to_have_title("Targets · Evalsite")
    expect(elsewhere.get_by_role("status").filter(has_text=text)).to_have_count(1)
    expect(elsewhere).to_have_title("● Account · Evalsite")
    told = elsewhere.evaluate("() => window.desktop")
    assert [words.partition(". ")[0] for words in told] == [f"run-{run.pk}: Support #2 ended"]
    elsewhere.evaluate(
        "() => { window.isLookedAt = true; document.dispatchEvent(new Event('visibilitychange')); }"
    )
    expect(elsewhere).to_have_title("Account · Evalsite")
    # It leads to the run, and is gone with the press of a button.
    elsewhere.get_by_role("button", name="Dismiss").click()
    expect(elsewhere.get_by_text(text)).to_have_count(0)
    page.get_by_role("link", name="Support #2", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run #2")


def test_the_end_of_a_run_is_announced_to_who_watches_it(
    page: Page, live_server: LiveServer, log_in: LogIn, runs: list[Run]
) -> None:
    log_in("viewer")
    run = Run.objects.filter(pk=runs[1].pk)
    run.update(status="running", summary=None, finished_at=None)
    page.add_init_script(IN_THE_BACKGROUND)
    page.clock.install()
    page.goto(f"{live_server.url}/suites/support/runs/2/")
    expect(page).to_have_title("Run #2, 100.0% · Evalsite")
    # The page asks while the figures are still computed, and learns of the end once they are there.
    with page.expect_response(lambda answer: answer.status == 204):
        run.update(status="completed", finished_at=F("started_at") + timedelta(seconds=8))
        page.clock.run_for(3_000)
    assert summarise_run(runs[1].pk)
    page.clock.run_for(3_000)
    notice = page.get_by_role("status").filter(has_text="Support #2 ended. Failed:")
    expect(notice).to_have_count(1)
    expect(page).to_have_title("● Run #2, failed · Evalsite")
