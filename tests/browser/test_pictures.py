"""The pictures of runs and comparisons in a browser: drawn when seen, clicked, walked by keys, and saved."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.run_cases import RunCase
from runs.models.runs import Run
from runs.models.suites import Suite
from tests.browser.accessibility import CONTRAST, Theme, violations
from tests.support.charts import make_heated_run
from tests.support.factories import make_scored_run, make_suite

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
RUN = "/suites/support/runs/2/"
VERDICTS = ["pass"] * 12 + ["borderline"] * 3 + ["fail"] * 2 + ["error"]


@pytest.fixture
def suite(transactional_db: None) -> Suite:
    """Make a suite with two runs."""
    suite = make_suite(slug="support", title="Customer support")
    make_scored_run(suite=suite, verdicts=VERDICTS[::-1])
    make_scored_run(suite=suite, verdicts=VERDICTS)
    return suite


@pytest.mark.parametrize(
    ("width", "theme", "other_theme"), [(1440, "light", "dark"), (390, "dark", "light")]
)
def test_pictures_are_drawn_when_seen_into_room_that_was_kept(
    page: Page,
    live_server: LiveServer,
    log_in: LogIn,
    suite: Suite,
    width: int,
    theme: Theme,
    other_theme: Theme,
) -> None:
    log_in("viewer")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": width, "height": 300})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.goto(f"{live_server.url}{RUN}")
    page.wait_for_load_state("networkidle")
    assert not [url for url in asked if "/pictures/" in url]
    slot = page.locator("[data-slot=scores]")
    room = slot.bounding_box()
    slot.scroll_into_view_if_needed()
    expect(slot.locator("svg a")).to_have_count(3)
    filled = slot.bounding_box()
    assert room
    assert filled
    assert filled["height"] == pytest.approx(room["height"], abs=1)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert violations(page) == []
    page.emulate_media(color_scheme=other_theme, reduced_motion="reduce")
    assert violations(page, CONTRAST) == []


def test_a_column_shows_its_text_and_filters_the_cases(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}{RUN}")
    page.locator("[data-slot=scores]").scroll_into_view_if_needed()
    column = page.get_by_role("link", name="0.70 to 0.75: 3 cases (3 borderline)")
    column.hover()
    expect(page.locator(".picture-tip")).to_have_text("0.70 to 0.75: 3 cases (3 borderline)")
    column.click()
    expect(page.locator("#results-filter input[type=search]")).to_have_value(
        "score >= 0.7 score < 0.75"
    )
    expect(page.locator("table.results tbody tr")).to_have_count(3)


def test_arrow_keys_walk_the_columns_which_are_one_stop_of_tab(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}{RUN}")
    page.locator("[data-slot=scores]").scroll_into_view_if_needed()
    columns = page.locator("[data-slot=scores] svg a")
    expect(columns).to_have_count(3)
    assert page.locator("[data-slot=scores] svg a[tabindex='0']").count() == 1
    columns.first.focus()
    page.keyboard.press("ArrowRight")
    expect(columns.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(columns.last).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(columns.last).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=score+%3E%3D+0.9+score+%3C+0.95#results-title")


def spend() -> None:
    """Give the cases of all runs the same latency and cost."""
    RunCase.objects.update(latency_ms=1200, run_cost_usd=Decimal("0.002"))


# Its value is the sum of all layout shifts that no input caused.
SHIFTS = """
    window.shift = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
    }).observe({ type: "layout-shift", buffered: true });
"""
PAGES = {
    RUN: ("scores", "latency", "cost", "heat-map"),
    "/compare/?baseline=support:1&candidate=support:2": (
        *("scatter", "scores", "latency", "cost", "heat-map"),
    ),
    "/suites/support/": ("trend",),
}


@pytest.mark.parametrize("path", PAGES)
def test_every_picture_has_its_table_keys_and_files_and_moves_nothing(
    page: Page, live_server: LiveServer, log_in: LogIn, path: str
) -> None:
    before = make_heated_run(*[(place / 9, place / 9, 1.0) for place in range(9)])
    make_heated_run(*[(place / 9, 0.2, 0.5) for place in range(9, 0, -1)], suite=before.suite)
    spend()
    Run.objects.update(score_sum=4, score_count=9)
    log_in("viewer")
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.add_init_script(SHIFTS)
    page.goto(f"{live_server.url}{path}")
    for name in PAGES[path]:
        slot = page.locator(f"[data-slot={name}]")
        slot.scroll_into_view_if_needed()
        if name != "heat-map":
            expect(slot.locator(".picture > svg")).to_be_visible()
            expect(slot.locator("svg a[tabindex='0']")).to_have_count(1)
            slot.locator("summary").click()
        expect(slot.locator("table tbody tr").first).to_be_visible()
        with page.expect_download() as table:
            slot.get_by_role("link", name="CSV").click()
        assert len(table.value.path().read_text().splitlines()) > 1
        with page.expect_download() as saved:
            slot.get_by_role("button", name="PNG").click()
        assert saved.value.suggested_filename == f"{name}.png"
        image = saved.value.path().read_bytes()
        assert image.startswith(b"\x89PNG")
        assert len(image) > 5_000
    if name == "heat-map":
        slot.locator("tbody td a").last.focus()
        words = page.locator(".picture-tip")
        expect(words).to_contain_text("tone in #2: .50" if "compare" in path else "tone: ")
    assert page.evaluate("window.shift") < 0.05
    assert heard == []


def test_the_legend_hides_a_verdict_and_the_table_sorts(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    spend()
    log_in("viewer")
    page.goto(f"{live_server.url}{RUN}")
    slot = page.locator("[data-slot=latency]")
    slot.scroll_into_view_if_needed()
    passes = slot.get_by_role("button", name="Pass")
    marks = slot.locator("svg[role] rect[data-verdict='pass']")
    error = slot.locator("svg[role] rect[data-verdict='error']")
    expect(marks.first).to_be_visible()
    base = error.bounding_box()
    passes.focus()
    page.keyboard.press("Space")
    expect(passes).to_have_attribute("aria-pressed", "false")
    expect(slot.locator("svg[role] rect[data-verdict='pass']:visible")).to_have_count(0)
    # What is left of a column stands on its base.
    fallen = error.bounding_box()
    assert base
    assert fallen
    assert fallen["y"] > base["y"]
    passes.click()
    expect(marks.first).to_be_visible()
    assert error.bounding_box() == base
    slot = page.locator("[data-slot=scores]")
    slot.scroll_into_view_if_needed()
    slot.locator("summary").click()
    head = slot.locator("thead th", has_text="Cases")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(slot.locator("tbody tr").first).to_contain_text("12")


def test_both_runs_are_drawn_in_a_comparison(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}/compare/?baseline=support:1&candidate=support:2")
    slot = page.locator("[data-slot=scores]")
    slot.scroll_into_view_if_needed()
    expect(slot.locator("svg rect.before")).to_have_count(4)
    slot.get_by_role("link", name="0.70 to 0.75").first.click()
    expect(page.locator("#changes-filter input[type=search]")).to_have_value(
        "score >= 0.7 score < 0.75"
    )
    assert violations(page) == []


def test_the_heat_map_is_walked_by_arrow_keys_and_reads_on_when_scrolled(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    run = make_heated_run(*[(place / 120, place % 2, place / 120) for place in range(120)])
    log_in("viewer")
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(f"{live_server.url}/suites/support/runs/{run.number}/")
    slot = page.locator("[data-slot=heat-map]")
    slot.scroll_into_view_if_needed()
    rows = slot.locator("tbody tr")
    expect(rows).to_have_count(101)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert violations(page, CONTRAST) == []
    slot.get_by_role("link", name="C-1 ").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    focused = page.locator(":focus")
    expect(focused).to_have_attribute("href", "/suites/support/runs/1/C-2/1/#evaluators")
    expect(page.locator(".picture-tip")).to_have_text("C-2Case C-2\ntone: .00")
    rows.last.scroll_into_view_if_needed()
    expect(rows).to_have_count(120)
    focused.press("Enter")
    page.wait_for_url("**/C-2/1/#evaluators")
