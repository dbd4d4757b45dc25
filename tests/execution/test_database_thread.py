"""The database thread: patient while the database is away, and quick to tell that it is."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from datetime import timedelta

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError, connection

from runs.execution import reaper
from runs.execution.database import DatabaseThread, Patience, is_temporary
from runs.models.database import discard_connection
from tests.support.run_doubles import Failing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]


def sqlite_error(code):
    error = OperationalError("said by SQLite")
    error.__cause__ = sqlite3.OperationalError("said by SQLite")
    error.__cause__.sqlite_errorcode = code
    return error


def stood_still():
    error = DatabaseError("terminating connection due to idle-in-transaction timeout")
    error.__cause__ = psycopg.errors.IdleInTransactionSessionTimeout()
    return error


def read_only():
    error = DatabaseError("cannot execute UPDATE in a read-only transaction")
    error.__cause__ = psycopg.errors.ReadOnlySqlTransaction()
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError("server closed the connection"), True),
        (InterfaceError("connection already closed"), True),
        (sqlite_error(sqlite3.SQLITE_FULL), True),
        (sqlite_error(sqlite3.SQLITE_READONLY), True),
        (sqlite_error(sqlite3.SQLITE_BUSY), True),
        (read_only(), True),
        (stood_still(), True),
        (sqlite_error(sqlite3.SQLITE_ERROR), False),
        (IntegrityError("duplicate key"), False),
        (ValueError("ours"), False),
    ],
)
def test_what_may_pass_by_itself_is_told_from_what_will_not(error, expected):
    assert is_temporary(error) is expected


def test_a_database_that_is_away_is_asked_until_it_is_back():
    pauses, repeats = [], []
    failing = Failing(*[OperationalError("away")] * 6)

    assert Patience(sleep=pauses.append).call(failing, repeats.append) == "done"
    assert failing.heard == [False, *[True] * 6]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert repeats == [False, True]


class Clock:
    """A clock that only what is slept and what is tried moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def patience_on(clock, **facts):
    return Patience(sleep=clock.sleep, clock=clock, **facts)


def test_patience_ends_and_stays_ended():
    clock = Clock()
    patience = patience_on(clock, patience_s=2.0)
    with pytest.raises(OperationalError):
        patience.call(Failing(*[OperationalError("away")] * 100))
    waited = len(clock.pauses)
    assert 2.0 <= clock.now <= 3.0

    with pytest.raises(OperationalError):
        patience.call(Failing(OperationalError("away")))
    assert len(clock.pauses) == waited


def test_tries_that_take_long_to_fail_use_patience_up_too():
    clock = Clock()

    def connect(is_repeated: bool) -> None:
        clock.now += 5.0
        raise OperationalError("timed out")

    with pytest.raises(OperationalError):
        patience_on(clock, patience_s=30.0).call(connect)
    assert clock.now <= 36.0


def test_when_patience_is_shortened_it_is_still_asked_for_some_seconds():
    clock = Clock()
    patience = patience_on(clock)
    patience.shorten()
    assert patience.call(Failing(*[OperationalError("stale")] * 2)) == "done"

    with pytest.raises(OperationalError):
        patience.call(Failing(*[OperationalError("away")] * 100))
    assert 8.0 <= clock.now <= 10.0


def test_an_error_that_will_not_pass_is_raised_at_once():
    failing = Failing(IntegrityError("twice"))
    with pytest.raises(IntegrityError):
        Patience(sleep=pytest.fail).call(failing)
    assert failing.heard == [False]


def test_a_session_that_stands_still_with_what_it_wrote_is_ended_and_no_other(monkeypatch):
    monkeypatch.setattr(reaper, "LEASE", timedelta())
    if connection.vendor != "postgresql":
        assert reaper.end_idle_transactions() == 0
        return
    url = psycopg.conninfo.make_conninfo(**psycopg_params())
    with psycopg.connect(url) as frozen, psycopg.connect(url) as reading:
        frozen.execute("CREATE TEMPORARY TABLE written AS SELECT 1")
        reading.execute("SELECT 1")
        for idle in (frozen, reading):
            await_client_read(idle.info.backend_pid)

        assert reaper.end_idle_transactions() == 1
        with pytest.raises(psycopg.OperationalError):
            frozen.execute("SELECT 1")
        assert reading.execute("SELECT 2").fetchone() == (2,)


def await_client_read(pid):
    """Wait until a session waits for its client: it answers a moment before it does."""
    with connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT wait_event FROM pg_stat_activity WHERE pid = %s", [pid])
            if cursor.fetchone() == ("ClientRead",):
                return


def psycopg_params():
    parameters = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname", "application_name")
    return {name: parameters[name] for name in names if parameters.get(name)}


async def until_cleared(event):
    while event.is_set():  # noqa: ASYNC110 - there is no event for the end of one
        await asyncio.sleep(0.01)


def test_a_database_that_says_nothing_for_a_second_counts_as_away():
    silence, spoken = threading.Event(), []

    async def ask():
        database = DatabaseThread()
        try:
            asked = asyncio.create_task(database.do(silence.wait))
            await until_cleared(database.is_there)
            spoken.append("away")
            silence.set()
            await asked
            await database.is_there.wait()
            spoken.append("back")
        finally:
            silence.set()
            database.close()

    asyncio.run(ask())
    assert spoken == ["away", "back"]


def test_a_connection_that_failed_is_not_used_again():
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    before = connection.connection
    discard_connection()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert connection.connection is not before
    if connection.vendor == "postgresql":
        assert before.closed
