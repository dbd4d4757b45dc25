"""The page of charts, its panels and its files, as they are answered."""

from __future__ import annotations

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import reverse

from runs.charts.views import EMPTY_STYLE
from tests.support.charts import make_charted_run
from tests.support.factories import make_suite
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    return make_client(make_member("viewer"))


def shown(client: Client, name: str = "suite-charts", **query: str) -> str:
    response = client.get(reverse(f"runs:{name}", args=["support"]), query)
    assert response.status_code == 200
    return response.content.decode()


def test_a_suite_without_completed_runs_says_when_charts_begin(viewer: Client) -> None:
    make_suite(slug="support")
    html = shown(viewer)
    assert "No completed run yet" in html
    assert "plotly" not in html


def test_a_target_without_completed_runs_leads_back_to_all(viewer: Client) -> None:
    suite = make_suite(slug="support")
    make_charted_run(suite=suite, name="mini")
    html = shown(viewer, target="nobody")
    assert "No completed run of this target" in html
    assert f'href="{reverse("runs:suite-charts", args=["support"])}"' in html


def test_both_charts_stand_beside_their_tables(viewer: Client) -> None:
    suite = make_suite(slug="support")
    make_charted_run(suite=suite, name="mini", score=0.9, cost="1")
    make_charted_run(suite=suite, name="waste", score=0.8, cost="2")
    make_charted_run(suite=suite, name="kestrel", cost="1", unpriced=2)
    make_charted_run(suite=suite, name="mini", status="stopped")
    html = shown(viewer)
    assert '<script id="score-cost-figure" type="application/json">' in html
    assert 'rel="preload" as="script"' in html
    assert "dominated by mini #1" in html
    assert "gate 80%" in html
    assert "gate 100%" in shown(viewer, trend="rate")
    assert html.count("data-sortable") == 2
    assert "every case alike: no interval" in html
    assert "2 of 3 runs drawn" in html
    assert "target 1 of 3 results priced" in html
    assert "1 run was cancelled" in html


def test_where_nothing_is_drawn_there_is_no_front(viewer: Client) -> None:
    make_charted_run(suite=make_suite(slug="support"), name="kestrel", cost="1", unpriced=2)
    html = shown(viewer)
    assert "0 of 1 run drawn" in html
    assert "on the front" not in html
    assert 'rel="preload" as="script"' not in html


def test_the_trend_has_a_line_for_each_target_from_its_third_run(viewer: Client) -> None:
    suite = make_suite(slug="support")
    for _ in range(2):
        make_charted_run(suite=suite, name="mini")
    assert 'class="series' not in shown(viewer)
    make_charted_run(suite=suite, name="mini")
    make_charted_run(suite=suite, name="maxi")
    assert shown(viewer).count('class="series s2"') == 2


def test_a_latency_nobody_reported_is_said_to_be_unknown(viewer: Client) -> None:
    suite = make_suite(slug="support")
    make_charted_run(suite=suite, name="mini")
    assert "diamond" not in shown(viewer)
    make_charted_run(suite=suite, name="silent", latency_ms=None)
    assert "unknown for diamonds" in shown(viewer)


def test_the_panels_put_the_pages_address_in_place(viewer: Client) -> None:
    make_charted_run(suite=make_suite(slug="support"), name="mini")
    address = reverse("runs:chart-panels", args=["support"])
    response = viewer.get(address, {"cost": "target", "points": "latest", "last": "30"})
    assert response["HX-Push-Url"] == "/suites/support/charts/?cost=target"
    assert b'id="chart-panels"' in response.content
    assert b"<html" not in response.content


def test_a_name_cannot_leave_the_figure(viewer: Client) -> None:
    make_charted_run(suite=make_suite(slug="support"), name="</script><b>x")
    html = shown(viewer)
    assert "</script><b>" not in html


def test_only_pages_with_charts_allow_the_empty_style_element(viewer: Client) -> None:
    make_suite(slug="support")
    charts = viewer.get(reverse("runs:suite-charts", args=["support"]))
    other = viewer.get(reverse("runs:suite", args=["support"]))
    assert EMPTY_STYLE in charts["Content-Security-Policy"]
    assert EMPTY_STYLE not in other["Content-Security-Policy"]


@pytest.mark.parametrize("name", ["score-cost-file", "suite-trend-file"])
def test_the_files_follow_the_filters(viewer: Client, name: str) -> None:
    suite = make_suite(slug="support")
    make_charted_run(suite=suite, name="mini")
    make_charted_run(suite=suite, name="large")
    text = shown(viewer, name, target="large")
    assert "large" in text
    assert "mini" not in text


def test_plotlys_script_alone_is_served_of_its_package() -> None:
    assert finders.find("plotly/plotly.min.js")
    assert not finders.find("plotly/widgetbundle.js")
    listed = [
        path
        for finder in finders.get_finders()
        for path, storage in finder.list(None)
        if getattr(storage, "prefix", None) == "plotly"
    ]
    assert listed == ["plotly.min.js"]
