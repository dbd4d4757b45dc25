"""The runs that one process works on: a place for each, few enough of one member's, and how their loops are shut down.

`work_on_run` (`run_worker`) takes a slot for a run and shows the loop that works in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from django.conf import settings

from runs.execution.large_texts import MemberTexts

if TYPE_CHECKING:
    from runs.execution.run_worker import RunLoop

# Calls in flight are paid for. A process that is asked to stop waits this long for their replies; the rest of its time
# is for storing what has arrived.
LAST_REPLIES_S = settings.STOP_S - 6.0
# The same when somebody waits for the end of a command.
REPLIES_AT_TERMINAL_S = 8.0


@dataclass(eq=False, slots=True)
class RunSlot:
    """One thread that works on one run of a member; with `is_queued_again` it looks at the run once more."""

    run_id: int
    member: int | None = None
    is_queued_again: bool = False
    run_loop: RunLoop | None = None
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def only_awaits_late_replies(self) -> bool:
        """Tell whether the loop takes nothing new, so that another one may start."""
        return self.run_loop is not None and self.run_loop.is_aborted


class ActiveRuns:
    """The runs that one process works on, for all its threads."""

    def __init__(self) -> None:
        """Work on nothing yet."""
        self.places = settings.CELERY_WORKER_CONCURRENCY
        self._is_closed = False
        self._closed_runs: set[int] = set()
        # By member, the runs that wait for a place of theirs, in the order in which they came.
        self._deferred: dict[int, dict[int, None]] = {}
        self._lock = threading.Lock()
        self._slot_for_run: dict[int, RunSlot] = {}
        self._slots: set[RunSlot] = set()
        self._texts: defaultdict[int | None, MemberTexts] = defaultdict(MemberTexts)

    def texts_of(self, member: int | None) -> MemberTexts:
        """Return the large texts that all runs of a member share."""
        with self._lock:
            return self._texts[member]

    def is_deferred(self, run_id: int) -> bool:
        """Tell whether a run is kept until its member has a place."""
        with self._lock:
            return any(run_id in runs for runs in self._deferred.values())

    def next_deferred(self, member: int | None) -> int | None:
        """Return the run of a member that was deferred first, and no longer keep it."""
        with self._lock:
            runs = self._deferred.pop(member, {}) if member is not None else {}
            if not runs or member is None:
                return None
            first, *others = runs
            if others:
                self._deferred[member] = dict.fromkeys(others)
            return first

    def take(self, run_id: int, member: int | None = None) -> RunSlot | None:
        """Return a slot for the run; None when it has one, which then looks at the run once more.

        It is also None once the process shuts down or has released this run, and for a run that is kept for
        later, as its member has all places but one already.
        """
        with self._lock:
            if self._is_closed_for(run_id):
                return None
            current = self._slot_for_run.get(run_id)
            if current is not None and not current.only_awaits_late_replies:
                current.is_queued_again = True
                return None
            taken = sum(slot.member == member for slot in self._slots)
            if member is not None and taken >= max(1, self.places - 1):
                self._deferred.setdefault(member, {})[run_id] = None
                return None
            slot = RunSlot(run_id, member)
            self._slot_for_run[run_id] = slot
            self._slots.add(slot)
            return slot

    def give_back(self, slot: RunSlot) -> bool:
        """Give a slot back unless the run was queued again; return whether it was given back."""
        with self._lock:
            is_wanted = slot.is_queued_again and not self._is_closed_for(slot.run_id)
            if is_wanted and self._slot_for_run.get(slot.run_id) is slot:
                slot.is_queued_again, slot.run_loop = False, None
                return False
            self._free_slot(slot)
            return True

    def drop(self, slot: RunSlot) -> None:
        """Give a slot back after a crash."""
        with self._lock:
            self._free_slot(slot)

    def show(self, slot: RunSlot, run_loop: RunLoop) -> None:
        """Let `shut_down` find the loop at work in a slot."""
        with self._lock:
            slot.run_loop, slot.loop = run_loop, asyncio.get_running_loop()
            if self._is_closed_for(slot.run_id):
                run_loop.shut_down(late_replies_s=REPLIES_AT_TERMINAL_S)

    def tokens(self) -> list[str]:
        """Return the token of every loop at work."""
        with self._lock:
            return [slot.run_loop.token for slot in self._slots if slot.run_loop is not None]

    def shut_down(self) -> None:
        """Make every loop of this process release everything and take nothing new."""
        with self._lock:
            self._is_closed = True
            for slot in self._slots:
                _shut_down(slot, late_replies_s=LAST_REPLIES_S)

    def shut_down_run(self, run_id: int) -> None:
        """Make the loop of this run release everything and take nothing new; other runs continue."""
        with self._lock:
            self._closed_runs.add(run_id)
            for slot in self._slots:
                if slot.run_id == run_id:
                    _shut_down(slot, late_replies_s=REPLIES_AT_TERMINAL_S)

    def _is_closed_for(self, run_id: int) -> bool:
        return self._is_closed or run_id in self._closed_runs

    def _free_slot(self, slot: RunSlot) -> None:
        slot.run_loop = slot.loop = None
        self._slots.discard(slot)
        if self._slot_for_run.get(slot.run_id) is slot:
            del self._slot_for_run[slot.run_id]


def _shut_down(slot: RunSlot, *, late_replies_s: float) -> None:
    if slot.run_loop is not None and slot.loop is not None:
        shut_down = partial(slot.run_loop.shut_down, late_replies_s=late_replies_s)
        # A loop that has just ended holds nothing.
        with contextlib.suppress(RuntimeError):
            slot.loop.call_soon_threadsafe(shut_down)
