from __future__ import annotations

import pytest

from runs.execution import running
from runs.execution.desks import Desks


@pytest.fixture(autouse=True)
def a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command end as if its process did: one that has let go takes on no run after that."""
    monkeypatch.setattr(running, "_desks", Desks())
