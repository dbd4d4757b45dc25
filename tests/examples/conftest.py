"""The demo's scripted server, started afresh: its agents begin with their first attempts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.scripted_server import ScriptedServer, started


@pytest.fixture
def scripted_server(tmp_path: Path) -> Iterator[ScriptedServer]:
    with started(tmp_path) as server:
        yield server
