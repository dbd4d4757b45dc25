"""Results of another tool, from a file to the page of a finished run and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.conftest import Console
from tests.formats.test_agentv_results import NESTED, camel

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_file_becomes_a_run_that_can_be_downloaded_again(
    page: Page,
    live_server: LiveServer,
    log_in: Callable[[str], User],
    console: Console,
    tmp_path: Path,
) -> None:
    log_in("editor")
    console.allow("import/results")
    file = tmp_path / "agentv.jsonl"
    file.write_text(json.dumps({**camel(NESTED), "score": 7}))
    page.goto(f"{live_server.url}/runs/")
    page.get_by_role("link", name="Import results").click()
    page.get_by_label("Results", exact=True).set_input_files(file)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("cell", name="the score 7 is not a number from 0 to 1")).to_be_visible()

    file.write_text(json.dumps(camel(NESTED)))
    page.get_by_label("Results", exact=True).set_input_files(file)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run #1")
    expect(page.get_by_text("Imported from agentv.jsonl", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Retry")).to_have_count(0)
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)

    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
        page.get_by_role("link", name="Results, JSON Lines").click()
    [line] = Path(download.value.path()).read_text().splitlines()
    assert json.loads(line)["evaluator_results"][0]["name"] == "release_gate"
    page.get_by_role("link", name="greeting").first.click()
    expect(page.get_by_text("safety").first).to_be_visible()
