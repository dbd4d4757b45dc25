"""The site a command works on: told by its database, and begun where there is none yet."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

COULD_NOT = 3


def site_words() -> str:
    """Return which database it is and what names it, without a password."""
    database = settings.DATABASES["default"]
    if _is_sqlite():
        named_by = "DATABASE_URL" if settings.DATABASE_URL else "EVALSITE_DATA_DIR"
        return f"{database['NAME']} (by {named_by})"
    host = database.get("HOST") or "this machine"
    return f"{database['NAME']} at {host} (by DATABASE_URL)"


def begin_site() -> str:
    """Make the tables of a SQLite database that is new or empty; returns what to say, "" if nothing.

    A database of a server is prepared by whoever serves the site.
    """
    if not _is_sqlite() or (_has_file() and connection.introspection.table_names()):
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


def _is_sqlite() -> bool:
    return connection.vendor == "sqlite"


def _has_file() -> bool:
    return Path(str(connection.settings_dict["NAME"])).exists()
