"""A run that was stopped goes on: what comes late changes nothing, and nobody waits for it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest

from evaluators.models import LanguageModel
from runs.execution.active_runs import RunSlot
from runs.execution.claims import claim_results
from runs.execution.reaper import reap, register_worker
from runs.execution.run_worker import _work, work_on_run
from runs.models.database import database_now
from runs.models.results import ModelCall, Result
from runs.models.runs import Run
from runs.running.retrying import resume_run, retry_results, stop_run
from tests.services.processes import wait_until
from tests.support.model_server import good
from tests.support.run_workers import costs, counts, late, ledger, work_in_thread

MINUTE = timedelta(minutes=1)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]


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


def stop_in_flight(run):
    """Stop a run, and return once its workers only await the replies of calls in flight."""
    stop_run(run, stopped_by=None)
    wait_until(lambda: not run.run_workers.at_work().exists(), what="no worker at work")


def test_a_resumed_run_goes_on_beside_the_late_replies_of_its_stop(start_chat, model_server):
    model_server.behave(late, late, then=good())
    run = start_chat(6, concurrency=3)
    first = work_in_thread(run)
    wait_until(lambda: counts(run)[1] == 4)
    stop_in_flight(run)
    resume_run(run, resumed_by=None)
    register_worker(now=database_now(), version="1")
    assert reap(now=database_now()) == [run.pk]
    work_on_run(run.pk)

    assert counts(run) == ("completed", 6, 6, 0)
    assert first.is_alive()
    model_server.release()
    first.join(30)
    assert counts(run) == ("completed", 6, 6, 0)
    assert costs(run) == ledger(run) == 14 * Decimal("0.2")
    assert not run.run_workers.exists()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "go_on",
    [
        partial(resume_run, resumed_by=None),
        partial(retry_results, asked_by=None, which="all_missing"),
    ],
    ids=["resumed", "retried"],
)
def test_calls_of_before_a_stop_count_in_the_concurrency_of_the_run(
    start_chat, model_server, workers, go_on
):
    model_server.behave(then=late)
    run = start_chat(12, concurrency=4)
    LanguageModel.objects.update(concurrency=50)
    threads = [work_in_thread(run, _work_in_own_slot) for _ in range(workers)]
    model_server.wait_for_chats(4)
    stop_in_flight(run)

    go_on(Run.objects.get())
    threads += [work_in_thread(run, _work_in_own_slot) for _ in range(workers)]
    wait_until(lambda: run.run_workers.filter(wanted__gt=0).count() == workers)
    assert sum(run.run_workers.values_list("share", flat=True)) == 4
    assert len(model_server.chats) == 4
    model_server.release()
    for thread in threads:
        thread.join(60)

    assert counts(run) == ("completed", 12, 12, 0)
    assert model_server.most_in_flight == 4
    assert not run.run_workers.exists()


def _work_in_own_slot(run_id):
    """Work on a run like another process, beside all workers of this one."""
    _work(RunSlot(run_id))


def test_calls_of_before_a_stop_count_in_the_budget_of_the_resumed_run(start_chat, model_server):
    # Each result costs $0.4: one is done, and four in flight have reserved all the rest.
    model_server.behave(good("A"), good(), then=late)
    run = start_chat(12, concurrency=6, budget_usd=Decimal(2))
    threads = [work_in_thread(run)]
    model_server.wait_for_chats(6)
    stop_in_flight(run)

    resume_run(run, resumed_by=None)
    threads.append(work_in_thread(run, _work_in_own_slot))
    wait_until(lambda: Run.objects.get().is_short_of_money)
    assert len(model_server.chats) == 6
    model_server.release()
    for thread in threads:
        thread.join(60)

    # The four late replies, which are of no use any more, and two more results.
    assert counts(run) == ("budget_reached", 3, 3, 0)
    assert costs(run) == ledger(run) == Decimal(2)


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
