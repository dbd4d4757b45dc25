"""A judge aligned with people, by keyboard alone: from the agreement to instructions in the draft."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.suites import SuiteDraft
from runs.reviews.alignment import services
from runs.tasks import work_on_job
from tests.browser.accessibility import violations
from tests.browser.keyboard import enter, press
from tests.reviews.aligning import KIND, SHORT, make_decided_suite, writes
from tests.support.model_server import ModelServer


def work(job_id: int) -> None:
    """Do an alignment as a worker does; playwright has the loop of this thread."""

    def execute() -> None:
        work_on_job(job_id=job_id)
        connections.close_all()

    thread = Thread(target=execute)
    thread.start()
    thread.join()


def test_a_judge_is_aligned_by_keyboard(
    page: Page,
    live_server: LiveServer,
    log_in: Callable[[str], User],
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queued: list[int] = []
    monkeypatch.setattr(services, "queue_job", queued.append)
    model_server.behave(then=writes(SHORT, KIND))
    make_decided_suite(model_server.base_url)
    log_in("editor")
    page.goto(f"{live_server.url}/suites/support/agreement/")
    press(page, page.get_by_role("link", name="Align the judge"))
    expect(page.locator("#alignment-price")).to_contain_text("46 calls.")
    enter(page, page.get_by_label("Candidates"), "2")
    expect(page.locator("#alignment-price")).to_contain_text("31 calls.")
    expect(page.locator("#alignment-power")).to_contain_text("At least 7 must turn")
    assert violations(page) == []
    press(page, page.get_by_role("button", name="Write 2 candidates"))
    expect(page.locator("#alignment")).to_have_attribute("data-state", "waiting")
    work(queued[0])
    # The page fetches itself.
    expect(page.locator("#conclusion")).to_contain_text(
        "Candidate 2 agrees with people on 15 of 15 held-out results"
    )
    expect(page.locator("[data-turn=won]")).to_have_count(7)
    assert violations(page) == []
    press(page, page.get_by_role("link", name="Candidate 1"))
    expect(page.get_by_role("heading", name="Instructions of candidate 1")).to_be_visible()
    expect(page.get_by_text("No verdict differs.")).to_be_visible()
    press(page, page.get_by_role("link", name="Candidate 2"), back=True)
    expect(page.get_by_role("heading", name="Instructions of candidate 2")).to_be_visible()
    press(page, page.get_by_role("button", name="Take into my draft"))
    expect(page.get_by_text("The instructions of candidate 2 are in your draft")).to_be_visible()
    draft = SuiteDraft.objects.get()
    assert draft.content["evaluators"]["children"][0]["config"]["prompt"] == KIND
