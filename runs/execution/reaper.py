"""Clean up after dead workers; several reapers may run at the same time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q

from evaluators.models import SlotLease
from evaluators.sandbox.processes import is_dead, process_name
from runs.execution.claims import LEASE_LOST, MAX_ATTEMPTS, RELEASED, WORKER_LOST
from runs.execution.database import is_temporary, note_error
from runs.execution.shared_limits import forget_slot_leases, forget_starts
from runs.exports.services import reap_exports
from runs.finishing import (
    complete_run,
    end_overdue_run,
    finish_run,
    is_overdue,
    summarise_run,
)
from runs.models.database import database_answers_since
from runs.models.jobs import ModelJob
from runs.models.removals import CHECKED_EVERY, Removal, RetentionRule
from runs.models.results import OPEN_RESULT_STATUSES, Attempt, Result, ResultStatus
from runs.models.runs import (
    ACTIVE_RUN_STATUSES,
    LEASE,
    Run,
    RunEvent,
    RunOwner,
    RunStatus,
    RunWorker,
    WorkerProcess,
)
from runs.models.sharing import ShareLink
from runs.models.temporary import (
    CaseUpload,
    EvaluatorTrial,
    IdempotentRequest,
    ReviewUpload,
    TargetTrial,
)
from runs.models.traces import Trace
from runs.queue import (
    RESCORE_RUN,
    queue,
    queue_exports,
    queue_job,
    queue_removal,
    queue_retention,
)

logger = logging.getLogger(__name__)

# A command line or a rescoring without a heartbeat for this long is abandoned.
SILENCE = 2 * LEASE
FORGET_WORKERS_AFTER = timedelta(hours=1)
# A worker on a busy machine may stand still for a while. One that a result stops does so each time.
MAX_LEASES = 10
END_SESSIONS = """
    SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user
      AND application_name = current_setting('application_name') AND application_name <> ''
      AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL
      AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - make_interval(secs => %s)
"""


def reap(*, now: datetime, at_work: Collection[str] = ()) -> list[int]:
    """Free the results of dead workers and end finished runs; return runs that need workers.

    A missing heartbeat means death only if the worker could have written it: not right after the
    database was away. The workers of this process with the tokens `at_work` are alive: after a long
    sleep the process may look here before they have renewed their leases.
    """
    is_silence_death = database_answers_since() < now - LEASE
    _remove_dead_workers(now=now, at_work=at_work)
    forget_slot_leases(now=now)
    forget_starts(now=now)
    for trials in (TargetTrial.objects, EvaluatorTrial.objects):
        trials.give_up(now=now)
        trials.forget_old(now=now)
    CaseUpload.objects.forget_old(now=now)
    ReviewUpload.objects.forget_old(now=now)
    IdempotentRequest.objects.forget_old(now=now)
    Trace.objects.forget_old(now=now)
    ModelJob.objects.forget_old_drafts(now=now)
    ShareLink.objects.forget_closed(now=now)
    if is_silence_death:
        expired = Q(lease_until__lte=now) & ~Q(lease_token__in=at_work)
        _for_each(
            _runs_with_expired_leases(now=now),
            lambda run_id: _release_results(run_id, expired, now=now),
        )
    _end_abandoned_command_lines(now=now, is_silence_death=is_silence_death)
    _end_overdue_runs(now=now)
    for run_id in _abandoned_rescorings(now=now):
        queue(RESCORE_RUN, run_id, expires_s=LEASE.total_seconds())
    for removal_id in _abandoned_removals(now=now):
        queue_removal(removal_id, expires_s=LEASE.total_seconds())
    for job_id in _abandoned_jobs(now=now):
        queue_job(job_id, expires_s=LEASE.total_seconds())
    if reap_exports(now=now, is_silence_death=is_silence_death):
        queue_exports(expires_s=LEASE.total_seconds())
    if RetentionRule.objects.take_turn(now=now):
        queue_retention(expires_s=CHECKED_EVERY.total_seconds())
    _for_each(_runs_without_open_results(), complete_run)
    _for_each(_ended_without_summary(), summarise_run)
    return runs_needing_workers(now=now)


def _remove_dead_workers(*, now: datetime, at_work: Collection[str]) -> None:
    """Remove workers without a heartbeat, and free at once the results of dead processes."""
    for run_worker in RunWorker.objects.all():
        if is_dead(run_worker.worker):
            _release_results(run_worker.run_id, Q(lease_token=run_worker.token), now=now)
            SlotLease.objects.filter(holder=run_worker.token).delete()
            RunWorker.objects.filter(pk=run_worker.pk).remove(now=now)
    silent_workers = RunWorker.objects.filter(heartbeat_at__lt=now - LEASE)
    silent_workers.exclude(token__in=at_work).remove(now=now)
    silent = WorkerProcess.objects.filter(heartbeat_at__lt=now - FORGET_WORKERS_AFTER)
    dead = [worker.pk for worker in WorkerProcess.objects.all() if is_dead(worker.name)]
    silent.delete()
    WorkerProcess.objects.filter(pk__in=dead).delete()


def _for_each(run_ids: Iterable[int], clean_up: Callable[[int], object]) -> None:
    """Clean up each run; an error in one does not stop the others."""
    for run_id in run_ids:
        try:
            clean_up(run_id)
        except Exception as error:
            if is_temporary(error):
                raise
            logger.exception("Run %s could not be cleaned up", run_id)
            note_error(error)


def _runs_with_expired_leases(*, now: datetime) -> list[int]:
    # Distinct in Python: SQLite would scan every result to avoid a sort.
    expired = Result.objects.filter(status=ResultStatus.RUNNING, lease_until__lte=now)
    return sorted(set(expired.order_by().values_list("run_id", flat=True)))


def _release_results(run_id: int, lost_results: Q, *, now: datetime) -> None:
    """Set the results of lost workers to waiting, or to an error when they were lost too often."""
    with transaction.atomic():
        run = Run.objects.hold(run_id)
        held = Result.objects.filter(lost_results, run_id=run_id, status=ResultStatus.RUNNING)
        lost = list(held.select_for_update(no_key=True).only("id", "attempt", "generation"))
        if not lost:
            return
        ended, stood_still = _lost_before(lost)
        given_up = {row.pk for row in lost if ended[row.pk, row.generation] + 1 >= MAX_ATTEMPTS}
        stopped = {row.pk for row in lost if stood_still[row.pk, row.generation] >= MAX_LEASES}
        Attempt.objects.bulk_create(_attempts(lost, now=now))
        failed = given_up | stopped
        again = Result.objects.filter(pk__in=[row.pk for row in lost if row.pk not in failed])
        again.update(**RELEASED)
        _fail_lost(run, given_up, f"{MAX_ATTEMPTS} workers ended while they executed this", now=now)
        reason = f"{MAX_LEASES} workers stood still while they executed this"
        _fail_lost(run, stopped - given_up, reason, now=now)
        text = f"A worker was lost while working on {len(lost)} result{'s' * (len(lost) > 1)}"
        RunEvent.objects.create(run_id=run_id, kind="worker_lost", text=text)
    logger.warning("Run %s: %s", run_id, text)


Losses = Counter[tuple[int, int]]


def _lost_before(lost: Sequence[Result]) -> tuple[Losses, Losses]:
    """Count how often each result, in each generation, was lost with its worker, and to one that came back."""
    attempts = Attempt.objects.filter(result__in=lost).values_list("result_id", "generation")
    ended, stood_still = (attempts.filter(reason=reason) for reason in (WORKER_LOST, LEASE_LOST))
    return Counter(ended), Counter(stood_still)


def _attempts(lost: Iterable[Result], *, now: datetime) -> list[Attempt]:
    return [
        Attempt(
            result=result,
            attempt=result.attempt,
            generation=result.generation,
            status=ResultStatus.ERROR,
            reason=WORKER_LOST,
            ended_at=now,
        )
        for result in lost
    ]


def _fail_lost(run: Run, result_ids: set[int], reason: str, *, now: datetime) -> None:
    if not result_ids:
        return
    Result.objects.filter(pk__in=result_ids).update(
        status=ResultStatus.ERROR,
        error=f"{WORKER_LOST}: {reason}",
        error_stage="worker",
        lease_token="",
        lease_until=None,
        finished_at=now,
    )
    Run.objects.filter(pk=run.pk).update(
        done_count=F("done_count") + len(result_ids), error_count=F("error_count") + len(result_ids)
    )
    cases = Result.objects.filter(pk__in=result_ids).order_by().values_list("case_id", flat=True)
    run.cases.refresh(run.pk, list(cases))


def _end_abandoned_command_lines(*, now: datetime, is_silence_death: bool) -> None:
    """Stop the runs of command lines that have ended, and remove those that an import has not made whole."""
    owned = Run.including_deleted.filter(
        owner=RunOwner.COMMAND_LINE, status__in=ACTIVE_RUN_STATUSES
    )
    for run in owned.only("is_deleted", "owner_id", "heartbeat_at"):
        is_silent = run.heartbeat_at is not None and run.heartbeat_at < now - SILENCE
        if not ((is_silent and is_silence_death) or is_dead(run.owner_id)):
            continue
        if run.is_deleted:
            Removal.objects.remove_cut_off([run.pk])
            continue
        reason = "The command line that executed this run has ended."
        finish_run(run.pk, RunStatus.STOPPED, reason=reason, in_background=False)


def _end_overdue_runs(*, now: datetime) -> None:
    limited = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES, max_minutes__isnull=False)
    runs = {run.pk: run for run in limited.only("status", "started_at", "max_minutes")}
    overdue = [pk for pk, run in runs.items() if is_overdue(run, now=now)]
    _for_each(overdue, lambda run_id: end_overdue_run(runs[run_id]))


def _abandoned_rescorings(*, now: datetime) -> list[int]:
    """Return the unfinished rescored runs without a heartbeat for two leases."""
    silent = Run.objects.filter(heartbeat_at__lt=now - SILENCE)
    return [run_id for run_id in _incomplete_rescorings() if silent.filter(id=run_id).exists()]


def _abandoned_removals(*, now: datetime) -> list[int]:
    """Return the removals of data whose worker is gone, or that no worker took yet; some have failed."""
    for removal in Removal.objects.exclude(worker=""):
        if is_dead(removal.worker):
            Removal.objects.filter(pk=removal.pk, worker=removal.worker).update(heartbeat_at=None)
    Removal.objects.give_up(now=now)
    return list(Removal.objects.waiting(now=now).values_list("pk", flat=True))


def _abandoned_jobs(*, now: datetime) -> list[int]:
    """Return the open jobs whose worker is gone, or that no worker took yet; some have failed."""
    for job in ModelJob.objects.open().exclude(worker="").only("worker", "token"):
        if is_dead(job.worker):
            ModelJob.objects.filter(pk=job.pk, token=job.token).update(heartbeat_at=None)
    ModelJob.objects.give_up(now=now)
    return list(ModelJob.objects.claimable(now=now).values_list("pk", flat=True))


def _incomplete_rescorings() -> list[int]:
    """Return the active rescored runs that do not have all their results yet."""
    runs = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES, source_run__isnull=False)
    return [
        run.pk for run in runs.only("execution_count") if run.results.count() < run.execution_count
    ]


def _runs_without_open_results() -> list[int]:
    # Not the counters: results that were cancelled before a retry are neither open nor done.
    still_open = Result.objects.filter(run_id=OuterRef("pk"), status__in=OPEN_RESULT_STATUSES)
    done = Run.objects.filter(~Exists(still_open), status__in=ACTIVE_RUN_STATUSES)
    done = done.exclude(id__in=_incomplete_rescorings())
    return list(done.order_by("id").values_list("id", flat=True))


def _ended_without_summary() -> list[int]:
    ended = Run.objects.exclude(status__in=ACTIVE_RUN_STATUSES).filter(summary__isnull=True)
    return list(ended.values_list("id", flat=True))


def runs_needing_workers(*, now: datetime) -> list[int]:
    """Return active runs with waiting results and fewer workers than could share their concurrency."""
    alive = WorkerProcess.objects.alive(now=now).count()
    waiting = Result.objects.ready().filter(run_id=OuterRef("pk"))
    runs = Run.objects.filter(
        Exists(waiting), status__in=ACTIVE_RUN_STATUSES, owner=RunOwner.WORKERS
    )
    run_workers = Counter(RunWorker.objects.at_work().values_list("run_id", flat=True))
    wanting = runs.order_by("id").values_list("id", "concurrency")
    return [pk for pk, concurrency in wanting if run_workers[pk] < max(1, min(alive, concurrency))]


def register_worker(*, now: datetime, version: str, sandbox: str = "") -> None:
    """Record that this worker process is alive."""
    name = process_name()
    host, _, pid, _ = name.rsplit("/", 3)
    WorkerProcess.objects.update_or_create(
        name=name,
        defaults={"heartbeat_at": now, "sandbox": sandbox, "version": version},
        create_defaults={
            "heartbeat_at": now,
            "sandbox": sandbox,
            "version": version,
            "host": host,
            "pid": int(pid),
            "started_at": now,
        },
    )


def unregister_worker() -> None:
    """Remove this process from the list because it is about to end."""
    WorkerProcess.objects.filter(name=process_name()).delete()


def end_idle_transactions() -> int:
    """End sessions that wrote and then waited a whole lease for their process; return how many.

    If the process wakes up, it finds its connection lost and repeats the transaction.
    """
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(END_SESSIONS, [LEASE.total_seconds()])
        ended = [pid for pid, _ in cursor.fetchall()]
    if ended:
        logger.warning("Database sessions %s were idle in a transaction and were ended", ended)
    return len(ended)
