"""The tasks of the workers: each has a name, takes an id and makes one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import shared_task

from runs import finishing
from runs.audit.queries import audit_file
from runs.cases.queries import case_file
from runs.compare.files import comparison_file
from runs.compare.many import many_file
from runs.drafting.writer import read_drafting
from runs.execution import jobs, run_worker, trials
from runs.execution.jobs import ReadJob
from runs.execution.reaper import runs_needing_workers
from runs.exports.services import WRITER
from runs.exports.specs import FileKind
from runs.models.database import database_now
from runs.models.results import CallPurpose
from runs.models.runs import WorkerProcess
from runs.results.files import (
    cases_file,
    displayed_table_file,
    junit_file,
    results_file,
    results_table_file,
)
from runs.retention import services
from runs.reviews.alignment.worker import read_alignment
from runs.reviews.files import reviews_file
from runs.suites.files import suite_file
from runs.what_if import rescoring

FILE_KINDS: Mapping[str, FileKind] = {
    kind.name: kind
    for kind in (
        audit_file,
        case_file,
        cases_file,
        comparison_file,
        displayed_table_file,
        junit_file,
        many_file,
        results_file,
        results_table_file,
        reviews_file,
        suite_file,
    )
}
# What reads a job, by its purpose.
READ_JOBS: Mapping[str, ReadJob] = {
    CallPurpose.ALIGNMENT: read_alignment,
    CallPurpose.DRAFTING: read_drafting,
}
# How often a task is passed on to another process; the reaper queues work again anyway.
MAX_HOPS = 8


@shared_task(name="runs.work_on_run")
def work_on_run(run_id: int, hops: int = 0, **later: Any) -> None:
    """Execute results of a run until none is left to claim.

    The broker may give the task to a process that already works on this run. Then the task is passed on
    while other workers could help.
    """
    if run_worker.work_on_run(run_id) or hops >= MAX_HOPS:
        return
    now = database_now()
    # Of those that a member may have queued, each would be passed on for nothing again and again.
    if run_worker.is_deferred(run_id) and hops >= WorkerProcess.objects.alive(now=now).count() - 1:
        return
    if run_id in runs_needing_workers(now=now):
        work_on_run.apply_async(kwargs={"run_id": run_id, "hops": hops + 1}, retry=False)


@shared_task(name="runs.summarise_run")
def summarise_run(run_id: int, **later: Any) -> None:
    """Give a run that ended early the figures it has so far."""
    finishing.summarise_run(run_id)


@shared_task(name="runs.rescore_run")
def rescore_run(run_id: int, **later: Any) -> None:
    """Create the results of a run from another run's stored scores."""
    rescoring.complete_rescoring(run_id, in_background=False)


@shared_task(name="runs.remove_data", ignore_result=True)
def remove_data(removal_id: int, **later: Any) -> None:
    """Delete data that somebody or a rule wants removed."""
    services.remove_data(removal_id)


@shared_task(name="runs.apply_retention", ignore_result=True)
def apply_retention(**later: Any) -> None:
    """Begin to remove the data that are old enough."""
    services.apply_retention()


@shared_task(name="runs.write_exports", ignore_result=True)
def write_exports(**later: Any) -> None:
    """Make the files that somebody waits for."""
    WRITER.write_waiting(FILE_KINDS, pause=run_worker.pause_for_requests)


@shared_task(name="runs.try_target", ignore_result=True)
def try_target(trial_id: int, **later: Any) -> None:
    """Ask a target about one case and store the answer."""
    trials.try_target(trial_id)


@shared_task(name="runs.try_evaluator", ignore_result=True)
def try_evaluator(trial_id: int, **later: Any) -> None:
    """Score one output by one evaluator of a draft and store the outcome."""
    trials.try_evaluator(trial_id)


@shared_task(name="runs.work_on_job", ignore_result=True)
def work_on_job(job_id: int, **later: Any) -> None:
    """Ask the models that a job asks, within its budget."""
    jobs.work_on_job(job_id, READ_JOBS)
