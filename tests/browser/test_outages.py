"""An outage while someone types: the form keeps its text, and a live page says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Console
from tests.services.site import Site, running_site

STORE = """
from evaluators.models import LanguageModel
from runs.models.suites import Case, Suite
from runs.models.suites import Target
from runs.specs.suites import SuiteSpec
from runs.running import services
suite = Suite(slug="support")
suite.write(SuiteSpec.model_validate({"title": "Support", "evaluators": {"name": "all", "kind": "text_check", "config": {"operator": "contains", "value": "x"}}}))
Case.objects.create(suite=suite, key="C-1", content_hash="1", input=[], recorded_output={"output": "x"})
target = Target.objects.create(name="agent", kind="recorded")
LanguageModel.objects.create(slug="juno", name="Juno", model_id="juno", base_url="http://127.0.0.1:9/v1")
services.start_run(suite=suite, target=target, started_by=None, owner_id="elsewhere//1/1")
"""


@pytest.fixture
def broken_site() -> Iterator[Site]:
    with running_site() as site:
        site.manage("shell", "--verbosity", "0", "-c", STORE)
        yield site


@contextmanager
def away(site: Site) -> Iterator[None]:
    """Put a folder in the place of the database, which no process can open."""
    file = site.data_dir / "evalsite.sqlite3"
    parts = [path for path in _parts(file) if path.exists()]
    for path in parts:
        path.rename(_moved(path))
    file.mkdir()
    try:
        yield
    finally:
        file.rmdir()
        for path in parts:
            _moved(path).rename(path)


def _parts(file: Path) -> list[Path]:
    return [file.with_name(file.name + end) for end in ("", "-wal", "-shm")]


def _moved(path: Path) -> Path:
    return path.with_name(f"moved-{path.name}")


def test_during_an_outage_a_form_keeps_its_text_and_a_live_page_says_so(
    broken_site: Site, page: Page, console: Console
) -> None:
    console.allow("503")
    page.goto(broken_site.login_link())
    page.get_by_role("button", name="Log in").click()
    page.goto(f"{broken_site.url}/targets/new/?kind=chat")
    page.get_by_label("Name").fill("agent 2")
    page.get_by_label("Description").fill("Words nobody wants to write twice")
    page.get_by_label("Model", exact=True).select_option(label="Juno")

    with away(broken_site):
        page.get_by_role("button", name="Add target").click()
        expect(page.get_by_role("heading", name="The database does not answer")).to_be_visible()
        expect(page.get_by_text("Nothing was saved.")).to_be_visible()
        page.go_back()
        expect(page.get_by_label("Description")).to_have_value("Words nobody wants to write twice")
    page.get_by_role("button", name="Add target").click()
    expect(page.get_by_role("heading", name="agent 2")).to_be_visible()

    page.goto(f"{broken_site.url}/suites/support/runs/1/")
    paused = page.get_by_text("Live updates paused.")
    expect(paused).to_be_hidden()
    with away(broken_site):
        expect(paused).to_be_visible()
    expect(paused).to_be_hidden()
