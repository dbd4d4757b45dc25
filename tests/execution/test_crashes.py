"""A run that crashes its workers fails, and keeps no other run from being cleaned up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError

from runs import finishing
from runs.execution import database, run_worker
from runs.execution.reaper import reap, register_worker
from runs.execution.run_worker import work_on_run
from runs.models.database import database_now
from runs.models.runs import Run, WorkerProcess
from tests.support.run_doubles import Failing
from tests.support.run_workers import counts

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]


def broken(*args, **kwargs):
    raise TypeError("a bug of ours")


def test_a_run_that_crashes_workers_again_and_again_fails(start_recorded, monkeypatch):
    run = start_recorded("a refund")
    register_worker(now=database_now(), version="1")

    monkeypatch.setattr("runs.execution.run_worker.claim_jobs", broken)
    for expected in ("running", "running", "failed"):
        with pytest.raises(ExceptionGroup):
            work_on_run(run.pk)
        assert counts(run)[0] == expected

    assert run.status_reason == "The run cannot be executed: TypeError: a bug of ours"
    assert list(run.results.values_list("status", flat=True)) == ["cancelled"]
    assert WorkerProcess.objects.get().last_error == "TypeError: a bug of ours"
    events = run.events.filter(kind=database.CRASHED)
    assert {event.text for event in events} == {
        "A worker crashed after 0 results: TypeError: a bug of ours"
    }


def test_a_run_that_breaks_while_it_is_read_is_failed_by_it(start_recorded, monkeypatch):
    run = start_recorded("a refund")
    monkeypatch.setattr(run_worker, "load_work", Failing(*[AttributeError("no tree")] * 3))
    for expected in ("running", "running", "failed"):
        with pytest.raises(AttributeError):
            work_on_run(run.pk)
        assert counts(run)[0] == expected
    assert run.status_reason == "The run cannot be executed: AttributeError: no tree"


@pytest.mark.writes_results
def test_a_run_that_cannot_be_set_right_keeps_no_other_from_it(start_recorded, monkeypatch):
    register_worker(now=database_now(), version="1")
    first, second = start_recorded("a refund"), start_recorded("a refund")
    Run.objects.update(status="running")
    for run in (first, second):
        run.results.update(status="scored", verdict="pass")
    usual = finishing._figures

    def figures(run, *facts):
        return broken() if run.pk == first.pk else usual(run, *facts)

    monkeypatch.setattr(finishing, "_figures", figures)
    reap(now=database_now())

    assert (counts(first)[0], counts(second)[0]) == ("running", "completed")
    assert WorkerProcess.objects.get().last_error == "TypeError: a bug of ours"


@pytest.mark.writes_results
def test_the_reaper_ends_where_the_database_is_away(start_recorded, monkeypatch):
    run = start_recorded("a refund")
    Run.objects.update(status="running")
    run.results.update(status="scored", verdict="pass")
    away = Failing(OperationalError("away"))
    monkeypatch.setattr(finishing, "_figures", lambda *facts: away())
    with pytest.raises(OperationalError):
        reap(now=database_now() + timedelta(seconds=1))
