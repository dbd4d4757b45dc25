"""Many rows at once for PostgreSQL: a third of the time of one statement for each, there and here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

from django.db import connection, models


def insert(table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows by COPY; table and columns are quoted, JSON is text."""
    if not rows:
        return
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
    with (
        connection.cursor() as cursor,
        # Elsewhere Django sees to it that the driver's errors come as its own.
        connection.wrap_database_errors,
        cursor.copy(statement) as copy,
    ):
        for row in rows:
            copy.write_row(row)


def update(
    model: type[models.Model],
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    key: str,
    adds: bool = False,
) -> None:
    """Set columns of one row each in one statement, or add to them; the key's value stands last.

    The values travel as one JSON document, which costs the server less than binding each.
    """
    names = (*columns, key)
    document = ENCODE([dict(zip(names, row, strict=True)) for row in rows])
    if document == "[]":
        return
    with connection.cursor() as cursor:
        cursor.execute(_update_statement(model, tuple(columns), key, adds), [document])


@cache
def _update_statement(
    model: type[models.Model], columns: tuple[str, ...], key: str, adds: bool
) -> str:
    by_name = {field.attname: field for field in model._meta.concrete_fields}
    quote = connection.ops.quote_name
    types = ", ".join(
        f"{quote(name)} {by_name[name].db_type(connection)}" for name in (*columns, key)
    )
    settings = ", ".join(
        _setting(quote(str(by_name[name].column)), quote(name), adds) for name in columns
    )
    table, place = quote(model._meta.db_table), quote(str(by_name[key].column))
    return (
        f"UPDATE {table} AS old SET {settings} FROM json_to_recordset(%s::json) AS new ({types}) "  # noqa: S608 - names of columns
        f"WHERE old.{place} = new.{quote(key)}"
    )


def _setting(column: str, name: str, adds: bool) -> str:
    return (
        f"{column} = COALESCE(old.{column}, 0) + new.{name}" if adds else f"{column} = new.{name}"
    )


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no value of a column")


ENCODE = json.JSONEncoder(separators=(",", ":"), default=_plain).encode
