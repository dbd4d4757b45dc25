"""Prepare the site and serve it, with a worker inside; Ctrl-C stops it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from io import StringIO
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError, OutputWrapper

from evalsite import version
from evalsite.data_folder import write_served_settings
from evalsite.gunicorn import ANNOUNCEMENT, CONFIG
from runs.cli.command import FAILED, SiteCommand, full_url

EPILOG = """\
Environment variables (.env.example describes all of them):
  PORT               where to listen (8000)
  EVALSITE_DATA_DIR  the folder of the database and the keys (in a clone ./data, else the
                     platform's for data of programs, ~/.local/share/evalsite on Linux)
  EVALSITE_URL       the address that people type (http://127.0.0.1:PORT)
  DATABASE_URL       PostgreSQL instead of SQLite

In a clone, scripts/up installs what is missing first, and reads a file .env. Put a site that other
machines reach behind a proxy: see “Running it in production” in the README.

exit codes:
  0  stopped by Ctrl-C or SIGTERM
  3  not served: the port is taken, or a variable has a wrong value

examples:
  evalsite up
  PORT=8001 EVALSITE_DATA_DIR=/srv/evalsite evalsite up
"""


class Command(SiteCommand):
    """Serve the site from this process."""

    help = "Prepare database and static files, then serve the site with a worker inside."
    epilog = EPILOG
    action = "The start"
    requires_migrations_checks = False

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the site, then replace this process by the server."""
        prepare_to_serve(self.stderr)
        link = call_command("login_link", "--first", stdout=StringIO())
        lead = "No member has logged in yet. This link logs you in as admin, once:"
        serve((lead, "", f"  {link}") if link else ())


def prepare_to_serve(stderr: OutputWrapper) -> None:
    """Check the port and bring database and static files up to date."""
    _check_port(settings.LISTEN, settings.PORT)
    stderr.write("Updating database and static files.")
    call_command("prepare")


def serve(announcement: Sequence[str]) -> None:
    """Replace this process by the server, which prints its address and the announcement once it serves."""
    lines = ["", f"Evalsite {version()} is at {full_url('')}.", "", *announcement]
    lines += ["", f"Ctrl-C stops it; its data stays in {settings.DATA_DIR}.", ""]
    os.environ[ANNOUNCEMENT] = "\n".join(lines)
    write_served_settings(settings.DATA_DIR, os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    server = [sys.executable, "-P", "-m", CONFIG, "-c", f"python:{CONFIG}"]
    os.execv(sys.executable, server)  # noqa: S606 - no shell is wanted


def _check_port(listen: str, port: int) -> None:
    """Raise CommandError for a port that is taken or not allowed."""
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen, port))
        except (OSError, OverflowError) as error:
            raise CommandError(
                f"Port {port} is taken or not allowed ({error}). Choose another by the variable PORT, as in "
                f"PORT={port + 1}.",
                returncode=FAILED,
            ) from error
