"""One `work_on_run`: hands for a run where it needs some, and the run's end where they bring it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.utils import timezone

from evaluators.scoring.types import DomainError
from runs.execution.claiming import begin_run
from runs.execution.database import DatabaseThread
from runs.execution.finishing import end_run, finish_run
from runs.execution.hands import Hands
from runs.execution.loading import RunWork, load_work
from runs.execution.processes import process_name
from runs.execution.recording import RunState
from runs.models import Hand, Run, RunStatus

logger = logging.getLogger(__name__)


class _Desks:
    """Which runs this process works on: a second pair of hands on the same loop would gain nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._called_again: dict[int, bool] = {}
        self._hands: dict[int, tuple[Hands, asyncio.AbstractEventLoop]] = {}

    def enter(self, run_id: int) -> bool:
        """Tell whether the run is free here; if not, whoever works on it looks again at the end."""
        with self._lock:
            if run_id in self._called_again:
                self._called_again[run_id] = True
                return False
            self._called_again[run_id] = False
            return True

    def leave(self, run_id: int) -> bool:
        """Free the run unless it was called again meanwhile; True when it is free."""
        with self._lock:
            self._hands.pop(run_id, None)
            if self._called_again[run_id]:
                self._called_again[run_id] = False
                return False
            del self._called_again[run_id]
            return True

    def forget(self, run_id: int) -> None:
        """Free the run after a crash."""
        with self._lock:
            self._hands.pop(run_id, None)
            self._called_again.pop(run_id, None)

    def show(self, run_id: int, hands: Hands) -> None:
        """Let `drop_all` find these hands."""
        with self._lock:
            self._hands[run_id] = (hands, asyncio.get_running_loop())

    def drop_all(self) -> None:
        """Make all hands of this process let go of what they hold."""
        with self._lock:
            for hands, loop in self._hands.values():
                loop.call_soon_threadsafe(hands.drop)


_desks = _Desks()


def work_on_run(run_id: int) -> None:
    """Claim and carry out results of a run until none is left to claim; safe to call any number of times."""
    if not _desks.enter(run_id):
        return
    try:
        _work(run_id)
        while not _desks.leave(run_id):
            _work(run_id)
    except BaseException:
        _desks.forget(run_id)
        raise


def let_go() -> None:
    """Give back everything this process works on, because it is about to end."""
    _desks.drop_all()


def _work(run_id: int) -> None:
    run = Run.objects.filter(id=run_id).first()
    if run is None or not run.is_active:
        return
    begin_run(run_id, now=timezone.now())
    try:
        work = load_work(run)
    except (DomainError, ValueError, KeyError, TypeError) as error:
        logger.exception("Run %s cannot be carried out", run_id)
        end_run(run_id, RunStatus.FAILED, f"The run cannot be carried out: {error}")
        return
    with _shown_hand(run_id) as token:
        state = _work_off(work, token)
    _conclude(work, state)


def _work_off(work: RunWork, token: str) -> tuple[Hands, RunState | None]:
    database = DatabaseThread()

    async def work_off() -> tuple[Hands, RunState | None]:
        hands = Hands(work, token, database)
        _desks.show(work.run_id, hands)
        return hands, await hands.work_off()

    try:
        return asyncio.run(work_off())
    finally:
        database.close()


def _conclude(work: RunWork, ended: tuple[Hands, RunState | None]) -> None:
    """End the run where these hands brought its end, by budget, by a broken target or by the last result."""
    hands, state = ended
    if state is not None and state.broken_target:
        reason = f"The first executions all ended alike. {state.broken_target}"
        end_run(work.run_id, RunStatus.FAILED, reason)
    elif hands.budget.was_reached:
        end_run(work.run_id, RunStatus.BUDGET_REACHED, hands.budget.in_words())
    else:
        finish_run(work.run_id)


@contextmanager
def _shown_hand(run_id: int) -> Iterator[str]:
    """Show the pair of hands to everybody while it works, under a token of its own."""
    token, now = secrets.token_hex(16), timezone.now()
    Hand.objects.create(
        run_id=run_id, token=token, worker=process_name(), started_at=now, heartbeat_at=now
    )
    try:
        yield token
    finally:
        Hand.objects.filter(token=token).delete()
