"""What pages answer while the database is away, read-only or too slow."""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError, connection
from django.test import Client
from django.urls import reverse

from evalsite.access.roles import Scope
from evalsite.health import find_outage
from runs.models.suites import Target
from tests.api.site import token_of
from tests.support.factories import make_model, make_run
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.each_database


def wrapped(kind: type[DatabaseError | InterfaceError], cause: Exception) -> Exception:
    error = kind(str(cause))
    error.__cause__ = cause
    return error


def of_sqlite(code: int) -> Exception:
    cause = sqlite3.OperationalError("for a test")
    cause.sqlite_errorcode = code
    return wrapped(OperationalError, cause)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (wrapped(OperationalError, psycopg.OperationalError("no route")), "unreachable"),
        (wrapped(OperationalError, psycopg.errors.AdminShutdown("bye")), "unreachable"),
        (wrapped(OperationalError, psycopg.errors.CannotConnectNow("starting")), "unreachable"),
        (wrapped(InterfaceError, psycopg.InterfaceError("closed")), "unreachable"),
        (wrapped(OperationalError, psycopg.errors.DiskFull("no space")), "full"),
        (wrapped(DatabaseError, psycopg.errors.ReadOnlySqlTransaction("standby")), "read-only"),
        (wrapped(OperationalError, psycopg.errors.LockNotAvailable("locked")), "busy"),
        (wrapped(OperationalError, psycopg.errors.QueryCanceled("statement timeout")), "slow"),
        (of_sqlite(sqlite3.SQLITE_CANTOPEN), "unreachable"),
        (of_sqlite(sqlite3.SQLITE_FULL), "full"),
        (of_sqlite(sqlite3.SQLITE_IOERR_SHMSIZE), "full"),
        (of_sqlite(sqlite3.SQLITE_READONLY_DIRECTORY), "read-only"),
        (of_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), "busy"),
        (of_sqlite(sqlite3.SQLITE_NOTADB), "damaged"),
        # What is wrong with our own queries is no outage.
        (of_sqlite(sqlite3.SQLITE_ERROR), None),
        (wrapped(ProgrammingError, psycopg.errors.UndefinedColumn("no column")), None),
        (wrapped(InterfaceError, sqlite3.InterfaceError("bad parameter")), None),
        (OSError(errno.ENOSPC, "No space left on device"), "full"),
        (OSError(errno.ENOENT, "No such file"), None),
        (ValueError("no database"), None),
        (None, None),
    ],
)
def test_each_database_error_maps_to_its_outage(error: Exception | None, state: str | None) -> None:
    outage = find_outage(error)
    assert (outage.state if outage else None) == state


@contextmanager
def read_only() -> Iterator[None]:
    on, off = {
        "sqlite": ("PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
        "postgresql": (
            "SET default_transaction_read_only = on",
            "SET default_transaction_read_only = off",
        ),
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(on)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(off)


@contextmanager
def away() -> Iterator[None]:
    def refuse(*call: Any) -> None:
        if connection.vendor == "sqlite":
            raise of_sqlite(sqlite3.SQLITE_CANTOPEN)
        raise wrapped(OperationalError, psycopg.OperationalError("secret.host refused"))

    with connection.execute_wrapper(refuse):
        yield


def form_of_a_target() -> dict[str, Any]:
    return {"name": "agent 2", "model": make_model(slug="juno").pk, "kind": "chat"}


@pytest.fixture
def client(transactional_db: None) -> Client:
    client = make_client(make_member("admin"))
    client.raise_request_exception = False
    return client


def test_a_form_sent_to_a_read_only_database_is_not_saved(client: Client) -> None:
    address, sent = reverse("runs:target-new"), form_of_a_target()
    with read_only():
        response = client.post(f"{address}?kind=chat", sent)
    assert response.status_code == 503
    assert "<h1>The database is read-only</h1>" in response.text
    assert "Nothing was saved." in response.text
    assert "go back to it, or reload this page to send it again" in response.text
    assert not Target.objects.exists()
    assert client.post(f"{address}?kind=chat", sent).status_code == 302


def test_pages_open_while_the_database_is_read_only(client: Client) -> None:
    run = make_run()
    with read_only():
        assert client.get(reverse("runs:run", args=[run.suite.slug, 1])).status_code == 200
        assert client.get("/healthz").json()["database"] == (
            "read-only" if connection.vendor == "postgresql" else "ok"
        )


def test_a_program_reads_while_the_database_is_read_only(client: Client) -> None:
    headers = {"authorization": f"Bearer {token_of(make_member('editor'), scopes=[Scope.EDIT])}"}
    suites = reverse("runs:api-suites")
    with read_only():
        assert client.get(suites, headers=headers).status_code == 200


def test_the_outage_page_needs_no_database(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with away():
        response = client.get("/runs/")
    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert response["Cache-Control"] == "no-store"
    assert "<h1>The database does not answer</h1>" in response.text
    assert "Nothing was saved" not in response.text
    assert "secret.host" not in response.text
    assert re.search(r'rel="icon" href="/static/img/icon[^"]*\.svg"', response.text)
    logged = [r for r in caplog.records if r.name == "evalsite.views"]
    assert [record.getMessage().split(":")[0] for record in logged] == [
        "The database does not answer (GET /runs/)"
    ]
    assert logged[0].exc_info is None


def test_a_page_that_the_database_gives_up_says_what_to_do(client: Client) -> None:
    def take_too_long(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if connection.vendor == "sqlite":
            raise wrapped(OperationalError, psycopg.errors.QueryCanceled("statement timeout"))
        return execute("SELECT pg_sleep(600)", None, False, context)

    if connection.vendor == "postgresql":
        connection.cursor().execute("SET statement_timeout = '20ms'")
    with connection.execute_wrapper(take_too_long):
        response = client.get("/runs/")
    assert response.status_code == 503
    assert "<h1>The database took too long</h1>" in response.text
    assert "Ask for less: a narrower filter" in response.text
    assert client.get("/runs/").status_code == 200


@pytest.mark.parametrize("fragment", ["run-live", "run-rows", "run-results"])
def test_a_polling_part_gets_503(client: Client, fragment: str) -> None:
    run = make_run(status="running")
    place = [] if fragment == "run-rows" else [run.suite.slug, run.number]
    with away():
        response = client.get(
            reverse(f"runs:{fragment}", args=place), headers={"HX-Request": "true"}
        )
    assert response.status_code == 503


def test_the_health_page_needs_no_session(client: Client) -> None:
    with away():
        response = client.get("/healthz")
    assert response.status_code == 503
    assert response.json() == {
        "status": "unavailable",
        "database": "unreachable",
        "broker": "ok",
        "worker": "unknown",
        "work": "unknown",
    }


def test_a_bug_answers_500_with_its_traceback_in_the_log(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("evalsite.access.views.highest_role", lambda user: 1 / 0)
    response = client.get("/account/")
    assert response.status_code == 500
    assert "went wrong on our side" in response.text
    assert re.search(r'rel="icon" href="/static/img/icon[^"]*\.svg"', response.text)
    [record] = [one for one in caplog.records if one.name == "django.request"]
    assert record.exc_info
