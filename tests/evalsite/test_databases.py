from __future__ import annotations

from pathlib import Path

import pytest

from evalsite.databases import database_settings


def test_without_a_url_sqlite_lies_in_the_data_folder(tmp_path: Path) -> None:
    found = database_settings("", data_dir=tmp_path, lease_s=30)
    assert found["ENGINE"] == "django.db.backends.sqlite3"
    assert found["NAME"] == tmp_path / "evalsite.sqlite3"
    assert found["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_a_sqlite_url_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    absolute = database_settings("sqlite:////var/lib/a%20b.sqlite3", data_dir=tmp_path, lease_s=30)
    assert absolute["NAME"] == Path("/var/lib/a b.sqlite3")
    relative = database_settings("sqlite:///x.sqlite3", data_dir=tmp_path, lease_s=30)
    assert relative["NAME"] == tmp_path / "x.sqlite3"


def test_a_postgresql_url_is_taken_apart(tmp_path: Path) -> None:
    found = database_settings(
        "postgresql://ada:p%40ss@db.example:5433/evals?sslmode=require",
        data_dir=tmp_path,
        lease_s=30,
    )
    assert found["ENGINE"] == "django.db.backends.postgresql"
    assert (found["NAME"], found["USER"], found["PASSWORD"]) == ("evals", "ada", "p@ss")
    assert (found["HOST"], found["PORT"]) == ("db.example", "5433")
    assert found["OPTIONS"]["sslmode"] == "require"
    assert found["OPTIONS"]["pool"]["max_size"] > 0


def test_a_session_that_stands_still_inside_a_transaction_is_ended(tmp_path: Path) -> None:
    url = "postgresql://ada@db.example/evals"
    found = database_settings(url, data_dir=tmp_path, lease_s=30)
    assert found["OPTIONS"]["options"] == "-c idle_in_transaction_session_timeout=30s"

    own = f"{url}?options=-c%20jit%3Doff"
    found = database_settings(own, data_dir=tmp_path, lease_s=30)
    assert found["OPTIONS"]["options"] == "-c idle_in_transaction_session_timeout=30s -c jit=off"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://localhost/x",
        "evals",
        "sqlite://",
        "sqlite://host/x",
        "postgresql://host",
        "postgresql://u:secret@h/d?nonsense=1",
    ],
)
def test_other_urls_are_refused_with_an_example_and_without_the_password(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="write sqlite") as refusal:
        database_settings(url, data_dir=tmp_path, lease_s=30)
    assert "secret" not in str(refusal.value)
