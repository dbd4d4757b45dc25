"""Turn DATABASE_URL into Django's database settings: SQLite by default, PostgreSQL on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

SQLITE_OPTIONS = {
    "timeout": 20,
    # A deferred transaction that turns into a writer can fail at once, whatever the time-out.
    "transaction_mode": "IMMEDIATE",
    "init_command": (
        "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA foreign_keys=ON;"
        "PRAGMA temp_store=MEMORY;PRAGMA mmap_size=134217728;PRAGMA cache_size=-20000"
    ),
}
# Each process has a pool of its own and never as many threads as it holds connections: who waits
# for one waits for a database that is away, and a page should say so soon.
POOL_OPTIONS = {
    "min_size": 0,
    "max_size": 16,
    "timeout": 3,
    "max_idle": 120,
    # Left to itself it asks a server that is away ever more seldom, and long after it is back.
    "reconnect_timeout": 1,
}
# A server that vanished without a word is noticed in seconds; what the URL says goes before.
CONNECTION_OPTIONS = {
    "application_name": "evalsite",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
LONGEST_WAIT_FOR_A_LOCK_S = 30
EXAMPLES = "sqlite:////path/to/file.sqlite3 or postgresql://user:password@host/name"


def database_settings(url: str, *, data_dir: Path, lease_s: int) -> dict[str, Any]:
    """Return the settings of the database at `url`, of a SQLite file in `data_dir` when empty.

    A PostgreSQL session that stands still for `lease_s` seconds inside a transaction is ended. One
    that waits so long for a lock, and half a minute at most, gives up. Parameters of the URL go
    before ours.

    Raises:
        ValueError: the URL is no database URL; the message says what one looks like.

    """
    scheme = urlsplit(url).scheme
    if not url:
        return _sqlite(data_dir / "evalsite.sqlite3")
    if scheme == "sqlite":
        return _sqlite_at(url)
    if scheme in ("postgres", "postgresql"):
        return _postgresql(url, lease_s)
    raise ValueError(f"does not name a database Evalsite knows; write {EXAMPLES}")


def _sqlite_at(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path:
        raise ValueError(f"names no file; write {EXAMPLES}")
    return _sqlite(Path(path).absolute())


def _sqlite(path: Path) -> dict[str, Any]:
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": SQLITE_OPTIONS}


def _postgresql(url: str, lease_s: int) -> dict[str, Any]:
    # On SQLite nobody should wait for the driver to be loaded.
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        options: dict[str, Any] = dict(conninfo_to_dict(url))
    except ProgrammingError as error:
        # The driver's message may quote the password.
        raise ValueError(f"is no PostgreSQL URL; write {EXAMPLES}") from error
    if not options.get("dbname"):
        raise ValueError(f"names no database; write {EXAMPLES}")
    # A worker that was frozen while it held a run's row would hold up all the others.
    ours = (
        f"-c idle_in_transaction_session_timeout={lease_s}s"
        f" -c lock_timeout={min(lease_s, LONGEST_WAIT_FOR_A_LOCK_S)}s"
    )
    options["options"] = f"{ours} {options.get('options', '')}".rstrip()
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": options.pop("dbname"),
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": options.pop("host", ""),
        "PORT": options.pop("port", ""),
        # The pool tries a connection before it hands it out: none is left over from before a restart.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**CONNECTION_OPTIONS, **options, "pool": POOL_OPTIONS},
    }
