"""Stored outputs are judged again, their judge is measured, and an attempt is chosen: by keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.running import judging_again, measuring, retrying
from tests.browser.accessibility import violations
from tests.browser.keyboard import enter, press, tab_to
from tests.support.factories import make_model
from tests.support.model_server import ModelServer, good
from tests.support.scored_runs import finished_run
from tests.support.trees import JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)


def in_thread(work: Callable[[], object]) -> None:
    """Work as a worker does; playwright has the loop of this thread."""

    def execute() -> None:
        work()
        connections.close_all()

    thread = Thread(target=execute)
    thread.start()
    thread.join()


def work_on_newest() -> Run:
    """Execute the newest run and return it."""
    run = Run.objects.latest("pk")
    in_thread(lambda: work_on_run(run.pk))
    run.refresh_from_db()
    return run


def test_outputs_are_judged_again_measured_and_an_attempt_is_chosen_by_keyboard(
    page: Page,
    live_server: LiveServer,
    log_in: Callable[[str], User],
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (judging_again, measuring, retrying):
        monkeypatch.setattr(module, "queue_workers", lambda run: None)
    price = {"input_price_usd_per_mtok": 1, "output_price_usd_per_mtok": 4}
    usual, other = (
        make_model(slug=slug, name=f"{slug} judge", base_url=model_server.base_url, **price)
        for slug in ("usual", "other")
    )
    model_server.behave(then=good({"reasoning": "", "hits": [], "misses": [], "score": 0.2}))
    texts = [f"Your refund {number}" for number in range(20)]
    made: list[Run] = []
    facts = {"judge": usual, "slug": "support"}
    in_thread(lambda: made.append(finished_run(texts, evaluators=tree(JUDGED), suite_facts=facts)))
    [run] = made
    member = log_in("editor")
    here = f"{live_server.url}/suites/support/runs"

    # What a filter lists, by another judge; no row is below the bar of what is chosen.
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{here}/1/")
    page.keyboard.press("t")
    page.keyboard.insert_text("score < 0.5")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=score*")
    # The address changes before the rows do, and rows that are replaced take the focus with them.
    expect(page.get_by_label("Select all 20 that match")).to_be_attached()
    expect(page.locator("[aria-busy], .htmx-settling, .htmx-added")).to_have_count(0)
    press(page, page.locator("#pick-page"), "Space")
    expect(page.locator("#picks-count")).to_have_text("20 results selected")
    press(page, page.get_by_label("Select all 20 that match"), "Space")
    press(page, page.get_by_role("button", name="More actions"))
    press(page, page.get_by_role("button", name="Judge these again"))
    expect(page.locator(".head")).to_contain_text("the results that the filter lists")
    estimate = page.locator("#judging-estimate")
    tab_to(page, page.get_by_label("Judge optional"))
    page.keyboard.type("other judge")
    expect(estimate).to_contain_text("20 judged: another judge")
    expect(page.get_by_label("Judge optional")).to_be_focused()
    assert violations(page) == []
    press(page, page.get_by_role("button", name="Judge 20 results again"))
    page.wait_for_url("**/runs/2/")
    judged = work_on_newest()
    assert (judged.judge_name, judged.done_count, judged.status) == (other.name, 20, "completed")

    # How far the judge can be trusted: asked from the palette, with its price, read on the run.
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{here}/2/")
    page.keyboard.press("Control+k")
    page.keyboard.type("measure the judge")
    page.keyboard.press("Enter")
    page.wait_for_url("**/measure-judge/")
    enter(page, page.get_by_label("Results drawn"), "5")
    measure = page.get_by_role("button", name="Judge 5 results 3 more times")
    expect(measure).to_be_visible()
    expect(estimate).to_contain_text("up to 15")
    press(page, measure)
    page.wait_for_url("**/runs/3/")
    work_on_newest()
    page.goto(f"{here}/2/")
    expect(page.locator("#run-judge-spread")).to_contain_text(
        "5 of 20 results, judged 3 more times"
    )

    # Which attempt counts.
    result = run.results.get(case__key="C-0")
    in_thread(lambda: retrying.retry_results(run, asked_by=member, result_ids=[result.pk]))
    in_thread(lambda: work_on_run(run.pk))
    page.goto(f"{here}/1/C-0/1/")
    attempts = page.locator("#attempts")
    press(page, attempts.locator("summary"))
    enter(page, attempts.get_by_label("Reason"), "The first was read by two people")
    press(page, attempts.get_by_role("button", name="Let it count"))
    expect(attempts).to_contain_text("chose it: The first was read by two people")
    expect(page.get_by_text("This attempt counts now.")).to_be_visible()

    # Two runs that are ticked in the list, together.
    page.goto(f"{live_server.url}/runs/")
    for number in (2, 1):
        press(page, page.get_by_label(f"Tick run #{number} of"), "Space")
    press(page, page.get_by_role("button", name="Judge again"))
    expect(estimate).to_contain_text("40 of 40")
    assert violations(page) == []
    press(page, page.get_by_role("button", name="Judge 40 results again"))
    page.wait_for_url("**/campaigns/*/")
