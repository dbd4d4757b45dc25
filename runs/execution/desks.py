"""Which runs this process works on: a second pair of hands on the same loop would gain nothing."""

from __future__ import annotations

import asyncio
import threading

from runs.execution.hands import Hands


class Desks:
    """The runs of one process and the hands on them; every thread of it may ask."""

    def __init__(self) -> None:
        """Work on nothing yet."""
        self._is_closed = False
        self._lock = threading.Lock()
        self._called_again: dict[int, bool] = {}
        self._hands: dict[int, tuple[Hands, asyncio.AbstractEventLoop]] = {}

    def enter(self, run_id: int) -> bool:
        """Tell whether the run is free here; if not, whoever works on it looks again at the end.

        Nothing is, once the desks are closed.
        """
        with self._lock:
            if self._is_closed:
                return False
            if run_id in self._called_again:
                self._called_again[run_id] = True
                return False
            self._called_again[run_id] = False
            return True

    def leave(self, run_id: int) -> bool:
        """Free the run unless it was called again meanwhile; True when it is free."""
        with self._lock:
            self._hands.pop(run_id, None)
            if self._called_again[run_id] and not self._is_closed:
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
        """Let `close` find these hands."""
        with self._lock:
            self._hands[run_id] = (hands, asyncio.get_running_loop())

    def close(self) -> None:
        """Make all hands of this process let go of what they hold, and take nothing new."""
        with self._lock:
            self._is_closed = True
            for hands, loop in self._hands.values():
                loop.call_soon_threadsafe(hands.hurry)
