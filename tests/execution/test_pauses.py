"""The database goes away and comes back, leases run out while workers stand still."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import DatabaseError, OperationalError

from evalsite.heartbeat import Heartbeat, reap_and_queue
from evaluators.models import SlotLease
from runs.execution import claims, reaper, result_writer, run_worker
from runs.execution.claims import begin_run, claim_jobs, claim_results, release_held
from runs.execution.loading import load_work
from runs.execution.reaper import reap
from runs.execution.run_worker import work_on_run
from runs.execution.shares import register_run_worker
from runs.finishing import complete_run
from runs.models.database import database_now
from runs.models.results import Attempt, ModelCall, Result
from runs.models.runs import Run, RunWorker
from runs.models.suites import Case
from tests.services.processes import dead_process_name, wait_until
from tests.support.factories import make_call, make_model
from tests.support.model_server import good
from tests.support.run_doubles import Failing
from tests.support.run_workers import costs, counts, late, ledger, work_in_thread
from tests.support.statements import statements_reading
from tests.support.trees import CHECK, tree

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]

MINUTE = timedelta(minutes=1)


class Away:
    """Stands before a function and raises as long as the database is away."""

    def __init__(self, function):
        self.function = function
        self.is_there = threading.Event()
        self.refused = 0

    def __call__(self, *args, **kwargs):
        if not self.is_there.is_set():
            self.refused += 1
            raise OperationalError("the database is away")
        return self.function(*args, **kwargs)


def test_no_call_is_made_while_nothing_can_be_written_and_nothing_is_paid_twice(
    start_chat, model_server, monkeypatch
):
    away = Away(result_writer.write_batch)
    monkeypatch.setattr("runs.execution.result_writer.write_batch", away)
    run = start_chat(40, concurrency=4)
    worker = work_in_thread(run)
    wait_until(lambda: away.refused >= 2)
    made = len(model_server.chats)
    wait_until(lambda: away.refused >= 4)

    # What was in flight at the first refusal ended; nothing followed.
    assert len(model_server.chats) <= made + 4
    standing = len(model_server.chats)
    wait_until(lambda: away.refused >= 5)
    assert len(model_server.chats) == standing
    away.is_there.set()
    worker.join(60)

    assert counts(run) == ("completed", 40, 40, 0)
    assert len(model_server.chats) == 80
    assert ModelCall.objects.filter(run=run).count() == 80
    assert costs(run) == ledger(run)


def test_workers_that_stood_still_make_no_call_for_what_others_took_over(
    start_chat, model_server, monkeypatch
):
    model_server.behave(good("A"), late, then=good())
    run = start_chat(6, concurrency=1)
    worker = work_in_thread(run)
    model_server.wait_for_chats(2)
    # As after a long sleep: the leases are doubted, and meanwhile they went to others.
    monkeypatch.setattr(claims, "DOUBT_AFTER_S", -1.0)
    taken = run.results.filter(status="running").update(lease_token="others")
    run.results.filter(status="pending").update(status="running", lease_token="others")
    model_server.release()
    worker.join(30)

    assert not worker.is_alive()
    assert taken >= 1
    assert len(model_server.chats) == 2
    assert counts(run) == ("running", 0, 0, 0)
    assert set(run.results.values_list("lease_token", flat=True)) == {"others"}
    assert ModelCall.objects.filter(run=run, status="ok").count() == 2
    assert costs(run) == ledger(run) > 0


def test_a_worker_that_stood_still_does_not_take_itself_for_lost(
    start_chat, model_server, monkeypatch
):
    monkeypatch.setattr(result_writer, "RENEW_EVERY_LOOKS", 10**9)
    model_server.behave(then=late)
    run = start_chat(2, concurrency=2)
    worker = work_in_thread(run)
    model_server.wait_for_chats(2)
    # As after a long sleep, when the heartbeat wakes up before the worker has renewed its leases.
    run.results.filter(status="running").update(lease_until=database_now() - MINUTE)
    RunWorker.objects.update(heartbeat_at=database_now() - MINUTE)
    Heartbeat().send()

    assert set(run.results.values_list("status", flat=True)) == {"running"}
    assert run.run_workers.at_work().count() == 1
    model_server.release()
    worker.join(60)
    assert counts(run) == ("completed", 2, 2, 0)
    assert len(model_server.chats) == 4
    assert not Attempt.objects.exists()


def test_what_a_crashed_thread_of_this_process_held_is_released(start_recorded):
    run = start_recorded("a refund")
    Run.objects.update(status="running")
    register_run_worker(run.pk, "crashed", under_way=1, now=database_now() - MINUTE)
    claim_results(run.pk, token="crashed", most=1, now=database_now() - MINUTE)
    Heartbeat().send()
    assert set(run.results.values_list("status", flat=True)) == {"pending"}
    assert not run.run_workers.exists()


def test_a_result_that_cannot_be_stored_is_an_error_and_the_others_are_kept(
    start_chat, model_server, monkeypatch
):
    run = start_chat(3, concurrency=3)
    poisoned = run.results.all()[1].pk
    marks = result_writer._result_row

    def result_row(execution, now):
        if execution.claim.result_id == poisoned and execution.outcome.failure is None:
            raise ValueError("a lone surrogate \x00")
        return marks(execution, now)

    monkeypatch.setattr(result_writer, "_result_row", result_row)
    work_on_run(run.pk)

    assert counts(run) == ("completed", 3, 2, 1)
    result = Result.objects.get(pk=poisoned)
    assert (result.status, result.error_stage, result.score) == ("error", "recording", None)
    assert result.error == "Could not be stored: ValueError: a lone surrogate \ufffd"
    assert len(model_server.chats) == 6
    assert costs(run) == ledger(run) == Decimal("1.2")


def test_what_a_claim_took_before_its_answer_was_lost_is_given_back(start_recorded):
    run = start_recorded("a refund", "a refund", "no")
    Run.objects.update(status="running")
    work = load_work(Run.objects.get())
    [known] = claim_results(run.pk, token="mine", most=1, now=database_now())
    claim_results(run.pk, token="mine", most=1, now=database_now())

    jobs = claim_jobs(work, token="mine", most=5, held={known.result_id}, is_repeated=True)
    assert [job.claim.attempt for job in jobs] == [2, 1]
    assert run.results.filter(status="running", lease_token="mine").count() == 3


def test_only_results_that_were_claimed_before_have_replies_in_the_ledger(start_recorded):
    run = start_recorded("a refund", "a refund")
    Run.objects.update(status="running")
    work = load_work(Run.objects.get())
    with statements_reading("runs_modelcall") as statements:
        [first] = claim_jobs(work, token="mine", most=1, held=())
    assert (len(statements), first.earlier) == (0, {})

    make_call(result=Result.objects.get(pk=first.claim.result_id))
    release_held(run.pk, "mine")
    jobs = claim_jobs(work, token="mine", most=2, held=())
    assert [(job.claim.attempt, len(job.earlier)) for job in jobs] == [(2, 1), (1, 0)]


def test_a_claim_reads_all_that_its_executions_need_of_their_cases_at_once(start_recorded):
    start_recorded("a refund", "a refund")
    Run.objects.update(status="running")
    Case.objects.update(evaluators=tree(CHECK), evaluators_append=True)
    work = load_work(Run.objects.get())
    with statements_reading("runs_case") as statements:
        jobs = claim_jobs(work, token="mine", most=2, held=())
    # One measures them.
    assert (len(statements), len(jobs)) == (2, 2)
    assert all(job.recorded["output"] == "a refund" for job in jobs)


def test_only_the_owner_claims(start_recorded):
    run = start_recorded("a refund")
    Run.objects.update(owner="command_line", owner_id="host/x/1/1", heartbeat_at=database_now())

    work_on_run(run.pk)
    assert counts(run)[0] == "queued"
    assert claim_results(run.pk, token="mine", most=1, now=database_now()) == []
    work_on_run(run.pk, owner_id="host/x/1/1")
    assert counts(run) == ("completed", 1, 1, 0)


def test_workers_taken_for_dead_show_themselves_again(start_recorded):
    run = start_recorded("a refund")
    register_run_worker(run.pk, "mine", under_way=3, now=database_now())
    RunWorker.objects.all().delete()
    register_run_worker(run.pk, "mine", under_way=2, now=database_now())
    assert RunWorker.objects.get().in_flight == 2


def test_after_a_failed_heartbeat_workers_get_the_time_to_renew_their_leases(monkeypatch):
    swept = []
    monkeypatch.setattr("evalsite.heartbeat.reap_and_queue", lambda: swept.append(1))
    heartbeat = Heartbeat()
    heartbeat.send()
    assert len(swept) == 1

    with monkeypatch.context() as away:
        away.setattr("evalsite.heartbeat.register_worker", Failing(*[OperationalError("away")] * 2))
        heartbeat.send()
    heartbeat.send()
    assert len(swept) == 1
    heartbeat.send()
    assert len(swept) == 2


def test_what_the_reaper_queues_does_not_pile_up_while_everybody_is_busy(
    start_recorded, monkeypatch
):
    run = start_recorded("a refund")
    sent = []
    monkeypatch.setattr(
        "evalsite.heartbeat.queue", lambda *args, **facts: sent.append((args, facts))
    )
    reap_and_queue()
    assert sent == [(("runs.work_on_run", run.pk), {"expires_s": 60.0})]


def test_slots_of_the_dead_are_cleared_away():
    now = database_now()
    for holder, expires_at in (("dead", now - MINUTE), ("alive", now + MINUTE)):
        SlotLease.objects.create(
            model=make_model(slug=holder), holder=holder, slots=2, expires_at=expires_at
        )
    reap(now=now)
    assert [lease.holder for lease in SlotLease.objects.all()] == ["alive"]


def test_silence_is_no_sign_of_death_shortly_after_the_database_was_away(
    start_recorded, monkeypatch
):
    run = start_recorded("a refund", "a refund")
    Run.objects.update(status="running")
    now = database_now()
    claim_results(run.pk, token="alive", most=1, now=now)
    register_run_worker(run.pk, "alive", under_way=1, now=now)
    claim_results(run.pk, token="dead", most=1, now=now)
    RunWorker.objects.create(
        run=run, token="dead", worker=dead_process_name(), started_at=now, heartbeat_at=now
    )

    with monkeypatch.context() as restarted:
        since = now + MINUTE - timedelta(seconds=1)
        restarted.setattr(reaper, "database_answers_since", lambda: since)
        reap(now=now + MINUTE)
    assert list(run.results.values_list("status", flat=True)) == ["running", "pending"]

    reap(now=now + 2 * MINUTE)
    assert list(run.results.values_list("status", flat=True)) == ["pending", "pending"]


def test_workers_begin_and_end_although_their_threads_connection_has_died(
    start_recorded, monkeypatch
):
    run = start_recorded("a refund")
    begin, finish = Failing(OperationalError("stale")), Failing(OperationalError("stale"))

    def begins(*args, **kwargs):
        begin(False)
        return begin_run(*args, **kwargs)

    def finishes(*args, **kwargs):
        finish(False)
        return complete_run(*args, **kwargs)

    monkeypatch.setattr(run_worker, "begin_run", begins)
    monkeypatch.setattr(run_worker, "complete_run", finishes)
    work_on_run(run.pk)
    assert counts(run) == ("completed", 1, 1, 0)
    assert len(begin.heard) == len(finish.heard) == 2


def test_a_database_error_while_a_call_waits_is_no_error_of_the_target(start_chat, monkeypatch):
    run = start_chat(5, concurrency=5)
    refused = []

    def agree(*args, **kwargs):
        refused.append(1)
        raise DatabaseError("gave up")

    with monkeypatch.context() as broken:
        broken.setattr("runs.execution.shared_limits.agree", agree)
        work_on_run(run.pk)
    assert refused
    assert counts(run)[1:] == (0, 0, 0)
    assert set(run.results.values_list("status", flat=True)) == {"pending"}

    work_on_run(run.pk)
    assert counts(run) == ("completed", 5, 5, 0)
