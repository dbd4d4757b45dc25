"""What tests of commands share: each command acts as a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from runs.execution import run_worker
from runs.execution.active_runs import ActiveRuns
from tests.cli.worked import Walk


@pytest.fixture(autouse=True)
def separate_process(monkeypatch: pytest.MonkeyPatch, quick_watching: None) -> None:
    """Let each command act as a process of its own: one that released a run takes no other."""
    monkeypatch.setattr(run_worker, "_active_runs", ActiveRuns())


@pytest.fixture
def walk(request: pytest.FixtureRequest, tmp_path: Path, viewer_client: Client) -> Iterator[Walk]:
    """Give the worked cases of the rule the test is parametrised with, and see that none is left out."""
    walk_through = Walk(request.param, tmp_path, viewer_client)
    yield walk_through
    walk_through.assert_every_vector_is_used()
