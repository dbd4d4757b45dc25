from __future__ import annotations

import io
from typing import cast

import pytest
from django.db import OperationalError, connection

from runs.cli.printing import ProgressLine
from runs.cli.watching import OUTAGE, OUTAGE_WHILE_STOPPING, LocalWorker, Watch
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
    """A watch over a run of a command line, and its output."""

    def __init__(self) -> None:
        own = {"owner": "command_line", "owner_id": "here"}
        self.run = make_run(status="running", execution_count=4, **own)
        self.run_workers = FakeRunWorkers(self.run)
        self.stream = io.StringIO()
        # It ends when asked, like a local worker, and executes nothing.
        run_workers = cast("LocalWorker", self.run_workers)
        self.watch = Watch(self.run, run_workers, ProgressLine(self.stream, clock=lambda: 0.0))

    @property
    def output(self) -> list[str]:
        lines = self.stream.getvalue().splitlines()
        return [line for line in lines if not line.startswith("0 of 4")]


@pytest.fixture
def watching() -> Watching:
    return Watching()


def refuse(*call: object) -> None:
    raise OperationalError("for a test")


def test_an_outage_of_the_database_is_reported_once(watching: Watching) -> None:
    with connection.execute_wrapper(refuse):
        watching.watch.look(stop_wanted=False)
        watching.watch.look(stop_wanted=False)
        watching.watch.look(stop_wanted=True)
        watching.watch.look(stop_wanted=True)
    assert watching.output == [OUTAGE, OUTAGE_WHILE_STOPPING]
    assert watching.run_workers.releases == 0

    watching.watch.look(stop_wanted=True)
    assert watching.run_workers.releases == 1
    assert Run.objects.get().status == "stopped"
    assert watching.output[2:] == ["Stopping: calls in flight have a few seconds to answer."]


def test_a_run_that_was_resumed_elsewhere_is_released(watching: Watching) -> None:
    Run.objects.update(owner="workers", owner_id="")
    watching.watch.look(stop_wanted=False)
    watching.watch.look(stop_wanted=False)
    assert watching.output == ["The workers continue this run."]
    assert watching.run_workers.releases == 1
