"""The charts of a suite in a browser: drawn under the site's policy, without messages, complete and accessible."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from runs.models.suites import Suite
from tests.browser.accessibility import CONTRAST, Theme, violations
from tests.support.charts import make_charted_run
from tests.support.factories import make_campaign, make_scored_run, make_suite, make_target

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
CHARTS = "/suites/support/charts/"


@pytest.fixture
def suite(transactional_db: None) -> Suite:
    """Make a suite with runs of several targets, one of them without a price."""
    suite = make_suite(slug="support", title="Customer support")
    targets = [("atlas-4-mini", 0.82, "0.9"), ("atlas-4-large", 0.845, "1.7")]
    targets += [("juno-2", 0.81, "1.4"), ("orca-nano", 0.69, "0.5"), ("juno-2-max", 0.86, "4")]
    for number, (name, score, cost) in enumerate([*targets, *targets], start=1):
        passed = 26 + number
        make_charted_run(suite=suite, name=name, score=score, cost=cost, passed=passed)
    make_charted_run(suite=suite, name="kestrel", score=0.7, cost="0.4", passed=20, unpriced=3)
    make_charted_run(suite=suite, name="kestrel", score=0.2, cost="1", passed=1, status="stopped")
    return suite


SYSTEM_COLOURS = {"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"}
SYSTEM_GRID = {"light": "rgb(179, 179, 179)", "dark": "rgb(77, 77, 77)"}
COLOURS = {"light": "rgb(95, 104, 115)", "dark": "rgb(142, 151, 162)"}


@pytest.mark.parametrize(
    ("width", "theme", "other_theme"), [(1440, "light", "dark"), (390, "dark", "light")]
)
def test_both_charts_are_drawn_in_either_theme_without_messages_or_foreign_requests(
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
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    answer = page.goto(f"{live_server.url}{CHARTS}")
    assert answer is not None
    assert "unsafe" not in answer.headers["content-security-policy"]
    expect(page.locator("#score-cost .point")).to_have_count(5)
    expect(page.locator("#trend .picture a")).to_have_count(11)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    drawn = page.locator("#score-cost .main-svg").first.bounding_box()
    room = page.locator("#score-cost .plot").bounding_box()
    assert drawn
    assert room
    assert drawn["width"] == pytest.approx(room["width"], abs=2)
    label = page.locator("#score-cost .xtick text").first
    expect(label).to_have_css("fill", COLOURS[theme])
    assert violations(page) == []
    page.emulate_media(color_scheme=other_theme, reduced_motion="reduce")
    expect(label).to_have_css("fill", COLOURS[other_theme])
    assert violations(page, CONTRAST) == []
    # In forced colours the grid stays behind the points: a mix of the system's colours.
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    expect(label).to_have_css("fill", SYSTEM_COLOURS[other_theme])
    grid = page.locator("#score-cost .ygrid").first
    expect(grid).to_have_css("stroke", SYSTEM_GRID[other_theme])
    page.emulate_media(forced_colors="none", reduced_motion="reduce")
    # No figure can be sent to Plotly's cloud.
    assert page.evaluate(
        "[...document.querySelectorAll('[data-figure]')].map(({ _context }) =>"
        " [_context.showSendToCloud, _context.plotlyServerURL, _context.displayModeBar])"
    ) == [[False, "", False]]
    here = urlsplit(live_server.url).netloc
    assert {urlsplit(url).netloc for url in asked if not url.startswith("data:")} == {here}


def test_the_page_can_be_used_before_plotly_is_there(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    held: list[Route] = []
    page.route("**/plotly/*", lambda route: held.append(route))
    # It is back when the page is loaded, although Plotly is not.
    page.goto(f"{live_server.url}{CHARTS}")
    rows = page.locator("#score-cost table tbody tr")
    expect(rows).to_have_count(6)
    page.get_by_label("Target", exact=True).select_option("juno-2")
    expect(rows).to_have_count(1)
    expect(page.locator("#trend .picture a")).to_have_count(2)
    expect(page.locator(".main-svg")).to_have_count(0)
    held[0].continue_()
    expect(page.locator("#score-cost .point")).to_have_count(1)


def test_a_filter_redraws_and_is_kept_in_the_address(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}{CHARTS}")
    page.get_by_label("Points of score and cost").select_option("Every run")
    expect(page.locator("#score-cost .point")).to_have_count(10)
    page.get_by_label("Target", exact=True).select_option("juno-2")
    expect(page.locator("#score-cost .point")).to_have_count(2)
    page.wait_for_url("**/charts/?target=juno-2&points=every")
    page.reload()
    expect(page.locator("#score-cost .point")).to_have_count(2)


def test_the_breakdown_is_read_when_it_is_seen_and_follows_the_filter(
    page: Page, live_server: LiveServer, log_in: LogIn
) -> None:
    suite, target = make_suite(slug="support"), make_target(name="juno-2")
    for _ in range(2):
        make_scored_run(suite=suite, target=target, verdicts=["pass", "fail"])
    suite.cases.update(tags=["billing"], metadata={"tier": "gold"})
    log_in("viewer")
    page.goto(f"{live_server.url}{CHARTS}?points=every")
    expect(page.locator("#breakdown table")).to_have_count(0)
    page.locator("#breakdown").scroll_into_view_if_needed()
    expect(page.locator("#breakdown thead a")).to_have_count(2)
    page.locator("#breakdown select").select_option("tier")
    expect(page.locator("#breakdown tbody th")).to_have_text("gold")
    page.get_by_label("Points of score and cost").select_option("Latest run of each target")
    expect(page.locator("#breakdown thead a")).to_have_count(1)
    expect(page.locator("#breakdown tbody th")).to_have_text("gold")


def test_the_theme_switch_recolours_the_charts(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.emulate_media(color_scheme="light")
    page.goto(f"{live_server.url}{CHARTS}")
    name = page.locator("#score-cost .xtick text").first
    expect(name).to_have_css("fill", COLOURS["light"])
    page.locator('[name="theme"][value="dark"]').check(force=True)
    expect(name).to_have_css("fill", COLOURS["dark"])


def test_a_narrow_window_gets_the_narrow_chart(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}{CHARTS}")
    expect(page.locator("#score-cost .plot")).to_contain_text("atlas")
    page.set_viewport_size({"width": 390, "height": 900})
    expect(page.locator("#score-cost .plot")).not_to_contain_text("atlas")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_point_shows_its_figures_under_the_pointer_and_a_click_opens_its_run(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}{CHARTS}?target=juno-2")
    expect(page.locator("#score-cost .point")).to_have_count(1)
    page.locator("#score-cost .point").hover(force=True)
    expect(page.locator("#score-cost .hovertext")).to_contain_text("juno-2, run #8")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**/suites/support/runs/8/")


def test_a_point_is_called_what_its_target_is_called(
    page: Page, live_server: LiveServer, log_in: LogIn, transactional_db: None
) -> None:
    log_in("viewer")
    suite = make_suite(slug="support")
    name = "R&D <b>agent</b> &lt;1"
    make_charted_run(suite=suite, name=name, score=0.8, cost="1", passed=20)

    page.goto(f"{live_server.url}{CHARTS}")

    point = page.locator("#score-cost .point")
    expect(point).to_have_attribute("aria-label", re.compile(f"^{re.escape(name)}, run #1"))


def test_points_are_one_stop_of_tab_and_arrow_keys_lead_to_the_run(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}{CHARTS}")
    points = page.locator("#score-cost .point")
    expect(points).to_have_count(5)
    expect(page.locator("#score-cost .point[tabindex='0']")).to_have_count(1)
    page.locator("#score-cost .point[tabindex='0']").focus()
    # From left to right: the cheapest first, however they are stacked.
    page.keyboard.press("Home")
    expect(page.locator(":focus")).to_have_accessible_name(re.compile("^orca-nano, run #9"))
    page.keyboard.press("ArrowRight")
    expect(page.locator(".picture-tip")).to_contain_text("atlas-4-mini, run #6")
    assert violations(page) == []
    page.keyboard.press("Enter")
    page.wait_for_url("**/suites/support/runs/6/")


def test_the_legend_hides_a_series_and_the_table_sorts(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}{CHARTS}")
    points = page.locator("#score-cost .point")
    expect(points).to_have_count(5)
    front = page.locator("#score-cost").get_by_role("button", name="Pareto front")
    front.click()
    expect(front).to_have_attribute("aria-pressed", "false")
    expect(points).to_have_count(1)
    # What is hidden stays hidden when other runs are chosen.
    page.get_by_label("Points of score and cost").select_option("Every run")
    expect(page.locator("#score-cost tbody tr")).to_have_count(11)
    expect(front).to_have_attribute("aria-pressed", "false")
    expect(points).to_have_count(2)
    front.focus()
    page.keyboard.press("Enter")
    expect(points).to_have_count(10)
    first = page.locator("#score-cost tbody th").first
    head = page.locator("#score-cost thead th", has_text="Score")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(first).to_have_text(re.compile("juno-2-max"))
    head.get_by_role("button").click()
    expect(first).to_have_text(re.compile("orca-nano"))


def test_the_chart_and_leaderboard_of_a_campaign_update_in_place(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    campaign = make_campaign(suite=suite, name="Models of May")
    suite.runs.filter(number__lte=5).update(campaign=campaign)
    log_in("editor")
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.goto(f"{live_server.url}/campaigns/{campaign.pk}/")
    expect(page.locator("#score-cost .point")).to_have_count(5)
    expect(page.locator(".board tbody tr").first).to_contain_text("juno-2-max")
    page.get_by_role("link", name="Target cost").click()
    expect(page.locator(".board tbody tr").first).to_contain_text("orca-nano")
    page.wait_for_url("**/?sort=target_cost")
    page.get_by_label("Cost", exact=True).select_option("Judge cost")
    expect(page.locator("#score-cost .xtitle")).to_contain_text("Judge cost of one result")
    page.wait_for_url("**/?*cost=evaluation*")
    expect(page.locator("#score-cost .point")).to_have_count(5)
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("textbox", name="Name").fill("Models of June")
    page.get_by_role("button", name="Save name").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Models of June")
    assert heard == []


def test_without_javascript_tables_and_filter_work(
    browser: Browser, page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    log_in("viewer")
    plain = browser.new_context(
        java_script_enabled=False, storage_state=page.context.storage_state()
    )
    opened = plain.new_page()
    opened.goto(f"{live_server.url}{CHARTS}")
    expect(opened.locator("#score-cost tbody tr")).to_have_count(6)
    expect(opened.locator("#score-cost noscript")).to_be_visible()
    opened.get_by_label("Target", exact=True).select_option("juno-2")
    opened.get_by_role("button", name="Show").click()
    expect(opened.locator("#trend tbody tr")).to_have_count(2)
    plain.close()


def test_score_and_cost_can_be_saved_as_an_image(
    page: Page, live_server: LiveServer, log_in: LogIn, suite: Suite
) -> None:
    Suite.objects.update(title="Support & <care>")
    log_in("viewer")
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{live_server.url}{CHARTS}")
    themes: tuple[Theme, ...] = ("light", "dark")
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        with page.expect_download() as saved:
            page.locator("#score-cost").get_by_role("button", name="PNG").click()
        assert saved.value.suggested_filename == "support-score-cost.png"
        image = saved.value.path().read_bytes()
        assert image.startswith(b"\x89PNG")
        # The wide drawing at twice its size, whatever the window's.
        assert [int.from_bytes(image[at : at + 4]) for at in (16, 20)] == [2080, 936]
        assert len(image) > 20_000
