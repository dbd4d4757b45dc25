"""When static files are collected, and what is served without them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from django.core.management import call_command
from django.template.loader import render_to_string
from django.test import Client
from pytest_django import Settings

from evalsite import gunicorn

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
    # Without the manifest, they were not collected as they are served.
    call_command("prepare")
    assert collected.exists()
    settings.STATIC_MANIFEST.write_text("{}")
    collected.unlink()
    call_command("prepare")
    assert not collected.exists()

    (source / "a.css").write_text("b")
    call_command("prepare")
    assert collected.read_text() == "b"


def test_pages_and_the_error_page_need_no_static_file(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    settings.STATIC_ROOT = tmp_path / "served"
    settings.STATIC_MANIFEST = tmp_path / "manifest.json"
    settings.STATIC_MANIFEST.write_text('{"version": "1.1", "paths": {}, "hash": ""}')
    backend = {"BACKEND": "evalsite.static_files.SiteStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": backend}
    page = client.get("/login/")
    assert page.status_code == 200
    assert 'href="/static/css/app.css"' in page.text
    assert "went wrong on our side" in render_to_string("500.html")

    settings.IS_COLLECTED = True
    server = Mock()
    gunicorn.on_starting(server)
    assert "Run `evalsite prepare`" in server.log.warning.call_args.args[0]
