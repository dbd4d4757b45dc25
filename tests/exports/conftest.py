"""What tests of exports share: a folder of their own, and files that count as large."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def exports_dir(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a folder of its own, and let every file be a large one."""
    settings.EXPORTS_DIR = tmp_path / "exports"
    monkeypatch.setattr("runs.exports.specs.MAX_BYTES_AT_ONCE", -1)
    return settings.EXPORTS_DIR
