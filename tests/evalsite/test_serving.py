"""What commands beside a served site know of it, and that they believe nothing of one that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalsite.data_folder import FILE, adopt_served_settings, read_served_settings
from tests.services.processes import ROOT

SERVE = """
import os, sys
from pathlib import Path
from evalsite.data_folder import write_served_settings
write_served_settings(Path(sys.argv[1]), os.environ)
# As a site does, which turns into the server.
os.execv(sys.executable, [sys.executable, "-c", "print('served', flush=True); input()"])
"""
ADDRESS = "http://127.0.0.1:8123"
SITE = {
    "EVALSITE_URL": ADDRESS,
    "PORT": "8123",
    "EVALSITE_SCRIPTS": "1",
    "EVALSITE_AGENTS_DIR": "/srv/agents",
}


def serve(folder: Path, **variables: str) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], "EVALSITE_SECRET_KEY": "secret", **variables}
    site = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder)],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert site.stdout is not None
    assert site.stdout.readline() == "served\n"
    return site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with serve(tmp_path, **SITE) as running:
        yield running
        running.kill()


def test_a_command_adopts_the_settings_of_the_served_site(site, tmp_path):
    environment = {"EVALSITE_DATA_DIR": str(tmp_path)}
    adopt_served_settings(environment)
    assert environment == {"EVALSITE_DATA_DIR": str(tmp_path), **SITE}
    assert "secret" not in (tmp_path / FILE).read_text()


def test_variables_of_the_command_override_those_of_the_site(site, tmp_path):
    command_variables = {
        "EVALSITE_DATA_DIR": str(tmp_path),
        "PORT": "9000",
        "EVALSITE_SCRIPTS": "0",
    }
    environment = dict(command_variables)
    adopt_served_settings(environment)
    assert environment == {**command_variables, "EVALSITE_AGENTS_DIR": "/srv/agents"}


def test_the_settings_of_a_killed_site_are_ignored(site, tmp_path):
    site.kill()
    site.wait()
    assert (tmp_path / FILE).exists()
    assert read_served_settings(tmp_path) == {}


def test_a_second_site_does_not_replace_the_record_of_the_first(site, tmp_path):
    with serve(tmp_path, EVALSITE_URL="http://127.0.0.1:9999") as second:
        second.kill()
    assert read_served_settings(tmp_path)["EVALSITE_URL"] == ADDRESS


def test_a_missing_data_folder_does_not_prevent_serving(tmp_path):
    with serve(tmp_path / "nowhere", **SITE) as running:
        running.kill()
    assert read_served_settings(tmp_path / "nowhere") == {}


def test_without_a_served_site_nothing_changes(tmp_path):
    environment = {"EVALSITE_DATA_DIR": str(tmp_path / "nowhere")}
    adopt_served_settings(environment)
    assert environment == {"EVALSITE_DATA_DIR": str(tmp_path / "nowhere")}
