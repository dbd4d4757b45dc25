from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import Settings

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_static_files_are_collected_when_one_changes(settings: Settings, tmp_path: Path) -> None:
    source, settings.STATIC_ROOT = tmp_path / "static", tmp_path / "notes" / "served"
    settings.STATIC_MANIFEST = tmp_path / "notes" / "manifest.json"
    source.mkdir()
    (source / "a.css").write_text("a")
    settings.STATICFILES_DIRS = [source]

    call_command("prepare")
    collected = settings.STATIC_ROOT / "a.css"
    assert collected.read_text() == "a"
    # Notes about the files are not served.
    assert [path for path in settings.STATIC_ROOT.iterdir() if path.is_file()] == [collected]

    collected.unlink()
    call_command("prepare")
    assert not collected.exists()

    (source / "a.css").write_text("b")
    call_command("prepare")
    assert collected.read_text() == "b"
