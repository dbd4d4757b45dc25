"""A run's concurrency is that of all its workers together."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from evaluators.models import LanguageModel
from runs.execution.active_runs import RunSlot
from runs.execution.reaper import reap, runs_needing_workers
from runs.execution.run_worker import RunLoop, _work
from runs.execution.shares import (
    agree_on_share,
    even_shares,
    register_run_worker,
    unregister_run_worker,
)
from runs.models.database import database_now
from runs.models.runs import RunWorker, WorkerProcess
from runs.queue import queue_workers
from tests.services.processes import dead_process_name, wait_until
from tests.support.factories import make_run
from tests.support.run_workers import counts, late

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]


@pytest.mark.parametrize(
    ("total", "wanted", "shares"),
    [
        (20, [20], [20]),
        (20, [20, 20], [10, 10]),
        (20, [20, 20, 20], [7, 7, 6]),
        (20, [20, 3, 20], [9, 3, 8]),
        (20, [2, 3], [2, 3]),
        (2, [2, 2, 2], [1, 1, 0]),
        (5, [], []),
    ],
)
def test_a_total_is_divided_evenly_among_those_that_want_it(total, wanted, shares):
    assert even_shares(total, wanted) == shares


class SharingWorkers:
    """Workers of one run that agree in turn."""

    def __init__(self, concurrency):
        self.concurrency = concurrency
        self.run = make_run(concurrency=concurrency)

    def agree(self, token, *, in_flight=0, wanted=None):
        return agree_on_share(
            self.run.pk,
            token,
            concurrency=self.concurrency,
            wanted=self.concurrency if wanted is None else wanted,
            in_flight=in_flight,
        )

    def allowed(self, token, **facts):
        share = self.agree(token, **facts)
        assert sum(RunWorker.objects.values_list("share", flat=True)) <= self.concurrency
        return share.allowed


def test_a_worker_alone_has_the_whole_concurrency_and_a_second_gets_half_once_it_is_free():
    workers = SharingWorkers(20)
    assert workers.allowed("a") == 20
    assert workers.allowed("b") == 0

    # The first starts nothing above its half from now on, but may end what it has in flight.
    assert workers.allowed("a", in_flight=20) == 10
    assert workers.allowed("b") == 0
    assert workers.allowed("a", in_flight=14) == 10
    assert workers.allowed("b") == 6
    assert workers.allowed("a", in_flight=10) == 10
    assert workers.allowed("b", in_flight=6) == 10


def test_the_share_of_a_worker_that_left_goes_to_the_others():
    workers = SharingWorkers(6)
    workers.allowed("a")
    workers.allowed("b")
    workers.allowed("a")
    assert workers.allowed("b") == 3

    unregister_run_worker("a")
    assert workers.allowed("b", in_flight=3) == 6


def test_a_worker_that_has_little_left_leaves_the_rest_to_the_others():
    workers = SharingWorkers(20)
    for token in ("a", "b", "a", "b"):
        workers.allowed(token)
    assert workers.allowed("b", in_flight=2, wanted=2) == 2
    assert workers.allowed("a", in_flight=10) == 18


def test_a_dead_workers_share_is_free_with_the_next_reaping():
    workers = SharingWorkers(4)
    workers.allowed("dead")
    RunWorker.objects.update(worker=dead_process_name())
    assert workers.allowed("a") == 0

    reap(now=database_now())
    assert workers.allowed("a") == 4


def test_a_worker_that_was_taken_for_dead_keeps_only_what_it_has_in_flight():
    workers = SharingWorkers(4)
    workers.allowed("frozen")
    unregister_run_worker("frozen")
    assert workers.allowed("other") == 4

    share = workers.agree("frozen", in_flight=3)
    assert (share.reserved, share.allowed) == (3, 2)


def test_no_more_workers_are_called_than_may_have_an_execution_in_flight(
    start_recorded, monkeypatch
):
    now = database_now()
    for pid in range(3):
        WorkerProcess.objects.create(
            name=f"elsewhere/x/{pid}/1", host="x", pid=pid, started_at=now, heartbeat_at=now
        )
    run = start_recorded(*["a refund"] * 10, concurrency=2)
    register_run_worker(run.pk, "a", under_way=0, now=now)
    assert runs_needing_workers(now=now) == [run.pk]
    register_run_worker(run.pk, "b", under_way=0, now=now)
    assert runs_needing_workers(now=now) == []

    queued = []
    monkeypatch.setattr("runs.queue.queue", lambda *facts: queued.append(facts))
    queue_workers(run)
    assert len(queued) == 2


def test_four_workers_together_keep_as_many_calls_in_flight_as_the_run_allows(
    start_chat, model_server
):
    model_server.behave(then=late)
    run = start_chat(60, concurrency=4)
    LanguageModel.objects.update(concurrency=50)

    def work():
        try:
            _work(RunSlot(run.pk))
        finally:
            connection.close()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    model_server.wait_for_chats(4)
    wait_until(lambda: run.run_workers.count() == 4, what="four workers")
    model_server.release()
    for worker in workers:
        worker.join(60)

    assert counts(run) == ("completed", 60, 60, 0)
    assert model_server.most_in_flight == 4
    assert not run.run_workers.exists()


def test_a_run_of_one_at_a_time_is_not_held_up_by_workers_it_cannot_occupy(
    start_chat, model_server
):
    model_server.behave(then=late)
    run = start_chat(5, concurrency=1)
    first = threading.Thread(target=lambda: (_work(RunSlot(run.pk)), connection.close()))
    first.start()
    model_server.wait_for_chats(1)

    _work(RunSlot(run.pk))
    assert run.run_workers.count() == 1
    model_server.release()
    first.join(60)
    assert counts(run) == ("completed", 5, 5, 0)
    assert model_server.most_in_flight == 1


def test_a_run_is_released_although_its_executions_are_cancelled_before_they_start(
    start_recorded, monkeypatch
):
    async def cancel(self, group):
        consumer = group.create_task(self._consume())
        self._consumers.add(consumer)
        consumer.cancel()
        self.drain()

    run = start_recorded("a refund")
    with monkeypatch.context() as cancelled:
        cancelled.setattr(RunLoop, "_agree_on_share", cancel)
        _work(RunSlot(run.pk))
    assert counts(run)[:2] == ("running", 0)
    _work(RunSlot(run.pk))
    assert counts(run) == ("completed", 1, 1, 0)
