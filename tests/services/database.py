"""A site's database as it looks from outside: plain SQL, none of the site's own code."""

from __future__ import annotations

import contextlib
import sqlite3
from decimal import Decimal
from typing import Any

import psycopg

SQLITE = "sqlite:///"
AWAY = (psycopg.OperationalError, sqlite3.OperationalError)
BILLIONTH = Decimal("1e-9")


class Database:
    """Reads a database, on a new connection whenever the last one broke."""

    def __init__(self, url: str) -> None:
        """Name it as DATABASE_URL does; connect with the first question."""
        self.url = url
        self.name = url.rpartition("/")[2]
        self._connection: Any = None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query finds; raises OperationalError of its driver while it is away."""
        if self._connection is not None:
            # The server may have been away since the last question.
            with contextlib.suppress(*AWAY):
                return self._ask(query)
            self.close()
        self._connection = self._connect()
        return self._ask(query)

    def row(self, query: str) -> tuple[Any, ...]:
        """Return the only row a query finds."""
        [found] = self.rows(query)
        return found

    def value(self, query: str) -> Any:
        """Return the only value a query finds."""
        [found] = self.row(query)
        return found

    def money(self, query: str) -> Decimal:
        """Return a sum of dollars, exact to the billionth that columns hold, added up here.

        SQLite keeps money as floating point numbers: each is right to the billionth, their sum
        need not be.
        """
        found = (value for [value] in self.rows(query) if value is not None)
        return sum((Decimal(value).quantize(BILLIONTH) for value in found), Decimal(0))

    def says(self, condition: str) -> bool:
        """Tell whether a query's only value is true; False while the database is away."""
        try:
            return bool(self.value(condition))
        except AWAY:
            return False

    def execute(self, command: str) -> None:
        """Change something behind the site's back."""
        connection = self._connect(may_write=True)
        connection.execute(command)
        connection.commit()
        connection.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return found

    def _connect(self, *, may_write: bool = False) -> Any:
        if not self.url.startswith(SQLITE):
            return psycopg.connect(self.url, autocommit=True, connect_timeout=5)
        path = self.url.removeprefix(SQLITE)
        mode = "rw" if may_write else "ro"
        return sqlite3.connect(f"file:{path}?mode={mode}", uri=True, timeout=20)
