"""Runs survive workers that die, freeze or lose their lease."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.utils import timezone

from evaluators.models import LanguageModel
from evaluators.sandbox.processes import is_dead, process_name
from runs.execution import reaper, result_writer, run_worker
from runs.execution.active_runs import ActiveRuns
from runs.execution.claims import claim_results, renew_leases, waits_alone
from runs.execution.reaper import reap, register_worker, unregister_worker
from runs.execution.run_worker import work_on_run
from runs.models.results import Attempt, EvaluatorScore, ModelCall, Result
from runs.models.runs import Run, RunWorker, WorkerProcess
from runs.running.retrying import resume_run, retry_results, stop_run
from tests.services.processes import dead_process_name, wait_until
from tests.support.factories import change_suite, make_model, make_user
from tests.support.model_server import good, hang
from tests.support.run_workers import costs, counts, late, ledger, work_in_thread

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.each_database,
    pytest.mark.usefixtures("clock"),
]

LATER = timedelta(seconds=60)


def statuses(run):
    return list(run.results.values_list("status", flat=True))


def lose(run, *, token, worker="elsewhere/x/1/1", most=1):
    """Claim one result, or more, for a worker that then dies."""
    now = timezone.now()
    RunWorker.objects.create(run=run, token=token, worker=worker, started_at=now, heartbeat_at=now)
    return claim_results(run.pk, token=token, most=most, now=now)


def lose_twice(run, *, most):
    """Lose the same results with two workers."""
    Run.objects.filter(pk=run.pk).update(status="running")
    for number in range(2):
        assert len(lose(run, token=f"dead-{number}", most=most)) == most
        reap(now=timezone.now() + LATER)


def test_an_expired_lease_is_returned_and_the_attempt_kept(start_recorded):
    run = start_recorded("a refund", "a refund")
    Run.objects.update(status="running")
    lose(run, token="lost")

    assert reap(now=timezone.now()) == []
    assert statuses(run) == ["running", "pending"]
    assert reap(now=timezone.now() + LATER) == [run.pk]
    assert statuses(run) == ["pending", "pending"]
    attempt = Attempt.objects.get()
    assert (attempt.attempt, attempt.reason) == (1, "worker lost")
    assert not RunWorker.objects.exists()
    assert run.events.get().text == "A worker was lost while working on 1 result"

    work_on_run(run.pk)
    assert counts(run) == ("completed", 2, 2, 0)


def test_a_result_that_lost_three_workers_is_an_error_and_the_run_ends(start_recorded):
    run = start_recorded("a refund")
    Run.objects.update(status="running")
    for number in range(3):
        lose(run, token=f"lost-{number}")
        reap(now=timezone.now() + LATER)

    assert counts(run) == ("completed", 1, 0, 1)
    result = run.results.get()
    assert (result.status, result.error_stage, result.score) == ("error", "worker", None)
    assert result.error.startswith("worker lost")
    assert Attempt.objects.count() == 3


def test_a_result_that_ends_its_workers_makes_no_error_of_those_beside_it(start_recorded):
    run = start_recorded("a refund", "a refund", "a refund", "a refund")
    lose_twice(run, most=3)

    # The new one, and then, once nothing else is held, one at a time.
    [new] = claim_results(run.pk, token="third", most=9, now=timezone.now())
    assert claim_results(run.pk, token="third", most=9, now=timezone.now(), holds_none=False) == []
    assert [claim.result_id for claim in lose(run, token="last", most=9)] == [
        run.results.first().pk
    ]
    reap(now=timezone.now() + LATER)

    assert new.result_id == run.results.last().pk
    assert statuses(run) == ["error", "pending", "pending", "pending"]
    assert run.results.first().error == "worker lost: 3 workers ended while they executed this"
    work_on_run(run.pk)
    assert counts(run) == ("completed", 4, 3, 1)


def test_results_that_lost_two_workers_are_executed_one_after_the_other(start_chat, model_server):
    model_server.behave(then=good())
    run = start_chat(4, concurrency=4)
    lose_twice(run, most=4)

    work_on_run(run.pk)
    assert counts(run) == ("completed", 4, 4, 0)
    assert model_server.most_in_flight == 1
    assert costs(run) == ledger(run)


def test_a_run_that_is_stopped_executes_no_more_of_what_lost_two_workers(start_recorded):
    run = start_recorded("a refund", "a refund")
    lose_twice(run, most=2)
    stop_run(Run.objects.get(), stopped_by=None)

    work_on_run(run.pk)
    assert not waits_alone(run.pk)
    assert counts(run)[0] == "stopped"

    resume_run(Run.objects.get(), resumed_by=None)
    assert waits_alone(run.pk)
    assert not waits_alone(run.pk, "a command line")
    work_on_run(run.pk)
    assert counts(run) == ("completed", 2, 2, 0)


def test_a_result_is_no_error_because_busy_workers_stood_still_and_came_back(start_recorded):
    run = start_recorded("a refund")
    Run.objects.update(status="running")
    for number in range(reaper.MAX_LEASES):
        [claim] = lose(run, token="slow")
        reap(now=timezone.now() + LATER)
        assert Attempt.objects.last().reason == "worker lost"
        assert renew_leases(run.pk, "slow", {claim.result_id: claim}, under_way=1) == set()
        assert Attempt.objects.filter(reason="lease ran out").count() == number + 1
        assert statuses(run) == ["pending"]
        RunWorker.objects.all().delete()

    # A result that stops each worker for a while does not do so for ever.
    lose(run, token="slow")
    reap(now=timezone.now() + LATER)
    assert counts(run) == ("completed", 1, 0, 1)
    assert run.results.get().error.startswith("worker lost: 10 workers stood still")


def test_what_a_dead_process_of_this_machine_held_is_free_at_once(start_recorded):
    run = start_recorded("a refund")
    Run.objects.update(status="running")
    lose(run, token="lost", worker=dead_process_name())

    assert reap(now=timezone.now()) == [run.pk]
    assert statuses(run) == ["pending"]


@pytest.mark.parametrize("worker", ["elsewhere/abc/1/1", "elsewhere//1/1", "nonsense"])
def test_a_process_that_cannot_be_seen_from_here_is_not_taken_for_dead(worker):
    assert not is_dead(worker)
    assert not is_dead(process_name())


def test_a_process_without_file_descriptors_takes_no_other_for_dead(start_recorded):
    run = start_recorded("a refund")
    Run.objects.update(status="running")
    lose(run, token="alive", worker=process_name())

    with no_file_descriptors():
        reap(now=timezone.now())
        # Under another name it would itself be taken for dead.
        assert process_name() == RunWorker.objects.get().worker
    assert statuses(run) == ["running"]


@contextmanager
def no_file_descriptors() -> Iterator[None]:
    """Let this process open nothing; what is open stays so, and can be waited for."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_run_whose_last_recorder_died_before_finishing_it_is_finished(start_recorded):
    run = start_recorded("a refund")
    work_on_run(run.pk)
    Run.objects.update(status="running", summary=None, finished_at=None)

    reap(now=timezone.now())

    assert counts(run) == ("completed", 1, 1, 0)
    assert run.summary["cases_pass_rate_pct"] == 100


def test_an_abandoned_command_line_run_is_stopped_and_can_be_resumed(start_recorded):
    run = start_recorded("a refund")
    Run.objects.update(
        status="running", owner="command_line", heartbeat_at=timezone.now() - 2 * LATER
    )
    reap(now=timezone.now())

    assert counts(run)[0] == "stopped"
    assert statuses(run) == ["cancelled"]
    assert resume_run(run, resumed_by=None) == 1


def test_a_run_over_its_longest_time_is_ended_and_has_as_much_again_when_it_is_resumed(
    start_recorded,
):
    run = start_recorded("a refund", "no")
    begun = timezone.now()
    Run.objects.update(status="running", started_at=begun, max_minutes=30)
    reap(now=begun + timedelta(minutes=29))
    assert counts(run)[0] == "running"
    reap(now=begun + timedelta(minutes=30))
    assert counts(run)[0] == "stopped"
    assert run.status_reason == "It reached its longest time, 30 minutes. Resume it to continue."
    assert statuses(run) == ["cancelled", "cancelled"]

    assert resume_run(run, resumed_by=None) == 2
    reap(now=begun + timedelta(days=1))
    assert counts(run)[0] == "queued"
    work_on_run(run.pk)
    assert counts(run)[:2] == ("completed", 2)


def test_an_overdue_run_that_cannot_be_ended_keeps_no_other_from_being_ended(
    start_recorded, monkeypatch
):
    begun, end = timezone.now(), reaper.end_overdue_run
    stuck, run = start_recorded("a refund"), start_recorded("a refund")
    Run.objects.update(status="running", started_at=begun, max_minutes=30)

    def end_or_fail(overdue):
        if overdue.pk == stuck.pk:
            raise ValueError("unreadable")
        return end(overdue)

    monkeypatch.setattr(reaper, "end_overdue_run", end_or_fail)
    assert reap(now=begun + timedelta(minutes=30)) == [stuck.pk]
    assert counts(run)[0] == "stopped"


def test_reaping_again_changes_nothing(start_recorded):
    run = start_recorded("a refund", "no")
    work_on_run(run.pk)
    before = Run.objects.values().get()
    for _ in range(3):
        assert reap(now=timezone.now() + LATER) == []

    assert Run.objects.values().get() == before


def test_a_worker_shows_itself_and_takes_itself_off_the_list():
    register_worker(now=timezone.now(), version="1")
    register_worker(now=timezone.now(), version="1")
    assert WorkerProcess.objects.get().name == process_name()
    unregister_worker()
    assert not WorkerProcess.objects.exists()


def test_a_stopped_run_keeps_what_is_done_and_late_replies_change_nothing(
    start_chat, model_server, caplog
):
    model_server.behave(good("A"), good(), hang(), then=good())
    run = start_chat(6, concurrency=1)
    worker = work_in_thread(run)
    model_server.wait_for_chats(3)
    wait_until(lambda: counts(run)[1] == 1)
    stop_run(run, stopped_by=None)
    model_server.release()
    worker.join(30)

    assert not worker.is_alive()
    assert counts(run) == ("stopped", 1, 1, 0)
    assert "came too late" not in caplog.text
    assert statuses(run) == ["scored", *["cancelled"] * 5]
    assert run.status_reason == "Cancelled"
    assert EvaluatorScore.objects.filter(result__run=run).count() == 2

    assert resume_run(run, resumed_by=None) == 5
    work_on_run(run.pk)
    assert counts(run) == ("completed", 6, 6, 0)
    answered = ModelCall.objects.filter(run=run, status="ok").count()
    assert answered == 12


def test_answers_of_models_that_are_deleted_meanwhile_are_booked(
    start_chat, model_server, admin_user
):
    model_server.behave(then=late)
    run = start_chat(6, concurrency=3)
    worker = work_in_thread(run)
    model_server.wait_for_chats(3)
    change_suite(run.suite, judge=make_model())
    run.target.model = make_model()
    run.target.save()
    for model in LanguageModel.objects.filter(slug__in=run.snapshot["models"]):
        model.remove(actor=admin_user)
    model_server.release()
    worker.join(30)

    assert counts(run) == ("completed", 6, 6, 0)
    assert ModelCall.objects.filter(run=run).count() == len(model_server.answered) == 12
    assert costs(run) == ledger(run) > 0


def test_the_runs_of_one_member_leave_a_place_for_those_of_others(
    start_chat, start_recorded, model_server, monkeypatch
):
    monkeypatch.setattr(run_worker, "_active_runs", ActiveRuns())
    run_worker.offer_places(2)
    queued = []
    monkeypatch.setattr(run_worker, "queue", lambda task, pk, **_: queued.append((task, pk)))
    ann, bob = make_user(), make_user()
    model_server.behave(then=late)
    slow = start_chat(2, started_by=ann)
    worker = work_in_thread(slow)
    model_server.wait_for_chats(1)
    next_, other, nobodys = (
        start_recorded("a refund", started_by=member) for member in (ann, bob, None)
    )
    assert not work_on_run(next_.pk), "another process may have a place for it"
    for run in (other, nobodys):
        assert work_on_run(run.pk)
    assert counts(next_) == ("queued", 0, 0, 0)
    assert counts(other) == counts(nobodys) == ("completed", 1, 1, 0)

    model_server.release()
    worker.join(30)
    assert counts(slow)[0] == "completed"
    assert queued == [("runs.work_on_run", next_.pk)]
    assert work_on_run(next_.pk)
    assert counts(next_) == ("completed", 1, 1, 0)
    assert len(queued) == 1


def test_a_process_that_is_told_to_end_records_the_answers_of_calls_in_flight(
    start_chat, model_server, monkeypatch
):
    model_server.behave(then=late)
    run = start_chat(6, concurrency=3)
    with monkeypatch.context() as process:
        process.setattr(run_worker, "_active_runs", ActiveRuns())
        worker = work_in_thread(run)
        model_server.wait_for_chats(3)
        run_worker.release()
        wait_until(
            lambda: not run.run_workers.at_work().exists(), what="the worker takes nothing new"
        )
        model_server.release()
        worker.join(30)

    assert not worker.is_alive()
    assert (len(model_server.chats), ModelCall.objects.filter(status="ok").count()) == (3, 3)
    assert statuses(run) == ["pending"] * 6
    work_on_run(run.pk)
    assert counts(run) == ("completed", 6, 6, 0)
    assert len(model_server.chats) == 12


def test_at_most_ten_answers_are_unwritten_when_a_call_starts(
    start_chat, model_server, monkeypatch
):
    run = start_chat(30, concurrency=5)
    may_write = threading.Event()
    write = result_writer.ResultWriter._write

    async def write_late(writer, ended):
        await asyncio.to_thread(may_write.wait, 60)
        await write(writer, ended)

    monkeypatch.setattr(result_writer.ResultWriter, "_write", write_late)
    shown = []
    monkeypatch.setattr(ActiveRuns, "show", lambda runs, slot, run_loop: shown.append(run_loop))
    worker = work_in_thread(run)
    wait_until(lambda: shown and not shown[0]._writer.room.is_set() and not model_server.in_flight)
    # Ten are unwritten; the others were in flight already.
    assert 10 <= len(model_server.chats) < 10 + 5
    may_write.set()
    worker.join(60)
    assert counts(run) == ("completed", 30, 30, 0)


def test_an_answer_is_written_although_nothing_else_happens(start_chat, model_server, monkeypatch):
    monkeypatch.setattr(result_writer, "WRITE_EVERY_S", 3600.0)
    model_server.behave(good("A"), then=late)
    run = start_chat(2, concurrency=2)
    worker = work_in_thread(run)
    wait_until(lambda: ModelCall.objects.filter(run=run).count() == 1)
    model_server.release()
    worker.join(60)
    assert counts(run) == ("completed", 2, 2, 0)


def errored_run(start_chat, model_server):
    model_server.on_evaluator("right", good("prose, not JSON"))
    run = start_chat(3)
    work_on_run(run.pk)
    assert counts(run) == ("completed", 3, 0, 3)
    model_server.on_evaluator("right", good())
    return run


def test_errored_results_are_tried_again_in_place(start_chat, model_server):
    run = errored_run(start_chat, model_server)
    before = len(model_server.chats)

    assert retry_results(run, asked_by=None) == 3
    assert counts(run) == ("queued", 0, 0, 0)
    work_on_run(run.pk)

    assert counts(run) == ("completed", 3, 3, 0)
    assert len(model_server.chats) == before + 6
    assert set(run.results.values_list("generation", flat=True)) == {2}
    kept = Attempt.objects.first()
    assert (kept.generation, kept.status) == (1, "error")
    assert "could not be read" in kept.reason
    assert EvaluatorScore.objects.filter(result__run=run).count() == 6


def test_only_scoring_is_repeated_when_the_outputs_are_kept(start_chat, model_server):
    run = errored_run(start_chat, model_server)
    before = len(model_server.chats)
    texts = list(run.results.values_list("output__text", flat=True))

    retry_results(run, asked_by=None, keep_output=True)
    work_on_run(run.pk)

    assert counts(run) == ("completed", 3, 3, 0)
    assert len(model_server.chats) == before + 3
    assert list(run.results.values_list("output__text", flat=True)) == texts
    assert not run.results.filter(keeps_output=True).exists()


def test_one_evaluator_alone_can_be_repeated(start_recorded, monkeypatch):
    run = start_recorded("a refund", "nothing")
    work_on_run(run.pk)
    first = run.results.first()
    EvaluatorScore.objects.filter(result=first, path="mentions_refund").update(score=0.9)

    retry_results(run, asked_by=None, result_ids=[first.pk], paths=["mentions_refund"])
    work_on_run(run.pk)
    first.refresh_from_db()
    assert (first.score, first.generation) == (1.0, 2)
    assert counts(run) == ("completed", 2, 1, 0)


def test_failed_results_can_be_tried_again_while_others_stay(start_recorded):
    run = start_recorded("a refund", "nothing")
    work_on_run(run.pk)
    stays = Result.objects.values().get(verdict="pass")

    assert retry_results(run, asked_by=None, which="failed") == 1
    work_on_run(run.pk)

    assert counts(run) == ("completed", 2, 1, 0)
    assert Result.objects.values().get(verdict="pass") == stays
    assert run.fail_count == 1
