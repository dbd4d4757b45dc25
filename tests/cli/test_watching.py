from __future__ import annotations

import io
from typing import cast

import pytest
from django.db import OperationalError, connection

from runs.cli.printing import ProgressLine
from runs.cli.watching import AWAY, AWAY_WHILE_STOPPING, LocalWorker, Watch
from runs.models.runs import Run
from tests.support.factories import make_run

pytestmark = pytest.mark.django_db(transaction=True)


class FakeRunWorkers:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.releases = 0

    def wait(self, seconds: float) -> bool:
        return False

    def stop(self, reason: str) -> None:
        Run.objects.filter(pk=self.run.pk).update(status="stopped", status_reason=reason)

    def release(self, *, for_good: bool = True) -> None:
        self.releases += 1


class Watching:
    """A watch over a run of a command line, and what it says."""

    def __init__(self) -> None:
        own = {"owner": "command_line", "owner_id": "here"}
        self.run = make_run(status="running", execution_count=4, **own)
        self.run_workers = FakeRunWorkers(self.run)
        self.stream = io.StringIO()
        # It ends when told, as a local worker does, and carries nothing out.
        run_workers = cast("LocalWorker", self.run_workers)
        self.watch = Watch(self.run, run_workers, ProgressLine(self.stream, clock=lambda: 0.0))

    @property
    def said(self) -> list[str]:
        lines = self.stream.getvalue().splitlines()
        return [line for line in lines if not line.startswith("0 of 4")]


@pytest.fixture
def watching() -> Watching:
    return Watching()


def refuse(*call: object) -> None:
    raise OperationalError("for a test")


def test_a_database_that_is_away_is_said_once_and_waited_for(watching: Watching) -> None:
    with connection.execute_wrapper(refuse):
        watching.watch.look(stop_wanted=False)
        watching.watch.look(stop_wanted=False)
        watching.watch.look(stop_wanted=True)
        watching.watch.look(stop_wanted=True)
    assert watching.said == [AWAY, AWAY_WHILE_STOPPING]
    assert watching.run_workers.releases == 0

    watching.watch.look(stop_wanted=True)
    assert watching.run_workers.releases == 1
    assert Run.objects.get().status == "stopped"
    assert watching.said[2:] == ["Stopping: calls that are paid for have a few seconds to answer."]


def test_a_run_that_was_resumed_elsewhere_is_let_go(watching: Watching) -> None:
    Run.objects.update(owner="workers", owner_id="")
    watching.watch.look(stop_wanted=False)
    watching.watch.look(stop_wanted=False)
    assert watching.said == ["The workers go on with this run."]
    assert watching.run_workers.releases == 1
