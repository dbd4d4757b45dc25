"""The page of a run that ended early: why, what is kept and left, and the way on."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.finishing import summarise_run
from runs.models.runs import Run, RunEvent, RunWorker
from tests.support.factories import (
    make_model,
    make_run,
    make_scored_run,
    make_snapshot,
    make_suite,
    make_target,
)

pytestmark = pytest.mark.django_db


def at(run: Run, name: str = "run") -> str:
    return reverse(f"runs:{name}", kwargs={"slug": run.suite.slug, "number": run.number})


def end_of(client: Client, run: Run) -> str:
    page = client.get(at(run)).content.decode()
    banner = page.partition('id="run-end"')[2].partition("<h2")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", banner.partition(">")[2]).split())


def chat_run(error: str, *, errors: int = 8, left: int = 22, **columns: Any) -> Run:
    """Make a run that its chat target broke."""
    model = make_model(slug="agent-model")
    suite, target = make_suite(), make_target(kind="chat", model=model)
    snapshot = make_snapshot(suite=suite, target=target)
    snapshot["target"]["model"] = "agent-model"
    run = make_scored_run(
        verdicts=[*["error"] * errors, *["cancelled"] * left],
        suite=suite,
        target=target,
        snapshot=snapshot,
        status="failed",
        status_reason=f"The first results all had the same error. {error}",
        **columns,
    )
    run.results.filter(status="error").update(error=error, error_stage="target")
    return run


def test_a_stopped_run_says_what_is_kept_and_left(
    editor_client: Client, viewer_client: Client
) -> None:
    run = make_scored_run(
        verdicts=["pass", "fail", "cancelled", "cancelled", "cancelled"],
        status="stopped",
        status_reason="Cancelled by mira",
    )
    last = run.results.last()
    assert last is not None
    run.results.filter(pk=last.pk).update(generation=2)
    said = end_of(editor_client, run)
    assert said.startswith("Cancelled by mira.")
    assert "2 of 5 results are finished and kept, 3 are left" in said
    assert "1 of those had a result before a rerun" in said
    assert said.endswith("Run the 3 left")
    assert "Run the" not in end_of(viewer_client, run)


def test_a_stop_says_when_calls_may_still_be_booked_and_the_page_waits_for_them(
    editor_client: Client,
) -> None:
    run = make_scored_run(verdicts=["pass", "cancelled"], status="stopped")
    run_worker = RunWorker.objects.create(
        run=run, token="t", worker="w", started_at=timezone.now(), heartbeat_at=timezone.now()
    )
    assert "Calls in progress are still being recorded" in end_of(editor_client, run)
    assert editor_client.get(at(run, "run-live")).status_code == 200
    run_worker.delete()
    assert summarise_run(run.pk)
    assert "still being recorded" not in end_of(editor_client, run)
    assert editor_client.get(at(run, "run-live")).status_code == 286


def test_a_budget_that_is_reached_gives_its_figures_and_takes_a_higher_one(
    editor_client: Client,
) -> None:
    run = make_scored_run(
        verdicts=["pass", *["cancelled"] * 17],
        status="budget_reached",
        budget_usd=Decimal("0.004"),
        status_reason="$0.004 of $0.004 is spent.",
    )
    said = end_of(editor_client, run)
    assert "Stopped at the $0.004 budget ($0.004 spent)." in said
    assert "1 of 18 results is finished and kept, 17 are left" in said
    assert said.endswith("New budget in US dollars Run the 17 left")

    response = editor_client.post(at(run, "run-resume"), {"budget": "0.5"}, follow=True)
    assert "17 results are left to run." in response.content.decode()
    run.refresh_from_db()
    assert (run.status, run.budget_usd) == ("queued", Decimal("0.5"))


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ("0.003", "New budget: Run #1 has spent $0.004 of $0.003. Resume it with a higher budget."),
        ("", "New budget: Run #1 has spent $0.004 of $0.004. Resume it with a higher budget."),
        ("plenty", "New budget: Enter an amount in US dollars, such as 2.50."),
        ("-1", "New budget: The budget must be more than $0."),
        ("0", "New budget: The budget must be more than $0."),
        ("1e400", "New budget: "),
        ("nan", "New budget: Enter an amount in US dollars"),
    ],
)
def test_a_wrong_budget_is_named_and_kept(editor_client: Client, budget: str, why: str) -> None:
    run = make_scored_run(
        verdicts=["pass", "cancelled"], status="budget_reached", budget_usd=Decimal("0.004")
    )
    response = editor_client.post(at(run, "run-resume"), {"budget": budget})
    page = response.content.decode()
    assert response.status_code == 422
    assert why in page
    assert f'name="budget" inputmode="decimal" value="{budget}"' in page
    assert 'aria-invalid="true" aria-describedby="budget-error"' in page
    run.refresh_from_db()
    assert (run.status, run.budget_usd) == ("budget_reached", Decimal("0.004"))


def test_resuming_what_is_on_or_completed_is_refused_in_words(editor_client: Client) -> None:
    for status, why in (("running", "already running"), ("completed", "did not end early")):
        run = make_scored_run(verdicts=["pass", "pending"], status=status)
        response = editor_client.post(at(run, "run-resume"), follow=True)
        assert why in response.content.decode()


@pytest.mark.parametrize(
    ("error", "remedy", "action"),
    [
        (
            "Refused: The server does not accept the key (401): no",
            "Enter a key that the server accepts.",
            "Open the language model",
        ),
        (
            "Refused: The server knows no such model or address (404)",
            "so start a new one afterwards",
            "Open the language model",
        ),
        (
            "Refused: The server refused the request (400): top_p",
            "Correct the parameters sent to the model.",
            "Open the target",
        ),
        (
            "No connection: nothing answers at http://127.0.0.1:9",
            "Start the server at its address.",
            "Open the language model",
        ),
        ("Timed out: no answer in 60 s", "Give it more time", "Open the language model"),
        (
            "Bad reply: the model answered with no text",
            "Test the language",
            "Open the language model",
        ),
        ("Target failed: there is no language model", "Correct the target.", "Open the target"),
    ],
)
def test_a_broken_target_is_named_with_what_helps_and_where(
    editor_client: Client, error: str, remedy: str, action: str
) -> None:
    run = chat_run(error)
    said = end_of(editor_client, run)
    assert said.startswith(f"The run failed. The first results all had the same error. {error}")
    assert remedy in said
    assert said.endswith(f"{action} Run the 22 left and retry 8")
    page = editor_client.get(at(run)).content.decode()
    place = {"Open the target": reverse("runs:target", args=[run.target_id])}
    place["Open the language model"] = reverse("evaluators:language-model", args=["agent-model"])
    assert f'href="{place[action]}">{action}' in page


def test_a_time_out_of_the_target_itself_is_mended_there(editor_client: Client) -> None:
    run = chat_run("Timed out: no answer in 5 s")
    run.snapshot["target"]["config"] = {"timeout_s": 5}
    run.save()
    assert "Give the target more time." in end_of(editor_client, run)
    assert "Open the target" in end_of(editor_client, run)


def test_what_is_to_blame_may_be_gone(editor_client: Client, viewer_client: Client) -> None:
    run = chat_run("Refused: The server does not accept the key (401)")
    assert run.target is not None
    model = run.target.model
    run.target.delete()
    assert model is not None
    model.delete()
    assert "Open the" not in end_of(editor_client, run)
    assert "Enter a key" in end_of(viewer_client, run)


def test_a_run_that_failed_otherwise_says_why_and_blames_nobody(editor_client: Client) -> None:
    run = make_scored_run(
        verdicts=["error", "cancelled"],
        status="failed",
        status_reason="The run cannot be executed: x",
    )
    said = end_of(editor_client, run)
    assert "The run cannot be executed: x." in said
    assert "Open the" not in said
    assert said.endswith("Run the 1 left and retry 1")


def test_the_time_taken_is_of_all_stretches(viewer_client: Client) -> None:
    now = timezone.now()
    run = make_run(
        started_at=now - timedelta(minutes=2), finished_at=now, worked_before_ms=8 * 60_000
    )
    page = viewer_client.get(at(run)).content.decode()
    assert "ran for 10\u00a0min\u00a000\u00a0s" in page


def test_many_events_are_folded(viewer_client: Client) -> None:
    run = make_run()
    for number in range(30):
        RunEvent.objects.create(run=run, kind="model_slowed", text=f"event {number}")
    page = viewer_client.get(at(run)).content.decode()
    shown, folded = page.partition('id="older-events"')[::2]
    assert "event 29<" in shown
    assert "event 21<" not in shown
    assert "22 older" in folded
    assert "event 0<" in folded


def test_a_poll_brings_the_title_and_the_age_again(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "running"], status="running", finished_at=None)
    part = viewer_client.get(at(run, "run-live"), headers={"HX-Request": "true"}).content.decode()
    assert "<title>Run #1, 50.0%" in part
    assert '<span id="run-age" hx-swap-oob="true">started' in part
    whole = viewer_client.get(at(run)).content.decode()
    assert whole.count("<title>") == 1
    assert whole.count('id="run-age"') == 1


def test_the_sidebar_reloads_when_a_run_changes(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["running"], status="running", finished_at=None)
    page = viewer_client.get(at(run)).content.decode()
    assert 'hx-trigger="run-changed from:body"' in page.partition('id="recent-suites"')[2][:300]
    Run.objects.update(status="stopped")
    sidebar = viewer_client.get(reverse("runs:recent-suites")).content.decode()
    assert 'data-verdict="cancelled"' in sidebar
