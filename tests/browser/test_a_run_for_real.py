"""A run as a user makes it: the served site, its embedded worker and a judge over real HTTP."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.services.processes import ROOT, Process, running, scratch_folder
from tests.services.site import Site


@pytest.fixture(scope="module")
def judge_url() -> Iterator[str]:
    """Serve the scripted judge of the examples."""
    with scratch_folder("judge") as folder:
        ready = Path(folder) / "url"
        script = [
            sys.executable,
            ROOT / "examples" / "scripted_judge.py",
            "--port",
            "0",
            "--delay",
            "0",
        ]
        judge = Process(
            [*script, "--ready-file", ready],
            log=Path(folder) / "judge.log",
            is_ready=lambda: ready.exists() and bool(ready.read_text().strip()),
        )
        with running(judge):
            yield ready.read_text().strip()


def test_start_watch_and_read_a_run(page: Page, site: Site, judge_url: str) -> None:
    site.manage("load_examples", "--judge-url", judge_url)
    page.goto(site.login_link())
    page.get_by_role("button", name="Log in as").click()
    page.locator("#suite-rows").get_by_role("link", name=re.compile("Customer support")).click()
    page.get_by_role("link", name=re.compile("^Start run")).click()
    page.get_by_label("support-agent 1.5.0").check()
    page.get_by_role("button", name=re.compile("^Start run")).click()
    expect(page.locator("#run-head")).to_contain_text("ran for")
    expect(page.locator("#run-live")).to_contain_text("of 30 results passed")
    expect(page.locator("#run-live .gate").first).to_contain_text("Passed")
    page.locator("#rows th a").first.click()
    expect(page.locator("#verdict")).to_be_visible()
    page.get_by_role("link", name="Show requests and replies").click()
    expect(page.locator("#result-calls li").first).to_be_visible()


def test_retry_one_evaluator_and_some_rows_for_real(page: Page, site: Site, judge_url: str) -> None:
    site.manage("load_examples", "--judge-url", judge_url)
    page.goto(site.login_link())
    page.get_by_role("button", name="Log in as").click()
    page.get_by_role("link", name="Runs", exact=True).first.click()
    page.get_by_role("link", name=re.compile(r"^#1 Customer support")).click()
    expect(page.locator("#run-head")).to_contain_text("ran for")
    before = page.locator("#run-live .gate").first.inner_text()

    path = "release_ready/safety"
    page.get_by_role("button", name="Rescore").click()
    page.get_by_title(path, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Rescore").click()
    expect(page.get_by_text("29 results are queued again.")).to_be_visible()
    expect(page.locator("#run-head")).to_contain_text("ran for")
    expect(page.locator("#run-live .gate").first).to_have_text(before, use_inner_text=True)

    page.locator("#sort-case").click()
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    for number in range(3):
        page.locator("#rows .pick input").nth(number).check()
    page.get_by_role("button", name="Rerun 3 results").click()
    page.get_by_role("dialog").get_by_role("button", name="Rerun 3 results").click()
    expect(page.get_by_text("3 results are queued again.")).to_be_visible()
    expect(page.locator("#run-head")).to_contain_text("ran for")
    expect(page.locator("#run-live .gate").first).to_have_text(before, use_inner_text=True)

    page.locator("#rows th a").first.click()
    attempts = page.locator("#attempts li")
    expect(attempts).to_have_count(3)
    expect(attempts.first).to_contain_text("the target is asked again")
    expect(attempts.nth(1)).to_contain_text(f"only {path}, outputs kept")
