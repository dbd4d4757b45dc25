"""Cases are drafted by the demo's model, looked at, changed and stored: by keyboard, at both widths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.drafting import services
from runs.models.results import ResultOutput
from runs.tasks import work_on_job
from tests.browser.accessibility import violations
from tests.browser.keyboard import enter, press
from tests.examples.scripted_server import started
from tests.support.factories import make_case, make_model, make_result, make_run, make_suite

pytestmark = pytest.mark.django_db(transaction=True)


def work(job_id: int) -> None:
    """Draft as a worker does; playwright has the loop of this thread."""

    def execute() -> None:
        work_on_job(job_id=job_id)
        connections.close_all()

    thread = Thread(target=execute)
    thread.start()
    thread.join()


def test_cases_are_drafted_from_failures_by_keyboard(
    page: Page,
    live_server: LiveServer,
    log_in: Callable[[str], User],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queued: list[int] = []
    monkeypatch.setattr(services, "queue_job", queued.append)
    suite = make_suite(slug="support", title="Support")
    asked = [{"role": "user", "content": "Where is the refund of order 88 that you promised me?"}]
    case = make_case(suite=suite, key="C-1", input=asked)
    run = make_run(suite=suite, done_count=1)
    result = make_result(run=run, case=case, verdict="fail", score=0.1)
    ResultOutput.objects.create(result=result, text="No idea.")
    log_in("editor")
    with started(tmp_path) as server:
        price = {"input_price_usd_per_mtok": 1, "output_price_usd_per_mtok": 4}
        make_model(slug="scripted-judge", name="Scripted", base_url=server.base_url, **price)
        page.goto(f"{live_server.url}/suites/support/runs/{run.number}/")
        page.keyboard.press("Control+k")
        page.keyboard.type("draft cases")
        page.keyboard.press("Enter")
        page.wait_for_url("**/draft-cases/?source=results&run=*")
        expect(page.locator("#drafting-estimate")).to_contain_text("1 failed result of support#1")
        enter(page, page.get_by_label("Number of cases"), "4")
        expect(page.locator("#drafting-estimate")).to_contain_text("$0.00")
        assert violations(page) == []
        press(page, page.get_by_role("button", name="Draft cases", exact=True))
        expect(page.locator("#drafting-state")).to_contain_text("Waiting for a worker")
        assert violations(page) == []
        work(queued[0])
    # The page fetches itself.
    rows = page.locator(".read-cases tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_contain_text("The same as C-1")
    expect(rows.nth(0).get_by_role("checkbox")).not_to_be_checked()
    expect(rows.nth(1)).to_contain_text("Nearly the same as C-1")
    for width, theme in ((390, "dark"), (1440, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    rows.nth(1).get_by_role("checkbox").focus()
    page.keyboard.press("Space")
    rows.nth(2).locator("summary").focus()
    page.keyboard.press("Enter")
    rows.nth(2).get_by_label("Key").fill("expired-card")
    press(page, page.get_by_role("button", name="Save changes and check again"))
    expect(rows.nth(2)).to_contain_text("expired-card")
    expect(rows.nth(1).get_by_role("checkbox")).not_to_be_checked()
    press(page, page.get_by_role("button", name="Store the ticked cases"))
    expect(page.get_by_role("heading", name="2 cases added")).to_be_visible()
    page.goto(f"{live_server.url}/suites/support/cases/expired-card/")
    expect(page.locator(".head")).to_contain_text(
        "Drafted by Scripted from 1 failed result of support#1"
    )
