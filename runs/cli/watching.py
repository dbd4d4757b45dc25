"""Execute a run in this process, watch it until it is finished or stopped, and say how far it is."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import FrameType, TracebackType
from typing import Self

from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone

from evaluators.models import LanguageModel
from evaluators.templatetags.figures import GAPS, counted, duration, money
from runs.cli.terminal import ProgressLine
from runs.execution.database import describe_error, first_error, is_temporary
from runs.execution.reaper import reap
from runs.execution.run_worker import release_run, with_live_connection, work_on_run
from runs.finishing import end_overdue_run, finish_run, is_overdue, summarise_run
from runs.models.database import clock_offset, database_now
from runs.models.results import ANSWERED, CallStatus, ModelCall
from runs.models.runs import ACTIVE_RUN_STATUSES, HEAVY_RUN_COLUMNS, LEASE, Run, RunStatus
from runs.results.runs import NOT_EVALUATED

logger = logging.getLogger(__name__)

HEARTBEAT_EVERY_S = LEASE.total_seconds() / 6
LOOK_AGAIN_S = 1.0
MAX_CRASHES = 3


class LocalWorker:
    """A context manager with a worker in one thread and its heartbeat in another.

    `problem` says why the worker gave up; "" if it did not.
    """

    def __init__(self, run: Run, *, waiting: Sequence[int] = ()) -> None:
        """Do nothing yet; `waiting` are the later runs of this process."""
        self.problem = ""
        self._run_id = run.pk
        self._waiting = waiting
        self._owner_id = run.owner_id
        self._crashes = 0
        self._is_over = threading.Event()
        self._is_released = threading.Event()
        # Daemons, so that a second Ctrl-C can end the process without waiting for them.
        self._threads = [
            threading.Thread(target=self._execute, name="run-worker", daemon=True),
            threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True),
        ]

    def __enter__(self) -> Self:
        """Start the threads."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the run if it is unfinished, and end the threads."""
        if not self._is_over.is_set():
            self.release()
        for thread in self._threads:
            thread.join()

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; True once the worker is done."""
        return self._is_over.wait(seconds)

    def stop(self, reason: str) -> None:
        """Stop the run and keep its results; raises the database's error if it does not answer."""
        finish_run(self._run_id, RunStatus.STOPPED, reason=reason, in_background=False)

    def release(self, *, for_good: bool = True) -> None:
        """Release the run; within seconds if `for_good` or if no other run waits.

        This process then claims no more results of the run. Other runs are not affected: a watch that
        sees the end of a run before its worker does must not block the next run.
        """
        self._is_released.set()
        if for_good or not self._waiting:
            release_run(self._run_id)

    def _execute(self) -> None:
        try:
            while self._is_active():
                self._work()
        except Exception as error:
            logger.exception("The run could not be finished")
            self.problem = describe_error(error)
        finally:
            self._is_over.set()
            connection.close()

    def _is_active(self) -> bool:
        if self._is_released.is_set():
            return False
        mine = Run.objects.filter(pk=self._run_id, owner_id=self._owner_id)
        return with_live_connection(mine.filter(status__in=ACTIVE_RUN_STATUSES).exists)

    def _work(self) -> None:
        """Work until nothing can be claimed, and reap results this worker may have lost."""
        try:
            work_on_run(self._run_id, owner_id=self._owner_id)
        except Exception as error:
            self._crashes += 1
            if self._crashes >= MAX_CRASHES or is_temporary(first_error(error)):
                raise
            logger.exception("The worker crashed and starts again")
        if self._is_active():
            self._is_released.wait(LOOK_AGAIN_S)
            with_live_connection(lambda: reap(now=database_now()))

    def _send_heartbeats(self) -> None:
        """Renew the ownership of the run and of waiting runs; skip a beat while the database is down."""
        while not self._is_over.wait(HEARTBEAT_EVERY_S):
            try:
                mine = Run.objects.filter(pk__in=(self._run_id, *self._waiting))
                mine.filter(owner_id=self._owner_id).update(heartbeat_at=database_now())
            except (DatabaseError, InterfaceError) as error:
                logger.warning("The heartbeat failed, next in %s s: %s", HEARTBEAT_EVERY_S, error)
                connection.close()
        connection.close()


LOOK_EVERY_S = 0.25
# A run that stands still says so after this long, then after twice as long, at last every ten minutes.
QUIET_S, MAX_SILENCE_S = 15.0, 600.0
STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
STOPPED = "Stopped at the command line."
OUTAGE = "The database does not answer. Waiting until it does."
OUTAGE_WHILE_STOPPING = (
    "The run stops as soon as the database answers. Ctrl-C again exits at once; the next worker or "
    "command then ends the run."
)


def execute_run(
    run: Run, progress: ProgressLine, stop: threading.Event, *, waiting: Sequence[int] = ()
) -> str:
    """Execute the run and show its progress; returns the problem if it could not be finished.

    `stop` stops the run and keeps its results. `waiting` are the later runs of this process.
    """
    with LocalWorker(run, waiting=waiting) as worker:
        watch = Watch(run, worker, progress)
        while not worker.wait(LOOK_EVERY_S):
            watch.look(stop_wanted=stop.is_set())
        watch.look(stop_wanted=stop.is_set())
    progress.close()
    if not worker.problem:
        summarise_run(run.pk)
    return worker.problem


class Watch:
    """Polls the run, says what it waits for, ends it in time, and releases the worker if it ended elsewhere."""

    def __init__(
        self,
        run: Run,
        worker: LocalWorker,
        progress: ProgressLine,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember the run with its owner at the start."""
        self._run = run
        self._worker = worker
        self._progress = progress
        self._is_released = False
        self._last_report = ""
        self._clock = clock
        self._done = run.done_count
        self._quiet_since, self._report_after_s = clock(), QUIET_S
        self._ahead: timedelta | None = None

    def look(self, *, stop_wanted: bool) -> None:
        """Stop the run if wanted, show its progress, and notice when it has ended."""
        try:
            if stop_wanted and not self._is_released:
                self._worker.stop(STOPPED)
            light = Run.objects.defer(*HEAVY_RUN_COLUMNS).get(pk=self._run.pk)
            self._progress.show(
                progress_line(light), done=light.done_count, total=light.execution_count
            )
            if not self._is_released and light.is_active:
                self._keep_time(light)
        except (DatabaseError, InterfaceError) as error:
            if not is_temporary(error):
                raise
            self._report_outage_once(stop_wanted=stop_wanted)
            return
        self._last_report = ""
        if not self._is_released and not self._is_mine(light):
            self._release(light, stop_wanted=stop_wanted)

    def _keep_time(self, run: Run) -> None:
        """End a run that takes too long; of one that stands still, say why, more and more rarely."""
        if self._ahead is None:
            self._ahead = clock_offset()
        now = timezone.now() + self._ahead
        if is_overdue(run, now=now):
            end_overdue_run(run)
            return
        if run.done_count != self._done:
            self._done, self._quiet_since = run.done_count, self._clock()
            self._report_after_s = QUIET_S
        quiet_s = self._clock() - self._quiet_since
        if quiet_s >= self._report_after_s:
            self._progress.say(waiting_text(run, quiet_s, now=now))
            self._report_after_s = quiet_s + min(quiet_s, MAX_SILENCE_S)

    def _is_mine(self, run: Run) -> bool:
        return run.is_active and run.owner_id == self._run.owner_id

    def _release(self, run: Run, *, stop_wanted: bool) -> None:
        self._is_released = True
        if stop_wanted and not run.is_active:
            self._progress.say("Stopping: calls in flight have a few seconds to answer.")
        if self._worker.wait(0):
            return
        self._worker.release(for_good=stop_wanted)
        if run.is_active:
            self._progress.say("The workers continue this run.")

    def _report_outage_once(self, *, stop_wanted: bool) -> None:
        connection.close()
        sentence = OUTAGE_WHILE_STOPPING if stop_wanted else OUTAGE
        if sentence != self._last_report:
            self._progress.say(sentence)
        self._last_report = sentence


@contextmanager
def stop_wanted() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and the end of the terminal set.

    A second signal ends the process at once.
    """
    wanted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if wanted.is_set():
            # The reaper ends the run.
            os._exit(NOT_EVALUATED)
        wanted.set()

    earlier = {}
    for name in STOP_SIGNALS:
        number = getattr(signal, name, None)
        # A signal that was ignored from the start, as by nohup, stays ignored.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            earlier[number] = signal.signal(number, note)
    try:
        yield wanted
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def progress_line(run: Run) -> str:
    """Return the progress of a run: results done, verdicts, errors and the known costs."""
    counts = [
        f"{run.done_count} of {run.execution_count}",
        f"{run.pass_count} pass",
        f"{run.borderline_count} borderline",
        f"{run.fail_count} fail",
        counted(run.error_count, "error"),
    ]
    sums = (("target", run.run_cost_usd), ("judge", run.evaluation_cost_usd))
    # Whether no cost means free or unknown is shown at the end: it needs every call.
    costs = [f"{money(usd).translate(GAPS)} {name}" for name, usd in sums if usd]
    return ", ".join(counts + costs)


# How many of a run's newest calls are read to say since when it waits.
MAX_CALLS = 500


def waiting_text(run: Run, quiet_s: float, *, now: datetime) -> str:
    """Say how long there was no result, how the calls since the last answer ended, and what holds back models."""
    columns = ("model_name", "status", "http_status", "created_at", "model_id")
    calls = ModelCall.objects.filter(run=run).order_by("-created_at", "-id")
    failed: dict[tuple[str, str, int | None], list[datetime]] = {}
    model_ids = set()
    for name, status, code, at, model_id in calls.values_list(*columns)[:MAX_CALLS]:
        if status in ANSWERED:
            break
        failed.setdefault((name, status, code), []).append(at)
        model_ids.add(model_id)
    sentences = [f"No result for {duration(quiet_s * 1000)}."]
    for (name, status, code), at in failed.items():
        how = f"{CallStatus(status).label.lower()}{f' (HTTP {code})' if code else ''}"
        since = f"{timezone.localtime(at[-1]):%H:%M:%S}"
        sentences.append(f"{name}: {counted(len(at), 'call')} {how} since {since}.")
    for model in LanguageModel.objects.filter(pk__in=model_ids - {None}):
        slowdown = model.slowdown
        if slowdown.paused_until is not None:
            wait_ms = (slowdown.paused_until - now).total_seconds() * 1000
            sentences.append(f"{model.name} is asked again in {duration(max(0.0, wait_ms))}.")
        elif slowdown.silent_since is not None:
            sentences.append(
                f"{model.name} does not answer; it is retried with one call at a time."
            )
        elif slowdown.rate is not None:
            sentences.append(f"{model.name} is slowed to {slowdown.rate:.3g} calls a second.")
    if not failed:
        sentences.append("No call has failed since the last answer.")
    return " ".join(sentences).translate(GAPS)
