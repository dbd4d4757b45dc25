from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from runs.cli import watching
from runs.execution import run_worker
from runs.execution.run_worker import ActiveRuns
from tests.cli.worked import Walk


@pytest.fixture(autouse=True)
def a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command end as if its process did: one that has let go takes on no run after that."""
    monkeypatch.setattr(run_worker, "_active_runs", ActiveRuns())


@pytest.fixture
def walk(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    viewer_client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Walk]:
    """Give the worked cases of the rule the test is parametrised with, and see that none is left out."""
    monkeypatch.setattr(watching, "LOOK_AGAIN_S", 0.01)
    found = Walk(request.param, tmp_path, viewer_client)
    yield found
    found.check_that_none_was_left_out()
