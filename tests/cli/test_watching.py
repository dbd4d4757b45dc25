"""How a command watches a run: outages, waits, takeovers and the end."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from typing import Any, cast

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from runs.cli.terminal import ProgressLine
from runs.cli.watching import OUTAGE, OUTAGE_WHILE_STOPPING, LocalWorker, Watch, waiting_text
from runs.models.database import database_now
from runs.models.results import ModelCall
from runs.models.runs import Run
from tests.support.factories import (
    make_call,
    make_case,
    make_model,
    make_result,
    make_run,
    throttle_state,
)

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
        self.now_s = 0.0
        progress = ProgressLine(self.stream, clock=lambda: 0.0)
        self.watch = Watch(self.run, run_workers, progress, clock=lambda: self.now_s)

    @property
    def output(self) -> list[str]:
        lines = self.stream.getvalue().splitlines()
        return [line for line in lines if not re.match(r"\d of \d", line)]


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


def test_a_run_that_stands_still_says_why_and_since_when_and_ever_more_rarely(
    watching: Watching,
) -> None:
    model = make_model(slug="juno-2", name="Juno 2")
    case = make_case(suite=watching.run.suite)
    result = make_result(run=watching.run, case=case, status="running")
    begun = database_now().replace(microsecond=0)
    model.throttle_state = throttle_state(paused_until=begun + timedelta(hours=1))
    model.save()
    for second, status, code in (
        (0, "ok", 200),
        (1, "rate_limited", 429),
        (2, "rate_limited", 429),
    ):
        at = begun + timedelta(seconds=second)
        make_call(
            result=result,
            model=model,
            model_name="Juno 2",
            status=status,
            http_status=code,
            created_at=at,
        )
    for watching.now_s in range(0, 130, 5):
        watching.watch.look(stop_wanted=False)
    sentences = [text.split(" Juno 2 is asked")[0] for text in watching.output]
    since = f"{timezone.localtime(begun + timedelta(seconds=1)):%H:%M:%S}"
    why = f"Juno 2: 2 calls rate limited (HTTP 429) since {since}."
    waited = ("15.0 s", "30.0 s", "1 min 00 s", "2 min 00 s")
    assert sentences == [f"No result for {long}. {why}" for long in waited]
    assert all("Juno 2 is asked again in " in sentence for sentence in watching.output)

    # It begins again after the next result.
    Run.objects.update(done_count=1)
    watching.watch.look(stop_wanted=False)
    ModelCall.objects.all().delete()
    watching.now_s += 15
    watching.watch.look(stop_wanted=False)
    lines = [line for line in watching.output if line.startswith("No result")]
    assert lines[4:] == ["No result for 15.0 s. No call has failed since the last answer."]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"silent_since": True}, "Juno 2 does not answer; it is retried with one call at a time."),
        ({"slow_since": True, "rate": 9.25}, "Juno 2 is slowed to 9.25 calls a second."),
        ({}, "(HTTP 503) since"),
    ],
)
def test_what_holds_a_model_back_is_told(
    watching: Watching, facts: dict[str, Any], message: str
) -> None:
    now = database_now()
    times = {name: now if value is True else value for name, value in facts.items()}
    model = make_model(name="Juno 2", throttle_state=throttle_state(**times))
    case = make_case(suite=watching.run.suite)
    result = make_result(run=watching.run, case=case, status="running")
    make_call(
        result=result, model=model, model_name="Juno 2", status="server_error", http_status=503
    )

    assert message in waiting_text(watching.run, 15.0, now=now)


def test_a_run_ends_when_its_longest_time_is_over(watching: Watching) -> None:
    begun = database_now() - timedelta(minutes=29)
    Run.objects.update(started_at=begun, max_minutes=30)
    watching.watch.look(stop_wanted=False)
    assert Run.objects.get().is_active
    Run.objects.update(started_at=begun - timedelta(minutes=1))
    watching.watch.look(stop_wanted=False)
    watching.watch.look(stop_wanted=False)
    run = Run.objects.get()
    assert (run.status, run.status_reason) == (
        "stopped",
        "It reached its longest time, 30 minutes. Resume it to continue.",
    )
    assert watching.run_workers.releases == 1
