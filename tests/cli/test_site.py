"""Commands where there is no site yet: some begin one and say so, others say where they looked."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from evalsite.data_folder import new_encryption_key, new_secret_key
from tests.services.processes import ROOT
from tests.services.site import run

pytestmark = [pytest.mark.slow, pytest.mark.processes]
SUITE = """
name: refunds
evaluators:
  - {name: mentions_refund, type: contains, value: refund}
tests:
  - {id: C-1, input: Where is my money?, output: Your refund is on its way.}
"""


def environment(folder: Path) -> dict[str, str]:
    unset = ("DATABASE_URL", "CELERY_BROKER_URL", "EVALSITE_URL", "PORT")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    return {**env, "EVALSITE_DATA_DIR": str(folder)}


def command(folder: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(["manage.py", *map(str, words)], env={**environment(folder), **variables})


def own_keys() -> dict[str, str]:
    return {
        "EVALSITE_SECRET_KEY": new_secret_key(),
        "EVALSITE_ENCRYPTION_KEY": new_encryption_key(),
    }


def test_evaluate_creates_a_missing_site(tmp_path: Path):
    suite, folder = tmp_path / "refunds.yaml", tmp_path / "new"
    suite.write_text(SUITE)
    done = command(folder, "evaluate", suite, "--target", "recorded")
    assert done.returncode == 0, done.stderr
    assert f"New site in {folder}: its database is {folder}/evalsite.sqlite3" in done.stderr
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "evalsite.sqlite3")]
    assert modes == [0o700, 0o600]
    again = command(folder, "import", suite)
    assert again.returncode == 0, again.stderr
    assert "unchanged" in again.stdout
    assert "New site" not in again.stderr


def test_evaluate_loads_only_what_it_uses(tmp_path: Path):
    suite = tmp_path / "refunds.yaml"
    suite.write_text(SUITE)
    done = subprocess.run(
        [
            *(sys.executable, "-X", "importtime", ROOT / "manage.py"),
            *("evaluate", suite, "--target", "recorded", "--out", tmp_path / "results.jsonl"),
            *("--summary", tmp_path / "summary.json", "--junit", tmp_path / "junit.xml"),
        ],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "django.db.models" in loaded
    # Whoever asks for the address of a page loads all pages, and with them those of the API.
    unwanted = ("openai", "plotly", "celery", "scipy", "runs.api.")
    assert not [name for name in loaded if name.startswith(unwanted)]


@pytest.mark.parametrize(
    ("url", "database"),
    [("", "evalsite.sqlite3"), ("sqlite:///{}/elsewhere/site.sqlite3", "elsewhere/site.sqlite3")],
)
def test_a_new_site_needs_no_key_files_in_its_folder(tmp_path: Path, url: str, database: str):
    suite, folder = tmp_path / "refunds.yaml", tmp_path / "deep" / "new"
    suite.write_text(SUITE)
    variables = {**own_keys(), "DATABASE_URL": url.format(folder)}
    done = command(folder, "evaluate", suite, "--target", "recorded", **variables)
    assert done.returncode == 0, done.stderr
    assert f"New site in {folder}: its database is {folder}/{database}" in done.stderr


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "new"
    refused = command(folder, "add_model", "gpt", "--model-id", "gpt", **own_keys())
    assert refused.returncode == 3
    assert f"{folder}/evalsite.sqlite3 (by EVALSITE_DATA_DIR) cannot be created" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("words", [("import", "suite.yaml"), ("createadmin", "ada", "--link")])
def test_an_empty_database_becomes_a_site(tmp_path: Path, words: tuple[str]):
    (tmp_path / "evalsite.sqlite3").touch()
    (tmp_path / "suite.yaml").write_text(SUITE)
    paths = [tmp_path / word if word.endswith(".yaml") else word for word in words]
    done = command(tmp_path, *paths)
    assert done.returncode == 0, done.stderr
    assert "New site in" in done.stderr


@pytest.mark.parametrize(
    "words", [("export", "refunds"), ("compare", "a#1", "a#2"), ("login_link",)]
)
def test_other_commands_name_the_missing_database_and_create_none(
    tmp_path: Path, words: tuple[str]
):
    refused = command(tmp_path, *words)
    assert refused.returncode == 3
    assert f"the database {tmp_path}/evalsite.sqlite3 (by EVALSITE_DATA_DIR)" in refused.stderr
    assert "evalsite up" in refused.stderr
    assert not list(tmp_path.glob("evalsite.sqlite3*"))


def test_an_outdated_database_is_named(tmp_path: Path):
    (tmp_path / "evalsite.sqlite3").touch()
    refused = command(tmp_path, "export", "refunds")
    assert refused.returncode == 3
    assert f"{tmp_path}/evalsite.sqlite3 (by EVALSITE_DATA_DIR) could not be used" in refused.stderr
