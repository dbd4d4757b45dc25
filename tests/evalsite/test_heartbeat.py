"""What a worker registers about itself, and what it removes when it starts."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from evalsite.heartbeat import Heartbeat
from evaluators.sandbox.probe import find_sandbox
from evaluators.sandbox.processes import own_process_key
from runs.models.database import database_now
from runs.models.runs import WorkerProcess
from tests.support.factories import make_case, make_result, make_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("switch", "before"), [(True, ""), (False, "scripts off; ")])
def test_a_worker_registers_its_version_and_sandbox(
    settings: Any, switch: bool, before: str
) -> None:
    settings.SCRIPTS = switch
    Heartbeat().send()
    shown = WorkerProcess.objects.get()
    assert shown.sandbox == f"{before}{find_sandbox().in_words}"[:100]
    assert shown.version


def test_a_worker_removes_leftovers_of_a_killed_worker() -> None:
    place, pid, start = own_process_key()
    left = Path(tempfile.gettempdir(), f"evalsite-script-{place}-{pid}-{start}0-left")
    (left / "start").mkdir(parents=True)
    Heartbeat().send()
    assert not left.exists()
    assert WorkerProcess.objects.exists()


def test_a_worker_continues_if_leftovers_cannot_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    Heartbeat().send()
    assert WorkerProcess.objects.exists()


@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(days=2)])
def test_after_a_sleep_of_the_machine_or_a_jump_of_its_clock_others_can_say_first_that_they_live(
    monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    now = database_now()
    monkeypatch.setattr("evalsite.heartbeat.database_now", lambda: now)
    alive = {"owner": "command_line", "owner_id": "elsewhere/x/1/1", "heartbeat_at": now}
    run = make_run(status="running", **alive)
    make_result(run=run, case=make_case(suite=run.suite), status="pending")
    heartbeat = Heartbeat()
    heartbeat.send()
    now += jump
    heartbeat.send()
    run.refresh_from_db()
    assert run.status == "running"

    now += timedelta(seconds=10)
    heartbeat.send()
    run.refresh_from_db()
    assert (run.status, run.status_reason) == (
        "stopped", "The command line that executed this run has ended.",
    )  # fmt: skip
