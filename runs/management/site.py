"""The site a command works on: told by its database, and begun where there is none yet."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

COULD_NOT = 3
# Where there is a site, one of these tables has a row.
FILLED_FIRST = ("auth_user", "runs_suite")


def site_words() -> str:
    """Return which database it is and what names it, without a password."""
    database = settings.DATABASES["default"]
    if _is_sqlite():
        named_by = "DATABASE_URL" if settings.DATABASE_URL else "EVALSITE_DATA_DIR"
        return f"{database['NAME']} (by {named_by})"
    host = database.get("HOST") or "this machine"
    return f"{database['NAME']} at {host} (by DATABASE_URL)"


def begin_site() -> str:
    """Make the tables of a SQLite database that holds nothing yet; returns what to say, "" if nothing.

    A database of a server, and one that holds a site, are prepared by whoever serves that.
    """
    if not _is_sqlite() or (_has_file() and (_holds_a_site() or not _lacks_tables())):
        return ""
    call_command("migrate", interactive=False, verbosity=0)
    return f"New site in {settings.DATA_DIR}: its database is {site_words()}."


def check_site() -> None:
    """Raise CommandError where there is no SQLite database: to connect would make an empty one."""
    if _is_sqlite() and not _has_file():
        raise CommandError(
            f"There is no site here: the database {site_words()} does not exist. Name the folder of "
            f"another site, EVALSITE_DATA_DIR=data/demo for the demo's, or begin one: evalsite up.",
            returncode=COULD_NOT,
        )


def _holds_a_site() -> bool:
    """Tell whether anything was stored; a begin that was interrupted left tables without a row."""
    tables = connection.introspection.table_names()
    with connection.cursor() as cursor:
        for name in FILLED_FIRST:
            if name in tables and cursor.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone():  # noqa: S608 - ours
                return True
    return False


def _lacks_tables() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _is_sqlite() -> bool:
    return connection.vendor == "sqlite"


def _has_file() -> bool:
    return Path(str(connection.settings_dict["NAME"])).exists()
