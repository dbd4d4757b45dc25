"""Which runs this process works on: a second pair of hands on the same loop would gain nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass

from runs.execution.hands import Hands


@dataclass(eq=False, slots=True)
class Place:
    """Where one thread works on one run; `is_called_again` tells that it should look once more."""

    run_id: int
    is_called_again: bool = False
    hands: Hands | None = None
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def only_awaits_late_replies(self) -> bool:
        """Tell whether the hands here take nothing more, so that others may begin."""
        return self.hands is not None and self.hands.were_dropped


class Desks:
    """The places of one process; every thread of it may ask."""

    def __init__(self) -> None:
        """Work on nothing yet."""
        self._is_closed = False
        self._closed_for: set[int] = set()
        self._lock = threading.Lock()
        self._of_run: dict[int, Place] = {}
        self._taken: set[Place] = set()

    def enter(self, run_id: int) -> Place | None:
        """Return a place for the run; None when it has one, where it is looked at again at the end.

        None too once the desks are closed, or closed for this run.
        """
        with self._lock:
            if self._takes_no_more_of(run_id):
                return None
            there = self._of_run.get(run_id)
            if there is not None and not there.only_awaits_late_replies:
                there.is_called_again = True
                return None
            place = Place(run_id)
            self._of_run[run_id] = place
            self._taken.add(place)
            return place

    def leave(self, place: Place) -> bool:
        """Give a place back unless the run was called again meanwhile; True when it is given back."""
        with self._lock:
            is_wanted = place.is_called_again and not self._takes_no_more_of(place.run_id)
            if is_wanted and self._of_run.get(place.run_id) is place:
                place.is_called_again, place.hands = False, None
                return False
            self._give_back(place)
            return True

    def forget(self, place: Place) -> None:
        """Give a place back after a crash."""
        with self._lock:
            self._give_back(place)

    def show(self, place: Place, hands: Hands) -> None:
        """Let `close` find these hands."""
        with self._lock:
            place.hands, place.loop = hands, asyncio.get_running_loop()
            if self._takes_no_more_of(place.run_id):
                hands.hurry()

    def close(self) -> None:
        """Make all hands of this process let go of what they hold, and take nothing new."""
        with self._lock:
            self._is_closed = True
            for place in self._taken:
                _hurry(place)

    def close_for(self, run_id: int) -> None:
        """Make the hands on this run let go of what they hold, and take nothing more of it; other runs go on."""
        with self._lock:
            self._closed_for.add(run_id)
            for place in self._taken:
                if place.run_id == run_id:
                    _hurry(place)

    def _takes_no_more_of(self, run_id: int) -> bool:
        return self._is_closed or run_id in self._closed_for

    def _give_back(self, place: Place) -> None:
        place.hands = place.loop = None
        self._taken.discard(place)
        if self._of_run.get(place.run_id) is place:
            del self._of_run[place.run_id]


def _hurry(place: Place) -> None:
    if place.hands is not None and place.loop is not None:
        # A loop that has ended meanwhile holds nothing any more.
        with contextlib.suppress(RuntimeError):
            place.loop.call_soon_threadsafe(place.hands.hurry)
