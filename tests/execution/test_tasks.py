"""Tasks that another process must do are passed on."""

from __future__ import annotations

import pytest

from evaluators.broker import task_app
from runs import tasks
from runs.execution.reaper import register_worker
from runs.execution.shares import register_run_worker
from runs.models.database import database_now
from runs.models.runs import Run, WorkerProcess

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def passed_on(monkeypatch):
    """Collect what is put back into the queue; this process is at every run already."""
    task_app()
    sent = []
    monkeypatch.setattr(tasks.run_worker, "work_on_run", lambda run_id: False)
    monkeypatch.setattr(
        tasks.work_on_run, "apply_async", lambda kwargs, **options: sent.append(kwargs)
    )
    return sent


def second_worker():
    now = database_now()
    register_worker(now=now, version="1")
    WorkerProcess.objects.create(
        name="elsewhere/x/1/1", host="elsewhere", pid=1, started_at=now, heartbeat_at=now
    )


def test_tasks_meant_for_another_process_are_passed_on(start_recorded, passed_on):
    run = start_recorded("a refund")
    Run.objects.update(status="running")
    second_worker()
    register_run_worker(run.pk, "mine", under_way=0, now=database_now())

    tasks.work_on_run(run.pk)
    assert passed_on == [{"run_id": run.pk, "hops": 1}]
    tasks.work_on_run(run.pk, hops=tasks.MAX_HOPS)
    assert len(passed_on) == 1


def test_nobody_is_called_who_could_not_help(start_recorded, passed_on):
    run = start_recorded("a refund")
    Run.objects.update(status="running")
    register_worker(now=database_now(), version="1")
    register_run_worker(run.pk, "mine", under_way=0, now=database_now())

    tasks.work_on_run(run.pk)
    assert passed_on == []


def test_a_run_without_a_place_is_passed_on_once_to_each_other_process(
    start_recorded, passed_on, monkeypatch
):
    monkeypatch.setattr(tasks.run_worker, "is_deferred", lambda run_id: True)
    run = start_recorded("a refund")
    register_worker(now=database_now(), version="1")
    tasks.work_on_run(run.pk)
    assert passed_on == []

    second_worker()
    tasks.work_on_run(run.pk)
    tasks.work_on_run(run.pk, hops=1)
    assert passed_on == [{"run_id": run.pk, "hops": 1}]
