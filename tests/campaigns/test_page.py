"""The page of a campaign in every state its runs can be in, its parts, files and actions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs.finishing import summarise_run
from runs.models.runs import Campaign, Run
from runs.models.suites import Suite
from tests.support.factories import (
    make_campaign,
    make_case,
    make_result,
    make_scored_run,
    make_suite,
    make_target,
)

pytestmark = pytest.mark.django_db
PASSED, FAILED = ["pass"], ["fail"]


@pytest.fixture
def suite() -> Suite:
    return make_suite(slug="support", title="Customer support")


@pytest.fixture
def campaign(suite: Suite) -> Campaign:
    return make_campaign(suite=suite, name="Models of May")


def started(campaign: Campaign, name: str, verdicts: Sequence[str], **columns: object) -> Run:
    """Make a run of the campaign with a case a verdict, summarised where it is over."""
    run = make_scored_run(
        verdicts=verdicts,
        suite=campaign.suite,
        campaign=campaign,
        target=make_target(name=name),
        **columns,
    )
    summarise_run(run.pk)
    run.refresh_from_db()
    return run


def at(campaign: Campaign, part: str = "") -> str:
    name = f"runs:campaign-{part}" if part else "runs:campaign"
    return reverse(name, args=[campaign.pk])


def text(client: Client, address: str, **query: str) -> str:
    response = client.get(address, query)
    assert response.status_code in (200, 286), response.status_code
    return response.content.decode()


def words(html: str) -> str:
    """Return what a reader sees, without the markup."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def order(html: str) -> list[str]:
    """Return the targets of the leaderboard from top to bottom."""
    board = html.partition('class="board"')[2].partition("</table>")[0]
    return re.findall(r'id="run-\d+"[^>]*>([^<]+)<', board)


def test_the_leaderboard_says_who_leads_and_how_sure_that_is(
    viewer_client: Client, campaign: Campaign
) -> None:
    started(campaign, "slow", PASSED * 2 + FAILED * 10)
    started(campaign, "best", PASSED * 12)
    started(campaign, "close", PASSED * 11 + FAILED)
    page = text(viewer_client, at(campaign))
    said = words(page)
    assert order(page) == ["best", "close", "slow"]
    assert (
        "best leads with 100.0% (12 of 12 results) at $0.016 per pass; no other run scores "
        "as high for less. It passed both gates. close is not clearly behind it: the difference is within the noise."
    ) in said
    assert "not clearly behind rank 1, p = 1.000 over 12 shared cases" in said
    assert "behind rank 1, p = 0.004 over 12 shared cases" in said
    assert "dominated by best #2" in said
    assert "11 of 12 passed" in said
    assert "<b>100.0%</b>" in page
    assert '<script id="score-cost-figure" type="application/json">' in page
    assert 'hx-trigger="every' not in page


def test_a_run_of_errors_alone_has_no_score_to_stand_by(
    viewer_client: Client, campaign: Campaign
) -> None:
    started(campaign, "broken", ["error", "error"])
    said = words(text(viewer_client, at(campaign)))
    assert "0 of 2 scored" in said
    assert "No run leads: all results have errors." in said
    started(campaign, "broken too", ["error"])
    assert "share the lead" not in words(text(viewer_client, at(campaign)))
    started(campaign, "poor", FAILED)
    assert "No run leads" not in words(text(viewer_client, at(campaign)))
    assert "no score" in said.partition("0 of 2 scored")[2].partition("Ranked by")[0]
    assert "cost partly unknown" not in said.partition("Leaderboard")[2].partition("Ranked by")[0]


def test_figures_of_an_ended_run_lead_to_its_cases(
    viewer_client: Client, campaign: Campaign
) -> None:
    run = started(campaign, "one", PASSED * 2 + FAILED)
    place = f"/suites/support/runs/{run.number}/"
    page = text(viewer_client, at(campaign))
    for query in ("?q=verdict+%21%3D+pass", "?sort=score", "?verdict=fail"):
        assert f'href="{place}{query}' in page, query
        assert viewer_client.get(place + query).status_code == 200
    Run.objects.filter(pk=run.pk).update(status="running", finished_at=None)
    page = text(viewer_client, at(campaign))
    assert f"{place}?verdict=fail" not in page, "its counts are of results so far"


def test_equal_runs_share_a_rank(viewer_client: Client, campaign: Campaign) -> None:
    for name in ("one", "other"):
        started(campaign, name, PASSED * 3)
    started(campaign, "last", FAILED * 3)
    said = words(text(viewer_client, at(campaign)))
    assert "one and other share the lead with 100.0% (3 of 3 results)" in said
    assert "3 shared cases are too few to tell it from rank 1" in said
    lines = list(csv.DictReader(io.StringIO(text(viewer_client, at(campaign, "file")))))
    assert [(line["target"], line["rank"]) for line in lines] == [
        ("one", "1"),
        ("other", "1"),
        ("last", "3"),
    ]
    started(campaign, "third", PASSED * 3)
    said = words(text(viewer_client, at(campaign)))
    assert "one, other and third share the lead with" in said


@pytest.mark.parametrize(
    ("status", "verdicts", "why"),
    [
        ("stopped", ["pass", "cancelled"], "was cancelled"),
        ("budget_reached", ["pass", "cancelled"], "reached its budget"),
        ("failed", ["error"], "failed"),
    ],
)
def test_a_run_that_ended_early_stands_below_and_says_why(
    viewer_client: Client, campaign: Campaign, status: str, verdicts: list[str], why: str
) -> None:
    started(campaign, "early", verdicts, status=status)
    started(campaign, "whole", FAILED * 2)
    page = text(viewer_client, at(campaign))
    said = words(page)
    assert order(page) == ["whole", "early"]
    assert f"Not every run was completed: early {why}" in said
    assert "no rank: " in said
    assert "whole leads with 0.0% (0 of 2 results)" in said


def test_runs_that_are_on_are_polled_until_the_last_is_over(
    viewer_client: Client, campaign: Campaign
) -> None:
    done = started(campaign, "done", PASSED * 2)
    on = started(campaign, "on", ["pass", "running", "pending"], status="running")
    started(campaign, "next", ["pending"] * 3, status="queued")
    page = text(viewer_client, at(campaign))
    said = words(page)
    assert 'hx-trigger="every 2s"' in page
    assert "2 of 3 runs are still running; so far done leads with 100.0%" in said
    assert "Ranks are provisional while runs are in progress" in said
    assert 'aria-label="1 of 3 results of on"' in page
    assert "no rank yet: it is waiting" in said
    live = viewer_client.get(at(campaign, "live"), {"was": "completed-running-queued"})
    assert (live.status_code, "HX-Trigger" in live) == (200, False)

    Run.objects.exclude(pk=done.pk).update(status="stopped")
    live = viewer_client.get(at(campaign, "live"), {"was": "completed-running-queued"})
    assert (live.status_code, live["HX-Trigger"]) == (286, "campaign-changed")
    assert "every 2s" not in live.text
    assert f"run #{on.number}" in live.text
    assert live.text.count("data-ended") == 2
    assert f"Customer support #{on.number} ended. Not evaluated: the run is incomplete." in words(
        live.text
    )
    viewer_client.cookies["run-notices"] = "off"
    silent = viewer_client.get(at(campaign, "live"), {"was": "completed-running-queued"})
    assert "data-ended" not in silent.text


def test_nobody_leads_where_no_run_was_completed(viewer_client: Client, campaign: Campaign) -> None:
    for name in ("one", "other"):
        started(campaign, name, ["cancelled"], status="stopped")
    said = words(text(viewer_client, at(campaign)))
    assert "No run was completed, so no run leads." in said
    assert "Nothing to draw yet" in said


def test_errors_are_told_before_a_rank_is_trusted(
    viewer_client: Client, campaign: Campaign
) -> None:
    started(campaign, "shaky", ["pass", "error"])
    started(campaign, "sound", ["pass", "fail"])
    said = words(text(viewer_client, at(campaign)))
    assert "Errors count as not passed: shaky 1 of 2." in said


def test_runs_that_were_deleted_are_missed(viewer_client: Client, campaign: Campaign) -> None:
    assert "No run of this campaign is left" in text(viewer_client, at(campaign))
    started(campaign, "left", PASSED)
    assert "One run is left." in text(viewer_client, at(campaign))


@pytest.mark.each_database
def test_a_column_sorts_its_best_first_and_missing_figures_last(
    viewer_client: Client, campaign: Campaign
) -> None:
    started(campaign, "b", PASSED * 2)
    started(campaign, "c", FAILED * 2)
    started(campaign, "a", ["pending"], status="queued")
    assert order(text(viewer_client, at(campaign), sort="target")) == ["a", "b", "c"]
    page = text(viewer_client, at(campaign), sort="-target", cases="differ")
    assert order(page) == ["c", "b", "a"]
    assert 'aria-sort="descending"' in page
    assert "?sort=target&amp;cases=differ" in page
    assert order(text(viewer_client, at(campaign), sort="-rate")) == ["b", "c", "a"]
    assert order(text(viewer_client, at(campaign), sort="rate")) == ["c", "b", "a"]
    assert order(text(viewer_client, at(campaign), sort="nonsense")) == ["b", "c", "a"]


def keys(html: str) -> list[str]:
    return re.findall(r"<code>(C-\d+)</code>", html)


def test_cases_are_shown_by_how_the_targets_differ(
    viewer_client: Client, campaign: Campaign
) -> None:
    first = started(campaign, "one", ["pass", "pass", "fail", "error"])
    started(campaign, "other", ["pass", "fail", "fail", "pass"])
    shown = {
        name: keys(text(viewer_client, at(campaign, "cases"), cases=name))
        for name in ("", "differ", "failed", "errored", "nonsense")
    }
    assert shown == {
        "": ["C-001", "C-002", "C-003", "C-004"],
        "nonsense": ["C-001", "C-002", "C-003", "C-004"],
        "differ": ["C-002", "C-004"],
        "failed": ["C-003"],
        "errored": ["C-004"],
    }
    page = text(viewer_client, at(campaign, "cases"))
    place = {"slug": "support", "number": first.number, "key": "C-004", "repetition": 1}
    assert (
        f'href="{reverse("runs:result", kwargs=place)}" title="Errored: C-004 against one"' in page
    )
    assert page.count(">differ</span>") == 2
    scores = re.findall(r'</a>\s*<span\s+class="num"\s*>([^<]*)</span>', page)
    assert scores == ["0.92", "0.92", "0.92", "0.40", "0.40", "0.40", "–", "0.92"]


def test_many_cases_are_shown_fifty_at_a_time(viewer_client: Client, campaign: Campaign) -> None:
    for name in ("one", "other"):
        started(campaign, name, PASSED * 53)
    page = text(viewer_client, at(campaign, "cases"))
    assert len(keys(page)) == 50
    assert keys(text(viewer_client, at(campaign, "cases"), after="49")) == [
        "C-051",
        "C-052",
        "C-053",
    ]
    assert "?after=49" in page


def test_repetitions_say_how_many_passed_and_lead_to_one_that_did_not(
    viewer_client: Client, campaign: Campaign, suite: Suite
) -> None:
    case = make_case(suite=suite, key="C-001")
    for name in ("one", "other"):
        run = started(campaign, name, [], repetitions=3)
        for repetition, verdict in enumerate(("pass", "fail", "pass"), start=1):
            make_result(run=run, case=case, repetition=repetition, verdict=verdict, score=0.9)
    page = text(viewer_client, at(campaign, "cases"))
    assert "2/3" in page
    assert "/C-001/2/" in page


def test_the_queries_are_as_many_for_few_runs_as_for_many(
    viewer_client: Client, campaign: Campaign
) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as made:
            text(viewer_client, at(campaign))
        return len(made)

    for number in range(2):
        started(campaign, f"agent {number}", ["pass", "fail"])
    few = count()
    for number in range(2, 7):
        started(campaign, f"agent {number}", ["pass", "fail", "pass", "error", "pass"])
    assert count() == few
    assert few <= 16


def test_who_may_start_stops_all_starts_again_and_names(
    editor_client: Client, viewer_client: Client, campaign: Campaign
) -> None:
    first = started(campaign, "one", ["pass", "running"], status="running", repetitions=2)
    other = started(campaign, "other", PASSED)
    assert "Cancel all active runs?" in text(editor_client, at(campaign))
    assert "Cancel all" not in text(viewer_client, at(campaign))
    assert "Rename" not in text(viewer_client, at(campaign))
    assert viewer_client.post(at(campaign, "stop")).status_code == 403

    page = editor_client.post(at(campaign, "stop"), follow=True).text
    assert "1 run cancelled. Finished results are kept." in page
    first.refresh_from_db()
    assert first.status == "stopped"
    assert (
        "All runs have already ended" in editor_client.post(at(campaign, "stop"), follow=True).text
    )
    assert f"?target={first.target_id}&amp;target={other.target_id}&amp;repetitions=2" in page

    assert "would not run again" not in page
    first.target.archived_at = timezone.now()
    first.target.save()
    page = text(editor_client, at(campaign))
    assert f"?target={other.target_id}&amp;repetitions=2" in page
    assert "one is archived or deleted and would not run again" in page

    editor_client.post(at(campaign, "name"), {"name": "Models of June"})
    assert "<h1>Models of June</h1>" in text(viewer_client, at(campaign))
    refused = editor_client.post(at(campaign, "name"), {"name": "x" * 201})
    assert refused.status_code == 422
    assert "at most 200 characters" in refused.text
    editor_client.post(at(campaign, "name"), {"name": ""})
    assert f"<h1>Campaign {campaign.pk}</h1>" in text(viewer_client, at(campaign))


def test_the_files_hold_the_exact_figures(viewer_client: Client, campaign: Campaign) -> None:
    started(campaign, "=best", PASSED * 3)
    started(campaign, "other", ["pass", "fail", "error"])
    best, other = csv.DictReader(io.StringIO(text(viewer_client, at(campaign, "file"))))
    assert (best["target"], best["pass_rate"], best["total_cost_usd"]) == (
        "'=best",
        "1.0",
        "0.048000000",
    )
    assert (other["error_count"], other["pareto"], other["dominated_by_run"]) == (
        "1",
        "dominated",
        best["run"],
    )
    document = viewer_client.get(at(campaign, "json")).json()
    assert document["headline"].startswith("=best leads with 100.0%")
    assert [row["rank"] for row in document["leaderboard"]] == [1, 2]
    assert document["leaderboard"][0]["cost_per_passed_result_usd"] == "0.016000000"
    drawn = csv.DictReader(
        io.StringIO(text(viewer_client, at(campaign, "cost-file"), cost="target"))
    )
    assert {line["cost"] for line in drawn} == {"target"}


def test_the_chart_is_drawn_by_the_cost_that_is_chosen(
    viewer_client: Client, campaign: Campaign
) -> None:
    started(campaign, "one", PASSED)
    response = viewer_client.get(at(campaign, "chart"), {"cost": "evaluation"})
    assert "judge cost of one result" in response.text
    head = response.text.partition("<header>")[2].partition("</header>")[0]
    assert 'name="cost"' in head, "in the panel that it changes"
    assert response["HX-Push-Url"] == f"{at(campaign)}?cost=evaluation"


def test_campaigns_are_listed_and_led_to_from_runs_and_suites(
    viewer_client: Client, campaign: Campaign
) -> None:
    started(campaign, "one", PASSED)
    started(campaign, "two", FAILED)
    other = make_campaign()
    page = text(viewer_client, reverse("runs:campaign-list"))
    assert "Completed 2 runs" in words(page)
    assert "one leads with 100.0%" in page
    assert f"Campaign {other.pk}" in page
    assert "deleted" in page
    narrowed = text(viewer_client, reverse("runs:campaign-list"), suite="support")
    assert f"Campaign {other.pk}" not in narrowed
    assert "No campaigns here" in text(viewer_client, reverse("runs:campaign-list"), suite="none")
    for address in (reverse("runs:run-list"), reverse("runs:suite", args=["support"])):
        assert f'href="{at(campaign)}"' in text(viewer_client, address)
        assert reverse("runs:campaign-list") in text(viewer_client, address)


def test_older_campaigns_are_on_the_next_page(viewer_client: Client, suite: Suite) -> None:
    oldest = make_campaign(suite=suite, name="the oldest")
    for _ in range(50):
        make_campaign(suite=suite)
    page = text(viewer_client, reverse("runs:campaign-list"), suite="support")
    assert "the oldest" not in page
    address = unescape(re.findall(r'href="([^"]*after=\d+)"', page)[0])
    assert oldest.name in text(viewer_client, address)
