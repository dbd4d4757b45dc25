"""What a worker registers about itself, and what it removes when it starts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from evalsite.heartbeat import Heartbeat
from evaluators.sandbox.probe import find_sandbox
from evaluators.sandbox.processes import own_process_key
from runs.models.runs import WorkerProcess

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
