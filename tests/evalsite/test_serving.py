"""What commands beside a served site know of it, and that they believe nothing of one that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalsite.data_folder import FILE, follow_served, served
from tests.services.processes import ROOT

SERVE = """
import os, sys
from pathlib import Path
from evalsite.data_folder import keep_served
keep_served(Path(sys.argv[1]), os.environ)
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


def test_a_command_follows_the_site_of_its_data_folder(site, tmp_path):
    environment = {"EVALSITE_DATA_DIR": str(tmp_path)}
    follow_served(environment)
    assert environment == {"EVALSITE_DATA_DIR": str(tmp_path), **SITE}
    assert "secret" not in (tmp_path / FILE).read_text()


def test_what_a_command_is_told_itself_goes_before(site, tmp_path):
    told = {"EVALSITE_DATA_DIR": str(tmp_path), "PORT": "9000", "EVALSITE_SCRIPTS": "0"}
    environment = dict(told)
    follow_served(environment)
    assert environment == {**told, "EVALSITE_AGENTS_DIR": "/srv/agents"}


def test_a_site_that_was_killed_is_believed_no_longer(site, tmp_path):
    site.kill()
    site.wait()
    assert (tmp_path / FILE).exists()
    assert served(tmp_path) == {}


def test_a_second_site_on_the_folder_leaves_the_first_one_told(site, tmp_path):
    with serve(tmp_path, EVALSITE_URL="http://127.0.0.1:9999") as second:
        second.kill()
    assert served(tmp_path)["EVALSITE_URL"] == ADDRESS


def test_a_folder_that_is_not_there_keeps_no_site_from_being_served(tmp_path):
    with serve(tmp_path / "nowhere", **SITE) as running:
        running.kill()
    assert served(tmp_path / "nowhere") == {}


def test_where_nothing_is_served_nothing_changes(tmp_path):
    environment = {"EVALSITE_DATA_DIR": str(tmp_path / "nowhere")}
    follow_served(environment)
    assert environment == {"EVALSITE_DATA_DIR": str(tmp_path / "nowhere")}
