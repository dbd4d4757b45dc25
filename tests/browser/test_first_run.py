"""From an empty site to a first verdict, with every click counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.accessibility import violations
from tests.services.site import Site, running_site
from tests.support.model_server import ModelServer

MAX_CLICKS = 12
CASES = """\
question,expected answer
When do I get my money back?,In five working days
May I return worn boots?,No
"""


class Walk:
    """A visit that counts the clicks; fields are filled from the keyboard."""

    def __init__(self, page: Page) -> None:
        """Begin without clicks."""
        self.page, self.clicks = page, 0

    def click(self, control: Locator) -> None:
        """Click once."""
        self.clicks += 1
        control.click()

    def press(self, name: str) -> None:
        """Click the button of this name."""
        self.click(self.page.get_by_role("button", name=name))

    def follow(self, name: str) -> None:
        """Click the link of this name."""
        self.click(self.page.get_by_role("link", name=name))


@pytest.fixture
def empty_site() -> Iterator[Site]:
    """Run a site without anything."""
    with running_site() as site:
        yield site


def test_a_first_verdict_takes_few_clicks_and_no_refusal(
    page: Page, empty_site: Site, model_server: ModelServer, tmp_path: Path
) -> None:
    table = tmp_path / "refund-questions.csv"
    table.write_text(CASES)
    page.goto(empty_site.login_link())
    page.get_by_role("button", name="Log in as").click()
    refused: list[str] = []
    page.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
    steps = page.locator("#first-steps")
    expect(steps).to_contain_text("0 of 4 steps done")
    assert violations(page) == []

    walk = Walk(page)
    walk.follow("Add a model")
    page.get_by_label("Name", exact=True).fill("Mock model")
    page.get_by_label("Base URL").fill(model_server.base_url)
    page.get_by_label("Model id").fill("mock-1")
    walk.press("Add the model")
    expect(steps).to_contain_text("1 of 4 steps done")

    walk.follow("Import a file")
    with page.expect_file_chooser() as chooser:
        walk.click(page.get_by_label("Files", exact=True))
    chooser.value.set_files(table)
    walk.press("Import")
    walk.press("Store the ticked cases")
    walk.follow("Start the first run")

    # What was typed before leaving for a target is still there afterwards, and the new target is ticked.
    expect(page.get_by_role("button", name="Start run")).to_be_disabled()
    expect(page.locator("#id_judge option:checked")).to_have_text("Mock model")
    page.get_by_role("spinbutton", name="Repetitions").fill("2")
    walk.press("Add a target")
    page.get_by_label("Name", exact=True).fill("refund-agent")
    expect(page.locator("#id_model option:checked")).to_have_text("Mock model")
    walk.press("Add target")
    expect(page.get_by_label("refund-agent")).to_be_checked()
    expect(page.get_by_role("spinbutton", name="Repetitions")).to_have_value("2")
    walk.press("Start run")
    expect(page.locator("#run-head")).to_contain_text("ran for")
    expect(page.locator("#run-head [data-verdict]").first).to_be_visible()
    assert walk.clicks == 10 <= MAX_CLICKS
    assert refused == []
    page.goto(empty_site.url)
    expect(page.locator("#dashboard")).to_be_visible()
    expect(steps).to_have_count(0)


def test_the_sample_gives_a_verdict_without_a_model(page: Page, empty_site: Site) -> None:
    page.goto(empty_site.login_link())
    page.get_by_role("button", name="Log in as").click()
    walk = Walk(page)
    walk.press("Use the sample")
    expect(page.get_by_label("Sample answers")).to_be_checked()
    walk.press("Start run")
    expect(page.locator("#run-head")).to_contain_text("ran for")
    expect(page.locator("#run-live")).to_contain_text("10 of 12 results passed")
    assert walk.clicks == 2
    page.get_by_role("link", name=re.compile("QC-12")).first.click()
    expect(page.locator("#verdict")).to_contain_text("Failed")
