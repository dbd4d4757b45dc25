"""Every answer of the API: as its schema says, and with the figures of the pages and files."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from runs.campaigns.board import CampaignQuery
from runs.campaigns.documents import LeaderboardRowDoc
from runs.campaigns.page import CampaignPage
from runs.compare.comparison import build_comparison
from runs.compare.documents import comparison_document
from runs.compare.rules import Tolerances
from runs.formats.results_writing import usage_summary
from runs.models.results import ResultOutput
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.results.documents import case_documents, run_file_document
from runs.results.files import result_lines
from runs.results.runs import RunsQuery, run_list
from tests.api.site import get, make_site
from tests.support.factories import make_case, make_result, make_run, make_suite

pytestmark = pytest.mark.django_db
COMPARE = "/api/runs/compare"


def test_the_schema_is_complete_and_valid(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, format="openapi-json")
    found = json.loads(capsys.readouterr().out)
    assert found["openapi"].startswith("3.1")
    names = [call["operationId"] for calls in found["paths"].values() for call in calls.values()]
    assert len(names) == len(set(names))
    for path, calls in found["paths"].items():
        for call in calls.values():
            assert call["description"], path
            assert all(parameter["description"] for parameter in call.get("parameters", ())), path
    for part in found["components"]["schemas"].values():
        assert part.get("description"), part
        for name, field in part.get("properties", {}).items():
            assert field.get("description") or "$ref" in field, (name, part)


def test_parameters_change_nothing_of_the_schema(viewer_client: Client) -> None:
    schema = get(viewer_client, "/api/schema")
    assert schema["info"]["version"] == "1"
    assert get(viewer_client, "/api/schema?version=2&lang=de") == schema


def test_every_answer_matches_the_schema(viewer_client: Client) -> None:
    before, after, result = make_site()
    campaign = before.campaign_id
    for address, path in {
        "/api/": "/api/",
        "/api/suites": "/api/suites",
        "/api/suites/support": "/api/suites/{slug}",
        "/api/suites/support/versions": "/api/suites/{slug}/versions",
        "/api/suites/support/versions/1": "/api/suites/{slug}/versions/{number}",
        "/api/suites/support/views": "/api/suites/{slug}/views",
        "/api/suites/support/cases": "/api/suites/{slug}/cases",
        "/api/suites/support/cases/C/1": "/api/suites/{slug}/cases/{key}",
        "/api/suites/support/cases/C%2F1?revision=1": "/api/suites/{slug}/cases/{key}",
        "/api/runs": "/api/runs",
        f"/api/runs/{before.pk}": "/api/runs/{run}",
        "/api/runs/support:2": "/api/runs/{run}",
        "/api/runs/other:1": "/api/runs/{run}",
        f"/api/runs/{before.pk}/results": "/api/runs/{run}/results",
        f"/api/results/{result.pk}": "/api/results/{result}",
        f"/api/results/{after.results.last().pk}": "/api/results/{result}",
        f"/api/results/{result.pk}/output": "/api/results/{result}/output",
        "/api/comments": "/api/comments",
        "/api/campaigns": "/api/campaigns",
        f"/api/campaigns/{campaign}": "/api/campaigns/{campaign}",
        f"{COMPARE}?baseline_run_id={before.pk}&candidate_run_id=support:2": COMPARE,
        f"{COMPARE}/cases/C/1?baseline_run_id={before.pk}&candidate_run_id=support:2": (
            f"{COMPARE}/cases/{{key}}"
        ),
    }.items():
        assert get(viewer_client, address, path), address


def test_a_run_has_the_figures_of_its_page_and_file(viewer_client: Client) -> None:
    before, _, _ = make_site()
    answer = get(viewer_client, "/api/runs/support:1")
    listed = {row["name"]: row for row in get(viewer_client, "/api/runs")["results"]}
    assert set(listed) == {"support:1", "support:2", "other:1"}
    page = {row.word: row for row in run_list(RunsQuery(), now=timezone.now()).rows}
    for name, row in listed.items():
        gates = (page[name].metrics, page[name].cases)
        assert [gate["share"] for gate in row["gates"].values()] == [one.share for one in gates]
        assert [gate["state"] for gate in row["gates"].values()] == [one.state for one in gates]
        assert [gate["note"] for gate in row["gates"].values()] == [one.note for one in gates]
        assert Decimal(row["total_cost_usd"]) == page[name].costs.total_usd
    assert {name: answer[name] for name in listed["support:1"]} == listed["support:1"]
    assert run_file_document(before, url=answer["url"]).as_json() == answer
    assert [case.case for case in case_documents(before)] == ["C/1", "C-2", "C-3"]
    for name in ("run_cost_usd", "evaluation_cost_usd", "total_cost_usd"):
        assert isinstance(answer[name], str)
    assert answer["policy"]["metrics_pass_threshold"] == 80
    assert answer["policy"]["max_avg_score_drop"] == 5
    assert answer["policy"]["max_pass_rate_drop"] == 0


def test_results_have_the_figures_of_the_results_file(viewer_client: Client) -> None:
    before, _, whole = make_site()
    before.results.exclude(pk=whole.pk).update(evaluation_cost_usd=None)
    answer = get(viewer_client, f"/api/runs/{before.pk}/results")["results"]
    lines = list(result_lines(before))
    assert len(answer) == len(lines) == 6
    for row, line in zip(answer, lines, strict=True):
        assert (row["case"], row["repetition"]) == (line.eval_id, line.repetition)
        assert (row["score"], row["verdict"]) == (line.score, line.verdict or None)
        assert (row["latency_ms"], row["error"]) == (line.usage.latency_ms, line.error or None)
        for name, usd in usage_summary(line.run_cost_usd, line.evaluation_cost_usd).items():
            assert (row[name] if row[name] is None else float(row[name])) == usd, name
    assert (answer[0]["outcomes_met"], answer[0]["outcomes_total"]) == (0, 1)
    assert (answer[1]["outcomes_met"], answer[1]["outcomes_total"]) == (None, None)
    # No judge was asked for the others, which is known to have cost nothing.
    assert [float(row["evaluation_cost_usd"]) for row in answer].count(0) == 5
    one = get(viewer_client, f"/api/results/{whole.pk}")
    assert {name: one[name] for name in answer[0]} == answer[0]
    assert one["tree"]["score"] == one["score"]
    assert [child["name"] for child in one["tree"]["children"]] == ["tone", "refund"]
    assert one["tree"]["children"][0]["evaluation"]["findings"][0]["evidence"] == "Ingrid"
    assert one["outcomes"][0]["passed"] is False
    assert one["costs"]["evaluation"]["calls"] == 1


def test_an_error_has_no_score(viewer_client: Client) -> None:
    make_site()
    (row,) = get(viewer_client, "/api/runs/support:2/results?status=error")["results"]
    assert (row["score"], row["verdict"], row["error"]) == (None, None, "HTTP 502")
    run = get(viewer_client, "/api/runs/support:2")
    assert (run["counts"]["error"], run["gates"]["cases"]["share"]) == (1, 0.0)


def test_a_long_answer_is_cut_and_available_in_full(viewer_client: Client) -> None:
    _, _, whole = make_site()
    ResultOutput.objects.filter(pk=whole.pk).update(text="é" * 20_001)
    output = get(viewer_client, f"/api/results/{whole.pk}")["output"]
    assert (len(output["text"]), output["characters"], output["is_cut"]) == (20_000, 20_001, True)
    assert get(viewer_client, f"/api/results/{whole.pk}/output")["text"] == "é" * 20_001


def test_an_answer_of_megabytes_comes_in_pieces(viewer_client: Client) -> None:
    _, _, whole = make_site()
    text = "".join(f'{n} "é"\n🏕' for n in range(150_000))
    ResultOutput.objects.filter(pk=whole.pk).update(text=text)
    answer = viewer_client.get(f"/api/results/{whole.pk}/output")
    pieces = [*answer]
    assert json.loads(b"".join(pieces)) == {"text": text, "characters": len(text)}
    assert max(map(len, pieces)) < 1_000_000 < sum(map(len, pieces))


def compare(client: Client, **params: Any) -> Any:
    query = "&".join(f"{name}={value}" for name, value in params.items())
    return get(client, f"{COMPARE}?{query}", COMPARE)


def test_a_comparison_matches_the_page_and_repeats_its_units(viewer_client: Client) -> None:
    before, after, _ = make_site()
    params = {"baseline_run_id": before.pk, "candidate_run_id": after.pk}
    answer = compare(viewer_client, **params)
    before, after = (Run.objects.get(pk=run.pk) for run in (before, after))
    usual = comparison_document(build_comparison(before, after, Tolerances()))
    assert "gates" in answer["verdict"]
    assert answer["candidate"]["gates"]["cases"]["state"] in ("passed", "failed")
    assert answer == usual.as_json()
    assert answer["regression_detected"]
    assert answer["tolerances"]["max_avg_score_drop"] == {"value": 5.0, "unit": "points of 100"}
    lenient = compare(
        viewer_client,
        **params,
        max_pass_rate_drop=0.9,
        max_avg_score_drop=90,
        max_latency_increase_pct=1000,
    )
    assert not lenient["regression_detected"]
    assert [one["value"] for one in lenient["tolerances"].values()] == [0.9, 90.0, 1000.0]
    limits = Tolerances(0.9, 0.9, 1000.0)
    assert (
        lenient["pass_rate_change"] == build_comparison(before, after, limits).runs.pass_rate_change
    )
    shared = compare(viewer_client, **params, cases="shared")
    assert (shared["only_shared_cases"], len(shared["cases"])) == (True, 2)
    assert len(answer["cases"]) == 3


def test_a_campaign_has_its_leaderboard(viewer_client: Client) -> None:
    before, _, _ = make_site()
    answer = get(viewer_client, f"/api/campaigns/{before.campaign_id}")
    rows = CampaignPage(before.campaign, CampaignQuery()).rows
    assert answer["leaderboard"] == [LeaderboardRowDoc.make(row).as_json() for row in rows]
    (listed,) = get(viewer_client, "/api/campaigns?suite=support")["results"]
    assert listed["name"] == "May"
    # A list tells who leads; how sure that is, the campaign alone.
    assert answer["headline"].startswith(listed["headline"])
    assert get(viewer_client, "/api/campaigns?suite=other")["results"] == []


def test_an_older_revision_and_a_deleted_case_stay_readable(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    make_case(suite=suite, key="C-1", is_current=False, title="Before")
    make_case(suite=suite, key="C-1", revision=2, title="Now")
    make_case(suite=suite, key="gone", is_current=False)
    at = "/api/suites/support/cases/C-1"
    assert get(viewer_client, at)["title"] == "Now"
    assert get(viewer_client, f"{at}?revision=1")["title"] == "Before"
    assert get(viewer_client, "/api/suites/support/cases/gone")["is_current"] is False
    keys = [row["key"] for row in get(viewer_client, "/api/suites/support/cases")["results"]]
    assert keys == ["C-1"]


NARROWED: tuple[tuple[str, str, list[Any]], ...] = (
    ("/api/runs", "name", ["other:1", "support:2", "support:1"]),
    ("/api/runs?suite=support", "name", ["support:2", "support:1"]),
    ("/api/runs?status=active", "name", ["other:1"]),
    ("/api/runs?status=completed&target=agent+1", "name", ["support:1"]),
    ("/api/runs?since=2100-01-01T00:00:00Z", "name", []),
    ("/api/runs?since=2000-01-01T00:00:00%2B02:00&suite=other", "name", ["other:1"]),
    ("/api/runs?campaign=999", "name", []),
    ("/api/suites", "slug", ["empty", "other", "support"]),
    ("/api/suites?tag=live", "slug", ["support"]),
    ("/api/suites?archived=true", "slug", []),
    ("/api/suites/support/cases", "key", ["C/1", "C-2", "C-3"]),
    ("/api/suites/support/cases?tag=refunds", "key", ["C/1", "C-2"]),
    ("/api/suites/support/cases?tag=%C3%BCber", "key", ["C-2"]),
    ("/api/suites/support/cases?filter=case+%3D+C-2,+C-3", "key", ["C-2", "C-3"]),
    ("/api/runs/support:1/results?verdict=fail", "case", ["C-2", "C-3"]),
    ("/api/runs/support:1/results?tag=refunds&verdict=fail", "case", ["C-2"]),
    ("/api/runs/support:1/results?case=C/1", "repetition", [1, 2]),
    ("/api/runs/support:1/results?status=error", "case", []),
    ("/api/runs/support:1/results?filter=tag:refunds+-case:C-2", "repetition", [1, 2]),
    ("/api/runs/support:1/results?filter=score+%3C+0.6&verdict=fail", "case", ["C-2", "C-3"]),
    ("/api/suites/support/versions", "number", [1]),
)


def test_lists_can_be_filtered(viewer_client: Client) -> None:
    make_site()
    for address, key, found in NARROWED:
        assert [row[key] for row in get(viewer_client, address)["results"]] == found, address


@pytest.mark.each_database
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
def test_paging_is_stable_while_rows_are_added(viewer_client: Client, limit: int) -> None:
    suite = make_suite(slug="support")
    # Positions repeat, as they may in runs that were imported.
    cases = [make_case(suite=suite, key=f"C-{n}", position=n // 3) for n in range(6)]
    run = make_run(suite=suite)
    for case in cases:
        for repetition in (1, 2):
            make_result(run=run, case=case, repetition=repetition, verdict="pass", score=0.9)
    late = make_case(suite=suite, key="late", position=0)
    wanted = list(run.results.order_by("position", "repetition", "pk").values_list("pk", flat=True))
    address, found, pages = f"/api/runs/support:1/results?limit={limit}", [], 0
    while address:
        page = get(viewer_client, address, "/api/runs/{run}/results")
        assert len(page["results"]) <= limit
        found += [row["id"] for row in page["results"]]
        address, pages = page["next"], pages + 1
        if pages == 1:
            make_result(run=run, case=late, verdict="pass", score=0.9)
    assert [pk for pk in found if pk in wanted] == wanted
    assert len(found) == len(set(found))


def test_runs_can_be_paged_to_the_end(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    for _ in range(5):
        make_run(suite=suite)
    address, found = "/api/runs?limit=2&suite=support", []
    while address:
        page = get(viewer_client, address)
        found += [row["number"] for row in page["results"]]
        address = page["next"]
    assert found == [5, 4, 3, 2, 1]


def test_a_list_needs_the_same_queries_at_any_length(
    viewer_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    before, after, whole = make_site()
    for number in range(30):
        suite = make_suite(slug=f"more-{number}")
        suite.baseline_run = make_run(suite=suite)
        suite.save()
        case = make_case(suite=Suite.objects.get(slug="support"), key=f"more-{number}")
        make_result(run=after, case=case, verdict="pass", score=0.9)
    # Four of them find out who asks.
    for address, most in {
        "/api/suites": 5,
        "/api/suites/support": 7,
        "/api/suites/support/cases": 6,
        "/api/runs": 5,
        "/api/runs/support:2": 9,
        "/api/runs/support:2/results": 7,
        f"/api/results/{whole.pk}": 21,
        "/api/campaigns": 6,
        f"/api/campaigns/{before.campaign_id}": 8,
        # One of them asks how far the judges of both differ from themselves.
        f"{COMPARE}?baseline_run_id={before.pk}&candidate_run_id={after.pk}": 18,
    }.items():
        with django_assert_max_num_queries(most):
            assert viewer_client.get(address).status_code == 200


def test_a_run_of_another_version_is_refused_with_an_explanation(viewer_client: Client) -> None:
    before, after, _ = make_site()
    Run.objects.filter(pk=after.pk).update(snapshot={**after.snapshot, "version": 99})
    response = viewer_client.get(
        f"{COMPARE}?baseline_run_id={before.pk}&candidate_run_id={after.pk}"
    )
    assert response.status_code == 409
    assert response.json()["detail"]
    assert Case.objects.exists()
