"""Which database the settings name, and with which limits it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from evalsite.env import database_settings, limit_statements
from tests.services.processes import free_port


def test_without_a_url_sqlite_is_in_the_data_folder(tmp_path: Path) -> None:
    options = database_settings("", data_dir=tmp_path, lease_s=30)
    assert options["ENGINE"] == "django.db.backends.sqlite3"
    assert options["NAME"] == tmp_path / "evalsite.sqlite3"
    assert options["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_a_sqlite_url_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    absolute = database_settings("sqlite:////var/lib/a%20b.sqlite3", data_dir=tmp_path, lease_s=30)
    assert absolute["NAME"] == Path("/var/lib/a b.sqlite3")
    relative = database_settings("sqlite:///x.sqlite3", data_dir=tmp_path, lease_s=30)
    assert relative["NAME"] == tmp_path / "x.sqlite3"


def test_a_postgresql_url_is_parsed(tmp_path: Path) -> None:
    options = database_settings(
        "postgresql://ada:p%40ss@db.example:5433/evals?sslmode=require",
        data_dir=tmp_path,
        lease_s=30,
    )
    assert options["ENGINE"] == "django.db.backends.postgresql"
    assert (options["NAME"], options["USER"], options["PASSWORD"]) == ("evals", "ada", "p@ss")
    assert (options["HOST"], options["PORT"]) == ("db.example", "5433")
    assert options["OPTIONS"]["sslmode"] == "require"
    assert options["OPTIONS"]["pool"]["max_size"] > 0


def test_parameters_of_the_url_override_ours(tmp_path: Path) -> None:
    url = "postgresql://ada@db.example/evals"
    ours = (
        "-c idle_in_transaction_session_timeout=30s -c lock_timeout=30s"
        " -c random_page_cost=1.1 -c jit=off"
    )
    options = database_settings(url, data_dir=tmp_path, lease_s=30)["OPTIONS"]
    assert (options["connect_timeout"], options["options"]) == ("5", ours)

    own = (
        f"{url}?options=-c%20lock_timeout%3D2s&connect_timeout=9"
        "&sslmode=verify-full&sslrootcert=/etc/ca.pem"
    )
    options = database_settings(own, data_dir=tmp_path, lease_s=30)["OPTIONS"]
    assert options["connect_timeout"] == "9"
    assert options["options"] == f"{ours} -c lock_timeout=2s"
    assert (options["sslmode"], options["sslrootcert"]) == ("verify-full", "/etc/ca.pem")


def make_wrapper(options: dict[str, Any]) -> DatabaseWrapper:
    # Pools are kept by alias: another name than that of the tests' own database.
    return DatabaseWrapper(connections.configure_settings({"default": options})["default"], "other")


@pytest.fixture
def postgresql_wrapper(db: None, postgresql_url: str, tmp_path: Path) -> Iterator[DatabaseWrapper]:
    database = database_settings(postgresql_url, data_dir=tmp_path, lease_s=7)
    limit_statements(database, seconds=9)
    wrapper = make_wrapper(database)
    yield wrapper
    wrapper.close()
    wrapper.close_pool()


def value(wrapper: DatabaseWrapper, query: str) -> str:
    with wrapper.cursor() as cursor:
        cursor.execute(query)
        return str(cursor.fetchone()[0])


@pytest.mark.slow
@pytest.mark.processes
def test_the_server_limits_statements_idle_sessions_and_lock_waits(
    postgresql_wrapper: DatabaseWrapper,
) -> None:
    assert value(postgresql_wrapper, "SHOW idle_in_transaction_session_timeout") == "7s"
    assert value(postgresql_wrapper, "SHOW lock_timeout") == "7s"
    assert value(postgresql_wrapper, "SHOW statement_timeout") == "9s"
    assert value(postgresql_wrapper, "SHOW application_name") == "evalsite"


@pytest.mark.slow
@pytest.mark.processes
def test_a_connection_closed_by_the_server_is_not_reused(
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
def test_waiting_for_a_server_that_is_down_takes_seconds(tmp_path: Path) -> None:
    url = f"postgresql://evalsite@127.0.0.1:{free_port()}/evalsite"
    options = database_settings(url, data_dir=tmp_path, lease_s=30)
    options["OPTIONS"]["pool"] = options["OPTIONS"]["pool"] | {"timeout": 0.2}
    wrapper = make_wrapper(options)
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
def test_other_urls_are_refused_without_showing_the_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="write sqlite") as refusal:
        database_settings(url, data_dir=tmp_path, lease_s=30)
    assert "secret" not in str(refusal.value)
