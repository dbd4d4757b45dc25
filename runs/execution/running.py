"""One `work_on_run`: hands for a run where it needs some, and the run's end where they bring it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from evaluators.scoring.types import DomainError
from runs.execution.claiming import begin_run, show_hand
from runs.execution.database import DatabaseThread, Patience, is_away
from runs.execution.desks import Desks, Place
from runs.execution.finishing import end_run, finish_run, is_budget_spent, summarise_ended
from runs.execution.hands import Hands
from runs.execution.loading import RunWork, load_work
from runs.execution.mishaps import first_of, note_crash, note_error
from runs.execution.recording import RunState
from runs.execution.sandboxes import sandbox_in_force
from runs.execution.settling import settle
from runs.models import ALL_ALIKE, Hand, Run, RunStatus
from runs.models.clock import database_now

logger = logging.getLogger(__name__)

# Before and after the work nothing is lost by giving up: the next sweep finds what is left to do.
WAIT_S = 30.0

Value = TypeVar("Value")

_desks = Desks()


def work_on_run(run_id: int, *, owner_id: str = "") -> bool:
    """Claim and carry out results of a run until none is left to claim; safe to call any number of times.

    The workers' hands (`owner_id` "") leave a run alone that a command line owns, and the other way.
    False when this process was at it already.
    """
    place = _desks.enter(run_id)
    if place is None:
        return False
    settle()
    try:
        _work(place, owner_id)
        while not _desks.leave(place):
            _work(place, owner_id)
    except BaseException:
        _desks.forget(place)
        raise
    return True


def let_go() -> None:
    """Give back everything this process works on, because it is about to end."""
    _desks.close()


def let_go_of(run_id: int) -> None:
    """Give back what this process holds of one run, and take on nothing more of it."""
    _desks.close_for(run_id)


def _work(place: Place, owner_id: str = "") -> None:
    try:
        _carry_out(place, owner_id)
    except Exception as error:
        _after_crash(place.run_id, error)
        raise


def _carry_out(place: Place, owner_id: str) -> None:
    run_id = place.run_id
    run = patiently(Run.objects.filter(id=run_id, owner_id=owner_id).first)
    if run is None or not run.is_active:
        return
    patiently(lambda: begin_run(run_id, now=database_now()))
    patiently(lambda: run.refresh_from_db(fields=["started_at"]))
    try:
        work = patiently(lambda: load_work(run))
    except (DomainError, ValueError, KeyError, TypeError) as error:
        logger.exception("Run %s cannot be carried out", run_id)
        end_run(run_id, RunStatus.FAILED, f"The run cannot be carried out: {error}")
        return
    with _shown_hand(run_id) as token:
        ended = _work_off(work, token, place)
    patiently(lambda: _conclude(work, *ended))


def patiently(function: Callable[[], Value]) -> Value:
    """Return what the function returns, although this thread's connection may have died in its sleep.

    Raises the database's own error when it stays away for half a minute.
    """
    return Patience(patience_s=WAIT_S).call(lambda is_repeated: function())


def _work_off(work: RunWork, token: str, place: Place) -> tuple[Hands, RunState | None]:
    database = DatabaseThread()

    async def work_off() -> tuple[Hands, RunState | None]:
        hands = Hands(work, token, database, sandbox=sandbox_in_force())
        _desks.show(place, hands)
        return hands, await hands.work_off()

    try:
        return asyncio.run(work_off())
    finally:
        database.close()


def _after_crash(run_id: int, error: Exception) -> None:
    """Note why hands broke off; a run on which they do so again and again is failed by it."""
    reason = note_error(error)
    if not is_away(first_of(error)) and note_crash(run_id, reason):
        end_run(run_id, RunStatus.FAILED, f"The run cannot be carried out: {reason}")


def _conclude(work: RunWork, hands: Hands, state: RunState | None) -> None:
    """End the run where these hands brought its end, by budget, by a broken target or by the last result."""
    if hands.were_dropped:
        # The run ended without them and may be on again: what they saw of it tells nothing now.
        summarise_ended(work.run_id)
        finish_run(work.run_id)
    elif state is not None and state.broken_target:
        reason = f"{ALL_ALIKE} {state.broken_target}"
        end_run(work.run_id, RunStatus.FAILED, reason)
    elif hands.budget.was_reached and is_budget_spent(work.run_id, replays=work.target.replays):
        end_run(work.run_id, RunStatus.BUDGET_REACHED, hands.budget.in_words())
    else:
        finish_run(work.run_id)


@contextmanager
def _shown_hand(run_id: int) -> Iterator[str]:
    """Show the pair of hands to everybody while it works, under a token of its own."""
    token = secrets.token_hex(16)
    patiently(lambda: show_hand(run_id, token, under_way=0, now=database_now()))
    try:
        yield token
    finally:
        patiently(Hand.objects.filter(token=token).delete)
