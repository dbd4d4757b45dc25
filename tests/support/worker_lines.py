"""Rows of workers: a process, its run worker, and the results that holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from runs.models.results import Result
from runs.models.runs import Run, RunWorker, WorkerProcess
from tests.support.factories import make_case, make_run, make_suite


def ago(seconds: float) -> datetime:
    return timezone.now() - timedelta(seconds=seconds)


def ahead(seconds: float) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)


def make_worker(*, host: str = "eval-1", pid: int = 4121, seen: float = 2, **columns: Any):
    """Make a worker process whose last heartbeat was `seen` seconds ago."""
    defaults = {
        "name": f"{host}/place/{pid}/{pid}00",
        "host": host,
        "pid": pid,
        "version": "0.1.0",
        "sandbox": "bubblewrap 0.11.0",
        "started_at": ago(7200),
        "heartbeat_at": ago(seen),
    }
    return WorkerProcess.objects.create(**defaults | columns)


def make_open_run(*, cases: int = 0, title: str = "Customer support", **columns: Any) -> Run:
    """Make an active run with one waiting result for each case."""
    suite = columns.pop("suite", None) or make_suite(title=title)
    defaults = {"status": "running", "finished_at": None}
    run = make_run(suite=suite, **defaults | columns)
    made = [make_case(suite=suite, position=number) for number in range(cases)]
    Result.objects.bulk_create(Result(run=run, case=case, position=case.position) for case in made)
    run.execution_count += cases
    run.case_count += cases
    run.save()
    return run


def make_run_worker(
    *, run: Run, worker: WorkerProcess | str, token: str, holds: int = 0, **columns: Any
) -> RunWorker:
    """Make a run worker that holds this many of the waiting results for 20 more seconds."""
    name = worker if isinstance(worker, str) else worker.name
    defaults = {"started_at": ago(300), "heartbeat_at": ago(1), "in_flight": holds}
    hold(run.results.filter(status="pending")[:holds], token=token)
    return RunWorker.objects.create(run=run, worker=name, token=token, **defaults | columns)


def hold(results: Sequence[Result], *, token: str, seconds: float = 20) -> None:
    """Put results under a lease."""
    held = Result.objects.filter(pk__in=[result.pk for result in results])
    held.update(status="running", lease_token=token, lease_until=ahead(seconds))
