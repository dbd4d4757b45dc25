"""The list of runs and one run, in every state a run can be in and for every role."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import Decimal

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.finishing import summarise_run
from runs.models.runs import Run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_scored_run,
    make_suite,
    make_target,
)

pytestmark = pytest.mark.django_db
MaxQueries = Callable[[int], AbstractContextManager[object]]


def at(run: Run, name: str = "run", **extra: object) -> str:
    return reverse(f"runs:{name}", kwargs={"slug": run.suite.slug, "number": run.number, **extra})


def text(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code in (200, 286), (address, response.status_code)
    return response.content.decode()


def test_no_run_yet_offers_the_start_to_those_who_may(
    viewer_client: Client, editor_client: Client
) -> None:
    assert "No runs yet" in text(viewer_client, reverse("runs:run-list"))
    assert reverse("runs:run-start-any") not in text(viewer_client, reverse("runs:run-list"))
    assert reverse("runs:run-start-any") in text(editor_client, reverse("runs:run-list"))


def test_the_list_is_narrowed_by_suite_status_and_target(viewer_client: Client) -> None:
    support = make_scored_run(verdicts=["pass"], target=make_target(name="tent agent"))
    make_scored_run(verdicts=["fail"], status="stopped", target=make_target(name="boat agent"))
    page = reverse("runs:run-list")
    assert "tent agent" in text(viewer_client, f"{page}?suite={support.suite.slug}")
    narrowed = text(viewer_client, f"{page}?status=stopped")
    assert ">boat agent<" in narrowed
    assert support.suite.title not in narrowed.partition("<tbody")[2]
    assert "No run matches" in text(viewer_client, f"{page}?target=nobody")


def test_a_filter_without_a_field_can_be_taken_away(viewer_client: Client) -> None:
    narrowed = text(viewer_client, f"{reverse('runs:run-list')}?status=failed&campaign=7")
    assert "Campaign: 7" in narrowed
    assert 'href="?status=failed"' in narrowed


def test_the_list_goes_on_where_the_page_ended(viewer_client: Client) -> None:
    suite, target = make_suite(), make_target()
    for _ in range(53):
        make_run(suite=suite, target=target)
    first = text(viewer_client, reverse("runs:run-list"))
    assert "#53" in first
    assert "<code>#3</code>" not in first
    address = first.partition('push" href="')[2].partition('"')[0].replace("&amp;", "&")
    rest = text(viewer_client, address)
    assert "<code>#3</code>" in rest
    assert "<code>#4</code>" not in rest


def test_the_list_takes_as_many_queries_for_fifty_runs_as_for_one(
    viewer_client: Client, django_assert_max_num_queries: MaxQueries
) -> None:
    suite, target = make_suite(), make_target()
    for _ in range(50):
        make_run(suite=suite, target=target)
    with django_assert_max_num_queries(9):
        text(viewer_client, reverse("runs:run-list"))


def test_a_completed_run_judges_both_gates(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "pass", "fail", "error"], status="completed")
    summarise_run(run.pk)
    page = text(viewer_client, at(run))
    assert "Failed: mean score 74.6%, needs 80%; pass rate 50.0%, needs 100%" in page
    assert "74.6%" in page  # (0.92 + 0.92 + 0.4) / 3, of the three that have a score
    assert "3 of 4 results scored" in page
    assert "2 of 4 results passed" in page
    assert page.count("Failed</span>") == 2


def test_a_live_run_says_what_is_left_to_do(viewer_client: Client) -> None:
    run = make_scored_run(
        verdicts=["pass", "pass", "running", "pending"], status="running", finished_at=None
    )
    page = text(viewer_client, at(run))
    assert "On course" in page
    assert "2 of the remaining 2 must pass" in page
    assert "50.0%" in page
    assert 'hx-trigger="every 2s"' in page


def test_before_the_first_result_no_gate_is_on_course(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pending", "pending"], status="running", finished_at=None)
    page = text(viewer_client, at(run))
    assert "On course" not in page
    assert page.count("Not evaluated<") == 2


def test_a_live_part_polls_until_the_run_is_over(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "running"], status="running", finished_at=None)
    going = viewer_client.get(at(run, "run-live") + "?was=running")
    assert going.status_code == 200
    assert "every 2s" in going.content.decode()
    assert "HX-Trigger" not in going
    Run.objects.update(done_count=2)
    going = viewer_client.get(at(run, "run-live") + "?was=running")
    assert "Computing the final figures" in going.content.decode(), "nothing is left to run"
    assert 'hx-trigger="every 500ms"' in going.content.decode()
    Run.objects.update(status="completed")
    assert 'hx-trigger="every 2s"' in text(viewer_client, at(run))
    for was in ("running", "completed"):
        unfinished = viewer_client.get(at(run, "run-live") + f"?was={was}")
        assert unfinished.status_code == 204, "its figures are still computed"
    assert summarise_run(run.pk)
    over = viewer_client.get(at(run, "run-live") + "?was=running")
    assert over.status_code == 286
    assert 'hx-trigger="every' not in over.content.decode()
    assert over["HX-Trigger"] == "run-changed"


@pytest.mark.parametrize("status", ["stopped", "failed", "budget_reached"])
def test_a_live_part_of_a_run_that_ended_early_polls_until_its_figures_are_there(
    viewer_client: Client, status: str
) -> None:
    run = make_scored_run(verdicts=["pass", "cancelled"], status=status)
    address = at(run, "run-live") + "?was=running"
    unfinished = viewer_client.get(address)
    assert unfinished.status_code == 200
    assert 'hx-trigger="every 2s"' in unfinished.content.decode()
    assert summarise_run(run.pk)
    assert viewer_client.get(address).status_code == 286


def test_a_queued_run_waits_for_a_worker(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pending"], status="queued", started_at=None, finished_at=None)
    page = text(viewer_client, at(run))
    assert "Waiting for a worker" in page
    assert "about" not in page.partition('id="run-live"')[2].partition("Cost")[0]


def test_a_run_of_a_command_line_names_its_machine(viewer_client: Client) -> None:
    own = {"owner": "command_line", "owner_id": "build-7/04dd83286097/5812/380214"}
    run = make_run(status="queued", **own)
    page = text(viewer_client, at(run))
    assert "started from the command line (build-7)<" in page
    assert "Waiting for its command line" in page


def test_a_stopped_run_keeps_its_figures_and_its_gates_open(viewer_client: Client) -> None:
    run = make_scored_run(
        verdicts=["pass", "cancelled"], status="stopped", status_reason="Cancelled by mira"
    )
    page = text(viewer_client, at(run))
    assert "Cancelled by mira" in page
    assert page.count("Not evaluated<") == 2
    assert "92.0%" in page


def test_a_failed_run_says_why_and_what_is_kept(viewer_client: Client) -> None:
    run = make_scored_run(
        verdicts=["error"],
        status="failed",
        status_reason="The target refused all first calls: 401.",
    )
    page = text(viewer_client, at(run))
    assert "The target refused all first calls: 401." in page
    assert "Run failed" in page


def test_a_spent_run_asks_for_a_new_budget(editor_client: Client, viewer_client: Client) -> None:
    run = make_scored_run(
        verdicts=["pass", "cancelled"], status="budget_reached", budget_usd=Decimal("0.02")
    )
    assert 'name="budget"' in text(editor_client, at(run))
    assert 'name="budget"' not in text(viewer_client, at(run))


def test_a_run_without_cases_says_so(viewer_client: Client) -> None:
    page = text(viewer_client, at(make_run()))
    assert "This run has no cases" in page


def test_errors_alike_stand_together_with_one_retry(editor_client: Client) -> None:
    run = make_scored_run(verdicts=["error", "error", "pass"])
    page = text(editor_client, at(run))
    assert "and 1 more: Server error: HTTP 502 after 3 tries" in page
    assert "Rerun these 2" in page
    replies = reverse("runs:result-calls", args=(run.suite.slug, run.number, "C-001", 1))
    assert replies not in page
    run.results.filter(status="error").update(error_stage="parse")
    assert f'href="{replies}"' in text(editor_client, at(run)), "where a reply could not be read"
    judged_again = {"run": 1, "results": 3, "left_out": []}
    Run.objects.filter(pk=run.pk).update(snapshot={**run.snapshot, "judged_again": judged_again})
    assert "Rescore these 2" in text(editor_client, at(run)), "its target is never asked"


def test_retrying_errors_alike_opens_the_run_again(editor_client: Client) -> None:
    run = make_scored_run(verdicts=["error", "error", "pass"])
    other = run.results.filter(status="error").last()
    other.error = "Another error"
    other.save()
    like = run.results.filter(status="error").first().pk
    response = editor_client.post(at(run, "run-retry"), {"like": like}, follow=True)
    assert "1 result is queued again." in response.content.decode()
    assert run.results.filter(status="pending").count() == 1
    run.refresh_from_db()
    assert run.is_active


def test_retry_without_errors_is_refused_in_words(editor_client: Client) -> None:
    run = make_scored_run(verdicts=["pass"])
    response = editor_client.post(at(run, "run-retry"), {"which": "errored"}, follow=True)
    assert "has nothing to rerun" in response.content.decode()


def test_stopping_keeps_what_is_finished(editor_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "running", "pending"], status="running")
    response = editor_client.post(at(run, "run-stop"), follow=True)
    page = response.content.decode()
    assert "Cancelled" in page
    assert run.results.filter(status="cancelled").count() == 2


@pytest.mark.parametrize("name", ["run-stop", "run-resume", "run-retry"])
def test_a_viewer_may_not_change_a_run(viewer_client: Client, name: str) -> None:
    run = make_scored_run(verdicts=["pass", "error"], status="running")
    assert viewer_client.post(at(run, name)).status_code == 403
    page = text(viewer_client, at(run))
    assert "Cancel run" not in page
    assert "Retry" not in page


@pytest.mark.parametrize("name", ["run", "run-live", "run-head", "run-results", "run-evaluators"])
def test_a_run_that_is_not_there_is_not_found(viewer_client: Client, name: str) -> None:
    run = make_run()
    run.number = 999
    assert viewer_client.get(at(run, name)).status_code == 404


@pytest.mark.parametrize("name", ["run", "run-live", "run-results"])
def test_a_run_needs_a_login(client: Client, name: str) -> None:
    response = client.get(at(make_run(), name))
    assert response.status_code == 302
    assert response["Location"].startswith("/login/")


def test_the_fold_shows_what_was_frozen(viewer_client: Client) -> None:
    page = text(viewer_client, at(make_scored_run(verdicts=["pass"])))
    assert "Run configuration" in page
    assert "weighted average" in page


def test_a_run_is_a_fixed_number_of_queries(
    viewer_client: Client, django_assert_max_num_queries: MaxQueries
) -> None:
    suite = make_suite(cases=60)
    run = make_run(suite=suite, repetitions=3)
    for case in suite.cases.all():
        for repetition in (1, 2, 3):
            make_result(run=run, case=case, repetition=repetition, verdict="pass", score=0.9)
    # One of them is PostgreSQL's clock.
    with django_assert_max_num_queries(29):
        page = text(viewer_client, at(run))
    assert "Show more" in page
    assert len(page) < 150_000


@pytest.mark.parametrize(("address", "times"), [("", 1), ("?state=pass", 1), ("?q=tag:a", 2)])
def test_the_page_of_a_long_active_run_counts_its_cases_once_for_all_its_parts(
    viewer_client: Client, monkeypatch: pytest.MonkeyPatch, address: str, times: int
) -> None:
    monkeypatch.setattr("runs.results.run_page.MAX_MARKS", 1)
    run = make_scored_run(verdicts=["pass", "pass", "fail"], status="running")
    with CaptureQueriesContext(connection) as asked:
        page = text(viewer_client, f"{at(run)}{address}")
    counting = [query for query in asked if 'COUNT("runs_runcase"."id")' in query["sql"]]
    assert len(counting) == times
    assert 'width="66.67%"' in page.partition('<svg class="dist"')[2].partition("</svg>")[0]


def test_odd_names_stay_text(viewer_client: Client) -> None:
    suite = make_suite(title="<script>alert(1)</script>")
    case = make_case(suite=suite, key="a/b?c#d %2F", title="<img src=x onerror=alert(1)>")
    run = make_run(suite=suite, target=make_target(name="<b>agent</b>"))
    make_result(run=run, case=case, verdict="pass", score=1.0, decided_by="<i>1.00</i>")
    page = text(viewer_client, at(run))
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "<b>agent" not in page
    assert "<i>1.00" not in page
