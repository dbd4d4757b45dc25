"""Run two queries on a SQLite database that may only be read, as a process of its own with little memory.

It reads a line of JSON (`queries`, `rows`, `seconds`, `memory_mb`) and then the database from standard input, as a
SQLite file or as SQL that creates it. It prints one JSON object: `results`, one for each query with `columns` and
`rows` or with `error` and its `stage`, or a `problem` of the database. It imports the standard library alone.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import sys
import time
from typing import Any

MB = 1024 * 1024
SQLITE_FILE = b"SQLite format 3\0"
# What a header says of a file with a log beside it; in memory there is none.
WITH_LOG, WITHOUT_LOG = b"\2\2", b"\1\1"
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
MAX_REPLY_LENGTH = 20_000_000
MAX_BUILDING_S = 10
# The rows of both queries are held beside the memory of SQLite, and a database in a few copies.
MEMORY_TIMES, COPIES = 8, 6
# Later than the process that waits for the answer gives up, in case that one has died.
SPARE_CPU_S = 30
STEPS = 10_000
READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BUILDING_REFUSED = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
FUNCTIONS_REFUSED = {"load_extension", "fts3_tokenizer"}


def may_read(action: int, *names: str | None) -> int:
    """Allow a statement to read tables and to call functions, and nothing else."""
    is_refused = action not in READING or (names[1] or "").lower() in FUNCTIONS_REFUSED
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


def may_build(action: int, *names: str | None) -> int:
    """Allow the SQL of the suite to create what it likes inside its own database; settings do nothing."""
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_IGNORE
    is_function = action == sqlite3.SQLITE_FUNCTION
    is_refused = is_function and (names[1] or "").lower() in FUNCTIONS_REFUSED
    is_refused = is_refused or action in BUILDING_REFUSED
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


class Clock:
    """Tells SQLite when a statement has run too long."""

    def start(self, seconds: float) -> None:
        """Allow this many seconds from now."""
        self.ends_at = time.monotonic() + seconds

    def is_over(self) -> bool:
        """Tell whether they are over."""
        return time.monotonic() > self.ends_at


def open_database(content: bytes, memory_mb: int, clock: Clock) -> sqlite3.Connection:
    """Return the database in memory; raises sqlite3.Error and ValueError for one that cannot be opened."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    memory = memory_mb * MB + 2 * len(content)
    settings = ("temp_store=MEMORY", "trusted_schema=OFF", "cell_size_check=ON")
    for setting in (f"hard_heap_limit={memory}", *settings):
        database.execute(f"PRAGMA {setting}")
    for limit, most in LIMITS.items():
        database.setlimit(limit, most)
    clock.start(MAX_BUILDING_S)
    database.set_progress_handler(clock.is_over, STEPS)
    if content.startswith(SQLITE_FILE):
        is_logged = content[18:20] == WITH_LOG
        database.deserialize(content[:18] + WITHOUT_LOG + content[20:] if is_logged else content)
        database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    else:
        database.set_authorizer(may_build)
        database.executescript(content.removeprefix(BYTE_ORDER_MARK).decode())
        if database.in_transaction:
            database.execute("COMMIT")
    database.set_authorizer(may_read)
    return database


def run(database: sqlite3.Connection, query: str, limit: int, clock: Clock) -> dict[str, Any]:
    """Return the columns and rows of a query, or why it has none."""
    rows: list[list[Any]] = []
    length = 0
    try:
        cursor = database.execute(query)
        for row in cursor:
            rows.append([plain(value) for value in row])
            length += sum(len(value) if isinstance(value, str) else 8 for value in rows[-1])
            if len(rows) > limit:
                return {"error": f"it returns more than {limit:,} rows", "stage": "limits"}
            if length > MAX_REPLY_LENGTH:
                return {"error": "its rows are too large to compare", "stage": "limits"}
    except MemoryError:
        return {"error": "it needs too much memory", "stage": "limits"}
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        if clock.is_over():
            return {"error": "it took too long", "stage": "limits"}
        name: str = getattr(error, "sqlite_errorname", "")
        if name in ("SQLITE_NOMEM", "SQLITE_FULL"):
            return {"error": "it needs too much memory", "stage": "limits"}
        # No query damages a file or decides how its names are encoded.
        is_damaged = isinstance(error, UnicodeDecodeError) or name.startswith("SQLITE_CORRUPT")
        return {"error": str(error)[:300], "stage": "config" if is_damaged else "query"}
    if cursor.description is None:
        return {"error": "it is no query that returns rows", "stage": "query"}
    return {"columns": [column[0] for column in cursor.description], "rows": rows}


def plain(value: Any) -> Any:
    """Return a value of SQLite as JSON has it; bytes as `x'…'`, as SQL writes them."""
    return f"x'{value.hex()}'" if isinstance(value, bytes) else value


def answer(request: dict[str, Any], content: bytes) -> dict[str, Any]:
    """Return what the queries give, or the problem of the database."""
    clock = Clock()
    try:
        database = open_database(content, request["memory_mb"], clock)
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
        return {"problem": str(error)[:300] or "it needs too much memory"}
    results = []
    for query in request["queries"]:
        clock.start(request["seconds"])
        results.append(run(database, query, request["rows"], clock))
    return {"results": results}


def give_up_rights(request: dict[str, Any], size: int) -> None:
    """Keep this process from everything but its answer, should a crafted file take it over through a bug of SQLite.

    It can open no file and no connection, start no process, and neither compute nor take memory without end.
    """
    seconds = MAX_BUILDING_S + int(len(request["queries"]) * request["seconds"]) + SPARE_CPU_S
    memory = MEMORY_TIMES * request["memory_mb"] * MB + COPIES * size
    for kind, most in (
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_DATA, memory),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def main() -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.buffer.readline())
    content = sys.stdin.buffer.read()
    give_up_rights(request, len(content))
    sys.stdout.write(json.dumps(answer(request, content)))


if __name__ == "__main__":
    main()
