"""Stopping and going on: what is kept, what is left, who carries on, and how long it all took."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.execution.claims import begin_run
from runs.execution.run_worker import work_on_run
from runs.models.results import Attempt, Result, ResultOutput, Retry
from runs.models.runs import Run
from runs.running.retrying import BudgetSpentError, resume_run, retry_results, stop_run
from tests.support.factories import again, make_scored_run, make_user

pytestmark = pytest.mark.django_db(transaction=True)
StartRun = Callable[..., Run]


def stopped(start_recorded: StartRun, *, finished: int = 1, left: int = 2, **columns: Any) -> Run:
    """Make a run that was stopped with some results finished and some left."""
    run = start_recorded(*["a refund"] * (finished + left))
    keep = run.results.values_list("pk", flat=True)[finished:]
    waiting = list(keep)
    Result.objects.filter(pk__in=waiting).update(status="cancelled")
    work_on_run(run.pk)
    Run.objects.filter(pk=run.pk).update(status="stopped", status_reason="Stopped", **columns)
    return again(run)


def test_resuming_carries_out_only_what_is_left(start_recorded: StartRun) -> None:
    run = stopped(start_recorded)
    before = run.results.values().first()
    mira = make_user(name="mira")

    assert resume_run(run, resumed_by=mira) == 2
    work_on_run(run.pk)

    assert again(run).status == "completed"
    assert run.results.values().first() == before
    assert run.events.filter(text="Resumed by mira with 2 results to go").exists()
    assert AuditEntry.objects.get(action="resume").actor == mira
    assert not Attempt.objects.exists()


def test_a_retry_in_a_stopped_run_leaves_the_rest_to_be_resumed(start_recorded: StartRun) -> None:
    run = stopped(start_recorded)
    first = run.results.first()
    assert first is not None

    retry_results(run, asked_by=None, result_ids=[first.pk])
    work_on_run(run.pk)

    run = again(run)
    assert (run.status, run.done_count) == ("stopped", 1)
    assert "2 results are still missing" in run.status_reason
    assert run.summary["cases_passed"] is None
    assert resume_run(run, resumed_by=None) == 2
    work_on_run(run.pk)
    assert (again(run).status, again(run).done_count) == ("completed", 3)


def test_an_output_removed_since_a_rescore_was_stopped_is_asked_for_again(
    start_recorded: StartRun,
) -> None:
    run = start_recorded("a refund")
    work_on_run(run.pk)
    retry_results(run, asked_by=None, result_ids=[run.results.get().pk], keep_output=True)
    stop_run(run, stopped_by=None)
    ResultOutput.objects.update(text="", removed_at=timezone.now())
    run.results.get().external_scores.create(
        source="ragas", name="faithful", score=0.4, value=0.4, pushed_at=timezone.now()
    )

    assert resume_run(run, resumed_by=None) == 1
    work_on_run(run.pk)

    result = run.results.get()
    assert (result.output.text, result.output.removed_at) == ("a refund", None)
    assert not result.external_scores.exists()
    assert (result.verdict, again(run).status) == ("pass", "completed")


def test_what_a_broken_target_gave_is_tried_again(start_recorded: StartRun) -> None:
    run = make_scored_run(verdicts=["error", "error", "cancelled"], status="failed")
    Result.objects.filter(run=run).exclude(status="cancelled").update(error_stage="target")
    judged = run.results.filter(status="error").last()
    assert judged is not None
    Result.objects.filter(pk=judged.pk).update(error_stage="parse")

    assert resume_run(run, resumed_by=None) == 2
    assert list(run.results.values_list("status", "generation")) == [
        ("pending", 2),
        ("error", 1),
        ("pending", 1),
    ]
    assert Retry.objects.get().count == 1


def test_the_workers_go_on_with_what_a_command_line_began(start_recorded: StartRun) -> None:
    owner = {"owner": "command_line", "owner_id": "box/1/2", "heartbeat_at": timezone.now()}
    run = stopped(start_recorded, **owner)

    resume_run(run, resumed_by=None)

    run = again(run)
    assert (run.owner, run.owner_id, run.heartbeat_at) == ("workers", "", None)
    assert run.events.filter(text__endswith="workers continue what a command line began").exists()
    work_on_run(run.pk)
    assert again(run).status == "completed"


def test_a_process_can_go_on_alone_with_what_the_workers_began(start_recorded: StartRun) -> None:
    run = stopped(start_recorded)

    assert resume_run(run, resumed_by=None, owner_id="box/1/2/3") == 2

    work_on_run(run.pk)
    run = again(run)
    assert (run.owner, run.owner_id, run.status) == ("command_line", "box/1/2/3", "queued")
    assert run.heartbeat_at is not None
    assert run.events.filter(text="Resumed at a command line with 2 results to go").exists()
    assert AuditEntry.objects.get(action="resume").actor_name == "command line"
    work_on_run(run.pk, owner_id="box/1/2/3")
    assert again(run).status == "completed"


def test_a_run_whose_command_line_may_be_gone_says_when_it_can_be_resumed(
    start_recorded: StartRun,
) -> None:
    owner = {"owner": "command_line", "owner_id": "box/1/2/3", "heartbeat_at": timezone.now()}
    run = stopped(start_recorded, **owner)
    Run.objects.update(status="running")
    with pytest.raises(DomainError, match="was killed, the site notices within 60 seconds"):
        resume_run(run, resumed_by=None)


def test_the_time_taken_is_that_of_all_stretches_of_work(start_recorded: StartRun) -> None:
    now = timezone.now()
    run = stopped(
        start_recorded,
        started_at=now - timedelta(minutes=30),
        finished_at=now - timedelta(minutes=20),
    )
    minute = 60_000
    assert run.worked_ms(now=now) == 10 * minute

    resume_run(run, resumed_by=None)
    assert again(run).worked_ms(now=now) == 10 * minute  # waiting is no work
    begin_run(run.pk, now=now)
    assert again(run).worked_ms(now=now + timedelta(minutes=5)) == 15 * minute
    Run.objects.filter(pk=run.pk).update(status="completed", finished_at=now + timedelta(minutes=7))
    assert again(run).worked_ms(now=now + timedelta(days=1)) == 17 * minute


def test_clocks_that_differ_never_make_time_run_backwards(start_recorded: StartRun) -> None:
    now = timezone.now()
    run = make_scored_run(verdicts=["pass"], started_at=now, finished_at=now - timedelta(seconds=3))
    assert run.worked_ms(now=now) == 0


@pytest.mark.parametrize("status", ["stopped", "budget_reached", "failed"])
def test_a_spent_budget_is_named_before_anything_changes(
    start_recorded: StartRun, status: str
) -> None:
    run = make_scored_run(
        verdicts=["pass", "cancelled"], status=status, budget_usd=Decimal("0.004")
    )
    Run.objects.filter(pk=run.pk).update(run_cost_usd=99)  # replayed: spent long ago
    for budget in (None, Decimal("0.001"), Decimal("0.004")):
        with pytest.raises(BudgetSpentError, match=r"has spent \$0.004 of .* higher budget"):
            resume_run(run, resumed_by=None, budget_usd=budget)
    assert again(run).status == status

    resume_run(run, resumed_by=None, budget_usd=Decimal("0.5"))
    assert again(run).budget_usd == Decimal("0.5")


def test_resuming_twice_is_refused_in_words(start_recorded: StartRun) -> None:
    run = stopped(start_recorded)
    resume_run(run, resumed_by=None)
    with pytest.raises(DomainError, match="is already running"):
        resume_run(run, resumed_by=None)
    assert run.results.filter(status="pending").count() == 2


def test_a_completed_run_has_nothing_to_resume() -> None:
    with pytest.raises(DomainError, match="did not end early"):
        resume_run(make_scored_run(verdicts=["pass"]), resumed_by=None)
