"""Read the environment: every variable once and typed, with problems collected instead of raised."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

YES = ("1", "true", "yes", "on")
NO = ("0", "false", "no", "off")
FILE_SUFFIX = "_FILE"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """What is wrong with the value of a variable, and how to fix it."""

    variable: str
    message: str
    hint: str = ""


@dataclass(slots=True)
class Environment:
    """Typed readers over a mapping of variables.

    `names` are the variables read so far and `problems` what is wrong with them.
    """

    values: Mapping[str, str] = field(default_factory=lambda: os.environ)
    names: list[str] = field(default_factory=list)
    problems: list[SettingProblem] = field(default_factory=list)

    def text(self, name: str, default: str = "") -> str:
        """Return the value without surrounding blanks; an empty value counts as not set."""
        self.names.append(name)
        return self.values.get(name, "").strip() or default

    def secret(self, name: str, default: str = "") -> str:
        """Return the value of NAME, or the content of the file that NAME_FILE names."""
        value, path = self.text(name), self.values.get(name + FILE_SUFFIX, "").strip()
        if not path:
            return value or default
        if value:
            self.refuse(name, f"{name} and {name}{FILE_SUFFIX} are both set.", "Set one of them.")
            return value
        try:
            return Path(path).read_text(encoding="utf-8").strip() or default
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            self.refuse(name + FILE_SUFFIX, f"{path} cannot be read: {reason}.")
            return default

    def flag(self, name: str, default: bool = False) -> bool:
        """Return the value as a truth value."""
        return self._parsed(name, default, _parse_flag)

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return the value as a whole number between `least` and `most`."""
        return self._parsed(name, default, lambda value: _parse_number(value, least, most))

    def choice(self, name: str, default: str, choices: Iterable[str]) -> str:
        """Return the value, which must be one of `choices` (letter case does not count)."""
        allowed = {choice.lower(): choice for choice in choices}
        return self._parsed(name, default, lambda value: _parse_choice(value, allowed))

    def path(self, name: str, default: Path) -> Path:
        """Return the value as an absolute path; a leading ~ is the home folder."""
        return self._parsed(name, default, lambda value: Path(value).expanduser().absolute())

    def folder(self, name: str) -> str:
        """Return the value, which must be the absolute path of an existing folder; "" if not set."""
        return self._parsed(name, "", _parse_folder)

    def folders(self, name: str) -> list[str]:
        """Return the comma-separated folders; none if not set or if one does not exist."""
        return self._parsed(name, [], lambda value: [_parse_folder(path) for path in _split(value)])

    def program(self, name: str) -> str:
        """Return the value, which must be the absolute path of an existing program; "" if not set."""
        return self._parsed(name, "", _parse_program)

    def time_zone(self, name: str, default: str) -> str:
        """Return the value, which must name an IANA time zone."""
        return self._parsed(name, default, _parse_time_zone)

    def texts(self, name: str) -> list[str]:
        """Return the comma-separated values; none if not set."""
        return _split(self.text(name))

    def pairs(self, name: str) -> dict[str, str]:
        """Return the comma-separated NAME=VALUE pairs, split at the last sign; none if not set."""
        return self._parsed(name, {}, _parse_pairs)

    def networks(self, name: str) -> tuple[IPv4Network | IPv6Network, ...] | None:
        """Return the comma-separated networks, () for "none"; None if not set."""
        return self._parsed(name, None, _parse_networks)

    def url(self, name: str, default: str, *, schemes: tuple[str, ...]) -> str:
        """Return the value, which must be an absolute URL of one of `schemes`."""
        return self._parsed(name, default, lambda value: _parse_url(value, schemes)).rstrip("/")

    def secrets_starting(self, prefix: str) -> dict[str, str]:
        """Return every secret whose name starts with `prefix`, also from files."""
        names = {name.removesuffix(FILE_SUFFIX) for name in self.values if name.startswith(prefix)}
        self.names.append(prefix + "*")
        documented = list(self.names)
        values = {name: self.secret(name) for name in sorted(names - {prefix})}
        self.names[:] = documented
        return {name: value for name, value in values.items() if value}

    def refuse(self, variable: str, message: str, hint: str = "") -> None:
        """Record that the value of a variable cannot be used."""
        self.problems.append(SettingProblem(variable, message, hint))

    def _parsed(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        value = self.text(name)
        if not value:
            return default
        try:
            return parse(value)
        except (ValueError, RuntimeError) as error:
            self.refuse(name, f"{name} is {value!r}, {error}.")
            return default


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _parse_pairs(value: str) -> dict[str, str]:
    pairs = {}
    for part in _split(value):
        before, sign, after = (text.strip() for text in part.rpartition("="))
        if not (before and sign and after):
            raise ValueError(f"and {part!r} in it is not of the form NAME=VALUE")
        if before in pairs:
            raise ValueError(f"and {before!r} is in it twice")
        pairs[before] = after
    return pairs


def _parse_networks(value: str) -> tuple[IPv4Network | IPv6Network, ...] | None:
    try:
        return tuple(map(ip_network, _split("" if value.lower() == "none" else value)))
    except ValueError as error:
        raise ValueError(
            "which is not a list of networks; write such as 10.1.0.0/16,127.0.0.1, or none"
        ) from error


def _parse_folder(value: str) -> str:
    if not Path(value).is_absolute() or not Path(value).is_dir():
        raise ValueError(f"but {value} is not the absolute path of a folder on this machine")
    return value


def _parse_program(value: str) -> str:
    is_program = Path(value).is_file() and os.access(value, os.X_OK)
    if not Path(value).is_absolute() or not is_program:
        raise ValueError("which is not the absolute path of a program on this machine")
    return value


def _parse_flag(value: str) -> bool:
    if value.lower() in YES:
        return True
    if value.lower() in NO:
        return False
    raise ValueError("which is neither true nor false; write 1 or 0")


def _parse_number(value: str, least: int, most: int) -> int:
    expected = f"which is not a whole number from {least} to {most}"
    try:
        number = int(value)
    except ValueError as error:
        raise ValueError(expected) from error
    if not least <= number <= most:
        raise ValueError(expected)
    return number


def _parse_choice(value: str, allowed: Mapping[str, str]) -> str:
    if value.lower() not in allowed:
        raise ValueError(f"which is not one of {', '.join(allowed.values())}")
    return allowed[value.lower()]


def _parse_time_zone(value: str) -> str:
    try:
        return ZoneInfo(value).key
    except (KeyError, OSError, ValueError) as error:
        raise ValueError("which is not a time zone; write a name such as Europe/Lisbon") from error


def _parse_url(value: str, schemes: tuple[str, ...]) -> str:
    parts = urlsplit(value)
    if parts.scheme not in schemes or not parts.hostname:
        starts = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"which is not a URL starting with {starts}")
    return value


SQLITE_OPTIONS = {
    "timeout": 20,
    # A deferred transaction that starts to write can fail at once, without waiting for the timeout.
    "transaction_mode": "IMMEDIATE",
    "init_command": (
        "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA foreign_keys=ON;"
        "PRAGMA temp_store=MEMORY;PRAGMA mmap_size=134217728;PRAGMA cache_size=-20000"
    ),
}
# Each process has its own pool, with more connections than threads. A thread that waits for one
# therefore waits for a database that is down, and its page should say so soon.
POOL_OPTIONS = {
    "min_size": 0,
    "max_size": 16,
    "timeout": 3,
    "max_idle": 120,
    # By default the pool retries a server that is down less and less often, and is late to notice it is back.
    "reconnect_timeout": 1,
}
# These detect a server that vanished within seconds. The URL can override them.
CONNECTION_OPTIONS = {
    "application_name": "evalsite",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
MAX_WAIT_FOR_A_LOCK_S = 30
EXAMPLES = "sqlite:////path/to/file.sqlite3 or postgresql://user:password@host/name"


def database_settings(url: str, *, data_dir: Path, lease_s: int) -> dict[str, Any]:
    """Return the settings of the database at `url`; of a SQLite file in `data_dir` if it is empty.

    PostgreSQL ends a session that is idle in a transaction for `lease_s` seconds, and a wait for a
    lock after the same time or half a minute. Parameters of the URL override ours.

    Raises:
        ValueError: the URL is not a database URL; the message shows an example.

    """
    scheme = urlsplit(url).scheme
    if not url:
        return _sqlite(data_dir / "evalsite.sqlite3")
    if scheme == "sqlite":
        return _sqlite_at(url)
    if scheme in ("postgres", "postgresql"):
        return _postgresql(url, lease_s)
    raise ValueError(f"does not name a database Evalsite knows; write {EXAMPLES}")


def limit_statements(database: dict[str, Any], *, seconds: int) -> None:
    """Let PostgreSQL give up each statement after so many seconds, 0 for never; parameters of the URL override it."""
    if "pool" in database["OPTIONS"]:
        own = database["OPTIONS"]["options"]
        database["OPTIONS"]["options"] = f"-c statement_timeout={seconds}s {own}"


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
        raise ValueError(f"is not a PostgreSQL URL; write {EXAMPLES}") from error
    if not options.get("dbname"):
        raise ValueError(f"names no database; write {EXAMPLES}")
    # A worker that froze while it held a run's row would block all others.
    ours = (
        f"-c idle_in_transaction_session_timeout={lease_s}s"
        f" -c lock_timeout={min(lease_s, MAX_WAIT_FOR_A_LOCK_S)}s"
        # Pages read the rows of a few runs, from memory or an SSD. By its usual cost of 4, for disks that turn,
        # PostgreSQL would rather read the scores of all runs.
        " -c random_page_cost=1.1"
        # Compiling a query that it guesses to be long takes seconds: for the home page of a million results ten
        # times as long as all the rest.
        " -c jit=off"
    )
    options["options"] = f"{ours} {options.get('options', '')}".rstrip()
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": options.pop("dbname"),
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": options.pop("host", ""),
        "PORT": options.pop("port", ""),
        # The pool tests a connection before handing it out, so none is left from before a restart.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**CONNECTION_OPTIONS, **options, "pool": POOL_OPTIONS},
    }
