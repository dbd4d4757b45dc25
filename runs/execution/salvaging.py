"""When a batch cannot be written for what one result holds: write the others, and say so of the one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from evaluators.judging.calls import CallRecord
from runs.engine import ExecutionOutcome
from runs.execution.database import is_away
from runs.execution.ended_rows import Ended
from runs.execution.ledger import Entry
from runs.execution.loading import RunWork
from runs.execution.recording import RunState
from runs.plan import Cause, TargetFailure

logger = logging.getLogger(__name__)

LONGEST_REASON = 300


class WriteDown(Protocol):
    """Writes calls and results in one transaction (`recording.write_down`)."""

    def __call__(
        self,
        work: RunWork,
        token: str,
        *,
        entries: Sequence[Entry],
        ended: Sequence[Ended],
        is_repeated: bool,
    ) -> RunState:
        """Return how far the run is; nothing is written when it raises."""
        ...


def salvage(
    write_down: WriteDown,
    work: RunWork,
    token: str,
    *,
    entries: Sequence[Entry],
    ended: Sequence[Ended],
    is_repeated: bool,
) -> RunState:
    """Write all at once, or else result by result; one that cannot be written ends as an error.

    Its calls are paid all the same: they are written without what they said. A database that is
    away is not the fault of any result; that error is raised.
    """
    try:
        return write_down(work, token, entries=entries, ended=ended, is_repeated=is_repeated)
    except Exception as error:
        if is_away(error):
            raise
        logger.exception(
            "Run %s: a batch cannot be written, its results are one by one", work.run_id
        )
    states = [
        _write_one(write_down, work, token, *part, is_repeated=is_repeated)
        for part in _by_result(entries, ended)
    ]
    stale = tuple(result_id for state in states for result_id in state.stale)
    return replace(states[-1], stale=stale)


def _by_result(
    entries: Sequence[Entry], ended: Sequence[Ended]
) -> list[tuple[list[Entry], list[Ended]]]:
    """Return calls and ends parted by result."""
    parts: dict[int, tuple[list[Entry], list[Ended]]] = {}
    for entry in entries:
        parts.setdefault(entry.result_id, ([], []))[0].append(entry)
    for one in ended:
        parts.setdefault(one.claim.result_id, ([], []))[1].append(one)
    return list(parts.values())


def _write_one(
    write_down: WriteDown,
    work: RunWork,
    token: str,
    entries: list[Entry],
    ended: list[Ended],
    *,
    is_repeated: bool,
) -> RunState:
    try:
        return write_down(work, token, entries=entries, ended=ended, is_repeated=is_repeated)
    except Exception as error:
        if is_away(error):
            raise
        logger.exception("Run %s: a result cannot be written", work.run_id)
        bare = [replace(entry, record=_without_content(entry.record)) for entry in entries]
        errors = [_as_error(one, error) for one in ended]
    return write_down(work, token, entries=bare, ended=errors, is_repeated=is_repeated)


def _without_content(record: CallRecord) -> CallRecord:
    return replace(record, request={}, reply=None, error="Its content could not be stored")


def _as_error(ended: Ended, error: Exception) -> Ended:
    """Return the end as an error that says why nothing better is known."""
    said = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
    reason = said.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return replace(ended, outcome=ExecutionOutcome(failure=TargetFailure(reason, Cause.UNSTORABLE)))
