"""The statements that are sent to the database, and how it finds their rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def statements_reading(table: str) -> Any:
    """Collect the statements that read a table, with what is put into them."""
    found: list[tuple[str, Any]] = []

    def listen(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if f'FROM "{table}"' in sql:
            found.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(listen):
        yield found


def query_plan(sql: str, params: Any) -> str:
    """Return how the database means to find the rows, as if there were very many."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # A handful of rows is read as a whole, whatever indexes there are.
            cursor.execute("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN" if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN"
        cursor.execute(f"{explain} {sql}", params)
        return "\n".join(str(row[-1]) for row in cursor.fetchall())
