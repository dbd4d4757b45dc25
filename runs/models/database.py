"""The database beneath the models: its clock, its connection, and many rows written at once."""

from __future__ import annotations

import contextlib
import json
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache, lru_cache, partial
from itertools import chain, groupby, islice
from typing import Any

from django.db import Error, connection, models, transaction
from django.db.models.expressions import RawSQL
from django.utils import timezone


def database_now() -> datetime:
    """Return the time of the PostgreSQL server; with SQLite, of this machine.

    Leases and heartbeats go by this clock alone, so that machines whose clocks differ agree.
    """
    if connection.vendor != "postgresql":
        return timezone.now()
    return _ask_server("SELECT clock_timestamp()")


def clock_offset() -> timedelta:
    """Return how far the database's clock is ahead of this machine's; zero with SQLite."""
    if connection.vendor != "postgresql":
        return timedelta()
    return database_now() - timezone.now()


def database_answers_since() -> datetime:
    """Return when the PostgreSQL server started; a SQLite file is always there."""
    if connection.vendor != "postgresql":
        return datetime.min.replace(tzinfo=UTC)
    return _ask_server("SELECT pg_postmaster_start_time()")


def _ask_server(statement: str) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row: tuple[datetime] = cursor.fetchone()
    return row[0]


class TextBytes(models.Func):
    """The bytes of a text; LENGTH counts its characters."""

    output_field = models.IntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Ask for what PostgreSQL knows without reading long texts."""
        return self.as_sql(compiler, connection, function="OCTET_LENGTH", **context)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Count the bytes of the text as it is stored."""
        template = "LENGTH(CAST(%(expressions)s AS BLOB))"
        return self.as_sql(compiler, connection, template=template, **context)


class JsonInside(models.Func):
    """What a JSON object has under a key, as JSON text; null where it has nothing there.

    Text, for decoding the same few values of thousands of rows again and again takes longer than reading them.
    """

    output_field = models.TextField()

    def __init__(self, column: str, key: str) -> None:
        """Take the column and the key, in which dots are no path."""
        super().__init__(models.F(column))
        self.key = key

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Write the value as text."""
        column, params = compiler.compile(self.source_expressions[0])
        return f"({column} -> %s)::text", [*params, self.key]

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Look through the keys, of which a path cannot name every one, and write the value as text."""
        column, params = compiler.compile(self.source_expressions[0])
        text = (
            "CASE WHEN type IN ('true', 'false', 'null') THEN type"
            " WHEN type IN ('array', 'object') THEN value ELSE JSON_QUOTE(value) END"
        )
        value = f"SELECT {text} FROM json_each({column}) WHERE key = %s"  # noqa: S608 - a column
        return f"({value})", [*params, self.key]


def discard_connection() -> None:
    """Close this thread's connection for good; the next query opens a new one.

    Returning it to the pool is not enough: a session that was opened while its server was
    read-only stays read-only for life.
    """
    # Inside a test's transaction the connection is not ours to close.
    if connection.in_atomic_block:
        return
    if connection.vendor == "postgresql" and connection.connection is not None:
        connection.connection.close()
    with contextlib.suppress(Error):
        connection.close()


# Of somebody who waits for SQLite's only writer, at most.
LOOKS_EVERY_S = 0.1


@contextlib.contextmanager
def atomic_batch() -> Iterator[None]:
    """Run a transaction that another of the same work follows, and let others write in between.

    SQLite has one writer and no queue for it: who waits looks again after a while, and never finds the
    moment between two transactions in a row. So this pauses for a quarter of the time that it wrote.
    """
    with transaction.atomic():
        began = time.monotonic()
        yield
    if connection.vendor == "sqlite":
        time.sleep(min(LOOKS_EVERY_S, (time.monotonic() - began) / 4))


def read_ids(rows: models.QuerySet[Any]) -> Sequence[int]:
    """Return the ids of rows in their order, in 8 bytes each: a list of a million takes 36 MB."""
    return array("q", rows.values_list("pk", flat=True).iterator(chunk_size=IDS_AT_ONCE))


IDS_AT_ONCE = 10_000


def among(values: Iterable[int] | Iterable[str], type_: str = "bigint") -> RawSQL:
    """Return values for `column__in` as one: a statement takes only so many, on SQLite often 32,766.

    `type_` is their type on PostgreSQL: bigint or text.
    """
    if connection.vendor == "postgresql":
        return RawSQL(f"SELECT unnest(%s::{type_}[])", [list(values)])  # noqa: S611 - ours
    return RawSQL("SELECT value FROM json_each(%s)", [json.dumps(list(values))])


class OneOf(models.Func):
    """Whether a number is one of many, for a query that has few other rows.

    Through `among`, PostgreSQL looks each of them up; here it may as well read those other rows and compare.
    """

    output_field = models.BooleanField()
    conditional = True

    def __init__(self, column: str, values: Iterable[int]) -> None:
        """Take the column and the values."""
        super().__init__(models.F(column))
        self.values = list(values)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Compare with an array."""
        column, params = compiler.compile(self.source_expressions[0])
        return f"({column} = ANY(%s::bigint[]))", [*params, self.values]

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Compare with a list in JSON."""
        column, params = compiler.compile(self.source_expressions[0])
        found = f"({column} IN (SELECT value FROM json_each(%s)))"  # noqa: S608 - a column
        return found, [*params, json.dumps(self.values)]


Adapt = Callable[[Any], Any]

# Numbers and texts need no adapting on any database; asking each field costs more than the insert.
PLAIN = (
    models.CharField,
    models.TextField,
    models.FloatField,
    models.IntegerField,
    models.BooleanField,
    models.ForeignKey,
)
ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def insert_rows(
    model: type[models.Model],
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    at_once: int = 1,
) -> None:
    """Insert rows whose values are in the order of `columns` (attribute names such as run_id).

    It takes a fifth of the time that model instances take. On SQLite `at_once` rows share a statement. That pays
    only where something costly happens after each statement.
    """
    table, names, adapters = _columns(model, tuple(columns), connection.vendor)
    values = _adapted(rows, adapters)
    if connection.vendor == "postgresql":
        _copy(table, names, values)
        return
    marks = f"({', '.join(['%s'] * len(names))})"
    parts = (values[start : start + at_once] for start in range(0, len(values), at_once))
    # The last part may be smaller.
    for size, equal in groupby(parts, key=len):
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES {', '.join([marks] * size)}"  # noqa: S608 - names of columns
        _execute(statement, [list(chain.from_iterable(part)) for part in equal])


def update_rows(
    model: type[models.Model],
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    key: tuple[str, ...],
) -> None:
    """Set `columns` of one row each; the last values of a row are those of the `key` columns."""
    if connection.vendor == "postgresql":
        _update_from_json(model, columns, rows, key=key)
        return
    table, names, adapters = _columns(model, (*columns, *key), connection.vendor)
    assignments = ", ".join(f"{name} = %s" for name in names[: len(columns)])
    same = " AND ".join(f"{name} = %s" for name in names[len(columns) :])
    statement = f"UPDATE {table} SET {assignments} WHERE {same}"  # noqa: S608 - names of columns
    _execute(statement, _adapted(rows, adapters))


def add_to_rows(model: type[models.Model], column: str, rows: Iterable[tuple[Any, int]]) -> None:
    """Add an amount to a column of one row each, by primary key; an empty column counts as zero."""
    key = model._meta.pk.attname
    if connection.vendor == "postgresql":
        _update_from_json(model, (column,), rows, key=(key,), adds=True)
        return
    table, names, adapters = _columns(model, (column, key), connection.vendor)
    sum_ = f"COALESCE({names[0]}, 0) + %s"
    statement = f"UPDATE {table} SET {names[0]} = {sum_} WHERE {names[1]} = %s"  # noqa: S608 - names of columns
    _execute(statement, _adapted(rows, adapters))


COPIED_AT_ONCE = 400


def copy_rows(
    model: type[models.Model],
    columns: Sequence[str],
    pairs: Iterable[Sequence[Any]],
    *,
    key: tuple[str, ...],
    merged: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Copy the columns of rows inside the database; a pair is the `key` of a row to copy, then that of its copy.

    `merged` has what objects in JSON columns of the copies have in addition.
    """
    vendor = connection.vendor
    table, names, _ = _columns(model, (*key, *columns), vendor)
    owners, copied = names[: len(key)], names[len(key) :]
    merge = "old.{} || %s::jsonb" if vendor == "postgresql" else "JSON_PATCH(old.{}, %s)"
    added = {name: ENCODE(value) for name, value in (merged or {}).items()}
    values = [
        (merge if column in added else "old.{}").format(name)
        for column, name in zip(columns, copied, strict=True)
    ]
    more = [added[column] for column in columns if column in added]
    old, new = ([f"{side}_{place}" for place in range(len(key))] for side in ("old", "new"))
    same = " AND ".join(f"old.{name} = pairs.{own}" for name, own in zip(owners, old, strict=True))
    marks = f"({', '.join(['%s'] * 2 * len(key))})"
    rest = iter(pairs)
    # Listing the pairs keeps the database from searching whole runs for them.
    while some := list(islice(rest, COPIED_AT_ONCE)):
        statement = (
            f"WITH pairs ({', '.join([*old, *new])}) AS (VALUES {', '.join([marks] * len(some))}) "  # noqa: S608 - names of columns
            f"INSERT INTO {table} ({', '.join(names)}) "
            f"SELECT {', '.join([*(f'pairs.{own}' for own in new), *values])} "
            f"FROM pairs JOIN {table} old ON {same}"
        )
        with connection.cursor() as cursor:
            cursor.execute(statement, [*chain.from_iterable(some), *more])


def delete_rows(rows: models.QuerySet[Any]) -> int:
    """Delete rows that nothing refers to any more, in one statement; returns how many.

    `QuerySet.delete` would first read every row and look for what refers to it.
    """
    return int(rows._raw_delete(rows.db) or 0)


def _adapted(
    rows: Iterable[Sequence[Any]], adapters: Sequence[tuple[int, Adapt]]
) -> list[list[Any]]:
    adapted = [list(row) for row in rows]
    for values in adapted:
        for place, adapt in adapters:
            if values[place] is not None:
                values[place] = adapt(values[place])
    return adapted


def _execute(statement: str, values: Sequence[Sequence[Any]]) -> None:
    if values:
        with connection.cursor() as cursor:
            cursor.executemany(statement, values)


@cache
def _columns(
    model: type[models.Model], names: tuple[str, ...], vendor: str
) -> tuple[str, tuple[str, ...], tuple[tuple[int, Adapt], ...]]:
    """Return table, quoted columns, and place and adapter of values that need one; `vendor` keys the cache."""
    by_name = {field.attname: field for field in model._meta.concrete_fields}
    fields = [by_name[name] for name in names]
    quote = connection.ops.quote_name
    return (
        quote(model._meta.db_table),
        tuple(quote(str(field.column)) for field in fields),
        tuple(
            (place, adapt)
            for place, field in enumerate(fields)
            if (adapt := _adapter(field, vendor)) is not None
        ),
    )


def _adapter(field: models.Field[Any, Any], vendor: str) -> Adapt | None:
    if isinstance(field, PLAIN):
        return None
    if isinstance(field, models.JSONField):
        return _json
    if vendor == "postgresql":
        return None
    adapt = partial(field.get_db_prep_save, connection=connection)
    # Rows that are written together mostly have the same time.
    return lru_cache(maxsize=1)(adapt) if isinstance(field, models.DateTimeField) else adapt


def _json(value: Any) -> str:
    # Most lists and mappings of a row are empty.
    if value == [] or value == {}:
        return "[]" if isinstance(value, list) else "{}"
    return ENCODE(value)


def _copy(table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows by COPY of PostgreSQL; table and columns are quoted, JSON is text."""
    if not rows:
        return
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
    with (
        connection.cursor() as cursor,
        # Django wraps the driver's errors for statements, but not for COPY.
        connection.wrap_database_errors,
        cursor.copy(statement) as copy,
    ):
        for row in rows:
            copy.write_row(row)


def _update_from_json(
    model: type[models.Model],
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    key: tuple[str, ...],
    adds: bool = False,
) -> None:
    """Set columns of many rows, or add to them, in one statement of PostgreSQL.

    The values travel as one JSON document, which costs the server less than binding each.
    """
    names = (*columns, *key)
    document = ENCODE_COLUMNS([dict(zip(names, row, strict=True)) for row in rows])
    if document == "[]":
        return
    with connection.cursor() as cursor:
        cursor.execute(_update_statement(model, tuple(columns), key, adds), [document])


@cache
def _update_statement(
    model: type[models.Model], columns: tuple[str, ...], key: tuple[str, ...], adds: bool
) -> str:
    by_name = {field.attname: field for field in model._meta.concrete_fields}
    quote = connection.ops.quote_name
    # The document names values by attribute (run_id); the table may call the column otherwise.
    column = {name: quote(str(by_name[name].column)) for name in (*columns, *key)}
    types = ", ".join(f"{quote(name)} {by_name[name].db_type(connection)}" for name in column)
    assignments = ", ".join(
        f"{column[name]} = "
        + (f"COALESCE(old.{column[name]}, 0) + " if adds else "")
        + f"new.{quote(name)}"
        for name in columns
    )
    same = " AND ".join(f"old.{column[name]} = new.{quote(name)}" for name in key)
    return (
        f"UPDATE {quote(model._meta.db_table)} AS old SET {assignments} "  # noqa: S608 - names of columns
        f"FROM json_to_recordset(%s::json) AS new ({types}) WHERE {same}"
    )


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a value of a column")


ENCODE_COLUMNS = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


def read_rows(
    model: type[models.Model],
    columns: Sequence[str],
    *,
    equal: Mapping[str, Any],
    among: tuple[str, Sequence[Any]],
) -> Iterator[Sequence[Any]]:
    """Yield the columns of rows with equal values, and with a column that is among some values.

    Building a query by the ORM takes several times as long.
    """
    table, names, _ = _columns(model, tuple(columns), connection.vendor)
    converters = _converters(model, tuple(columns), connection.vendor)
    _, (*key, column), _ = _columns(model, (*equal, among[0]), connection.vendor)
    same = " AND ".join(f"{name} = %s" for name in key)
    marks = ", ".join(["%s"] * len(among[1]))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(names)} FROM {table} WHERE {same} AND {column} IN ({marks})",  # noqa: S608 - names of columns
            [*equal.values(), *among[1]],
        )
        rows = cursor.fetchall()
    for row in rows:
        values = list(row)
        for place, convert in converters:
            if values[place] is not None:
                values[place] = convert(values[place])
        yield values


@cache
def _converters(
    model: type[models.Model], names: tuple[str, ...], vendor: str
) -> tuple[tuple[int, Adapt], ...]:
    """Return place and converter of the columns whose values the driver does not return as Python's."""
    by_name = {field.attname: field for field in model._meta.concrete_fields}
    columns = [by_name[name].get_col(model._meta.db_table) for name in names]
    return tuple(
        (place, partial(_convert, convert, column))
        for place, column in enumerate(columns)
        for convert in (
            *connection.ops.get_db_converters(column),
            *column.get_db_converters(connection),
        )
    )


def _convert(convert: Callable[[Any, Any, Any], Any], column: Any, value: Any) -> Any:
    return convert(value, column, connection)
