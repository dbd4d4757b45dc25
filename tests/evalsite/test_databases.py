from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from evalsite.env import database_settings
from tests.services.processes import free_port


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


def test_parameters_of_the_url_go_before_ours(tmp_path: Path) -> None:
    url = "postgresql://ada@db.example/evals"
    ours = "-c idle_in_transaction_session_timeout=30s -c lock_timeout=30s"
    found = database_settings(url, data_dir=tmp_path, lease_s=30)["OPTIONS"]
    assert (found["connect_timeout"], found["options"]) == ("5", ours)

    own = (
        f"{url}?options=-c%20lock_timeout%3D2s&connect_timeout=9"
        "&sslmode=verify-full&sslrootcert=/etc/ca.pem"
    )
    found = database_settings(own, data_dir=tmp_path, lease_s=30)["OPTIONS"]
    assert found["connect_timeout"] == "9"
    assert found["options"] == f"{ours} -c lock_timeout=2s"
    assert (found["sslmode"], found["sslrootcert"]) == ("verify-full", "/etc/ca.pem")


def make_wrapper(found: dict[str, Any]) -> DatabaseWrapper:
    # Pools are kept by alias: another name than that of the tests' own database.
    return DatabaseWrapper(connections.configure_settings({"default": found})["default"], "other")


@pytest.fixture
def postgresql_wrapper(db: None, postgresql_url: str, tmp_path: Path) -> Iterator[DatabaseWrapper]:
    wrapper = make_wrapper(database_settings(postgresql_url, data_dir=tmp_path, lease_s=7))
    yield wrapper
    wrapper.close()
    wrapper.close_pool()


def value(wrapper: DatabaseWrapper, query: str) -> str:
    with wrapper.cursor() as cursor:
        cursor.execute(query)
        return str(cursor.fetchone()[0])


@pytest.mark.slow
@pytest.mark.processes
def test_the_server_knows_how_long_its_sessions_wait(postgresql_wrapper: DatabaseWrapper) -> None:
    assert value(postgresql_wrapper, "SHOW idle_in_transaction_session_timeout") == "7s"
    assert value(postgresql_wrapper, "SHOW lock_timeout") == "7s"
    assert value(postgresql_wrapper, "SHOW application_name") == "evalsite"


@pytest.mark.slow
@pytest.mark.processes
def test_a_connection_that_the_server_ended_is_not_handed_out_again(
    postgresql_wrapper: DatabaseWrapper, postgresql_url: str
) -> None:
    pid = value(postgresql_wrapper, "SELECT pg_backend_pid()")
    postgresql_wrapper.close()
    with psycopg.connect(postgresql_url, autocommit=True) as administrator:
        administrator.execute("SELECT pg_terminate_backend(%s)", [int(pid)])
    assert value(postgresql_wrapper, "SELECT pg_backend_pid()") != pid


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.django_db
def test_a_server_that_is_away_is_waited_for_seconds_only(tmp_path: Path) -> None:
    url = f"postgresql://evalsite@127.0.0.1:{free_port()}/evalsite"
    found = database_settings(url, data_dir=tmp_path, lease_s=30)
    found["OPTIONS"]["pool"] = found["OPTIONS"]["pool"] | {"timeout": 0.2}
    wrapper = make_wrapper(found)
    with pytest.raises(OperationalError):
        value(wrapper, "SELECT 1")
    wrapper.close_pool()


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
