"""A run that was stopped goes on: what comes late changes nothing, and nobody waits for it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from runs.execution.claims import claim_results
from runs.execution.reaper import reap, register_worker
from runs.execution.run_worker import work_on_run
from runs.models.database import database_now
from runs.models.results import ModelCall, Result
from runs.models.runs import Run
from runs.running.retrying import resume_run, retry_results, stop_run
from tests.services.processes import wait_until
from tests.support.model_server import good
from tests.support.run_workers import costs, counts, late, ledger, work_in_thread

MINUTE = timedelta(minutes=1)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_reply_that_comes_after_a_stop_is_booked_and_changes_nothing_else(
    start_chat, model_server
):
    model_server.behave(good("A"), good(), then=late)
    run = start_chat(6, concurrency=1)
    worker = work_in_thread(run)
    model_server.wait_for_chats(3)
    wait_until(lambda: counts(run)[1] == 1)
    stop_run(run, stopped_by=None)
    before = Result.objects.filter(run=run).values_list("id", "status", "verdict", "score")
    before = list(before)
    model_server.release()
    worker.join(30)

    answered = len(model_server.chats)
    assert answered >= 3
    assert ModelCall.objects.filter(run=run, status="ok").count() == answered
    assert costs(run) == ledger(run) == answered * Decimal("0.2")
    after = Result.objects.filter(run=run).values_list("id", "status", "verdict", "score")
    assert list(after) == before


def test_a_resumed_run_does_not_wait_for_the_late_replies_of_its_stop(start_chat, model_server):
    model_server.behave(late, then=good())
    run = start_chat(4, concurrency=1)
    first = work_in_thread(run)
    model_server.wait_for_chats(1)
    stop_run(run, stopped_by=None)
    resume_run(run, resumed_by=None)
    register_worker(now=database_now(), version="1")
    # The old worker has seen that the run is active without it, and makes room for another.
    wait_until(lambda: reap(now=database_now()) == [run.pk])
    work_on_run(run.pk)

    assert counts(run) == ("completed", 4, 4, 0)
    assert first.is_alive()
    model_server.release()
    first.join(30)
    assert counts(run) == ("completed", 4, 4, 0)
    assert costs(run) == ledger(run) == 9 * Decimal("0.2")


def test_a_retry_in_a_stopped_run_that_loses_its_workers_ends_all_the_same(start_recorded):
    run = start_recorded("a refund", "no", "a refund")
    Run.objects.update(status="running", started_at=database_now(), done_count=1, error_count=1)
    first = run.results.first()
    Result.objects.filter(pk=first.pk).update(status="error", attempt=1, error_stage="target")
    stop_run(Run.objects.get(), stopped_by=None)
    retry_results(Run.objects.get(), asked_by=None, which="errored")
    for number in range(3):
        claim_results(run.pk, token=f"lost-{number}", most=9, now=database_now())
        reap(now=database_now() + 2 * MINUTE)
    reap(now=database_now() + 2 * MINUTE)

    assert counts(run)[0] not in ("queued", "running")
