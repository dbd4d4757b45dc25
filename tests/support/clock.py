"""A clock that only the test moves, so that no outcome depends on how long lines take."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from runs.models.database import database_now

OURS = ("evalsite.", "evaluators.", "runs.", "tests.")


class Clock:
    """The stopped time of this machine and of the database."""

    def __init__(self, now: datetime) -> None:
        """Stop at a time."""
        self.now = now

    def __call__(self) -> datetime:
        """Return the time as `timezone.now` and `database_now` do."""
        return self.now

    def advance(self, **duration: float) -> None:
        """Move on, by `seconds=`, `minutes=` and so on."""
        self.now += timedelta(**duration)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stop the clock for everything that calls `timezone.now` or `database_now`."""
    stopped = Clock(timezone.now())
    monkeypatch.setattr(timezone, "now", stopped)
    # The loop replaces it in this module too, so keep the original.
    replaced = database_now
    for name, module in [*sys.modules.items()]:
        if name.startswith(OURS) and vars(module).get("database_now") is replaced:
            monkeypatch.setattr(module, "database_now", stopped)
    return stopped
