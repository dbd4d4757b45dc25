"""Watch a run that this process carries out, until it is over or somebody wants it stopped."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from django.db import DatabaseError, InterfaceError, connection

from runs.execution.database import is_away
from runs.execution.finishing import summarise_ended
from runs.management.concluding import NOT_EVALUATED
from runs.management.own_hands import OwnHands
from runs.management.telling import Progress
from runs.models import Run
from runs.models.runs import HEAVY_RUN_COLUMNS

LOOK_EVERY_S = 0.25
STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
STOPPED = "Stopped at the command line."
AWAY = "The database does not answer. Waiting until it does."
AWAY_WHILE_STOPPING = (
    "The run stops as soon as the database answers. Ctrl-C again waits for nothing; the run is then "
    "ended by the next worker, or the next command, that sees it."
)


def carry_out(
    run: Run, progress: Progress, stop: threading.Event, *, waiting: Sequence[int] = ()
) -> str:
    """Carry the run out to its end, telling how it goes; returns what kept the hands from it, if anything.

    `stop` ends the run early and keeps what is done. `waiting` are runs of this process whose turn
    comes after.
    """
    with OwnHands(run, waiting=waiting) as hands:
        watch = Watch(run, hands, progress)
        while not hands.wait(LOOK_EVERY_S):
            watch.look(stop_wanted=stop.is_set())
        watch.look(stop_wanted=stop.is_set())
    progress.close()
    if not hands.problem:
        summarise_ended(run.pk)
    return hands.problem


class Watch:
    """Looks at the run again and again, and lets the hands go when it has ended without them."""

    def __init__(self, run: Run, hands: OwnHands, progress: Progress) -> None:
        """See the run as it was started."""
        self._run = run
        self._hands = hands
        self._progress = progress
        self._is_released = False
        self._said_last = ""

    def look(self, *, stop_wanted: bool) -> None:
        """Stop the run if that is wanted, tell how far it is, and notice when it is over."""
        try:
            if stop_wanted and not self._is_released:
                self._hands.stop(STOPPED)
            light = Run.objects.defer(*HEAVY_RUN_COLUMNS).get(pk=self._run.pk)
            self._progress.show(light)
        except (DatabaseError, InterfaceError) as error:
            if not is_away(error):
                raise
            self._say_once_that_it_is_away(stop_wanted=stop_wanted)
            return
        self._said_last = ""
        if not self._is_released and not self._is_mine(light):
            self._release(light, stop_wanted=stop_wanted)

    def _is_mine(self, run: Run) -> bool:
        return run.is_active and run.owner_id == self._run.owner_id

    def _release(self, run: Run, *, stop_wanted: bool) -> None:
        self._is_released = True
        if self._hands.wait(0):
            return
        self._hands.release(for_good=stop_wanted)
        if run.is_active:
            self._progress.say("The workers go on with this run.")
        elif stop_wanted:
            self._progress.say("Stopping: calls that are paid for have a few seconds to answer.")

    def _say_once_that_it_is_away(self, *, stop_wanted: bool) -> None:
        connection.close()
        sentence = AWAY_WHILE_STOPPING if stop_wanted else AWAY
        if sentence != self._said_last:
            self._progress.say(sentence)
        self._said_last = sentence


@contextmanager
def stop_wanted() -> Iterator[threading.Event]:
    """Give an event that is set by Ctrl-C, SIGTERM and the end of the terminal.

    The second of them ends the process at once.
    """
    wanted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if wanted.is_set():
            # Whoever asks twice does not want to wait; a sweep ends the run.
            os._exit(NOT_EVALUATED)
        wanted.set()

    earlier = {}
    for name in STOP_SIGNALS:
        number = getattr(signal, name, None)
        # What was to be ignored from the start, as nohup wants it, stays so.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            earlier[number] = signal.signal(number, note)
    try:
        yield wanted
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
