"""Update database and static files before the site is served."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command

from evalsite.static_files import are_collected, stamp_file, static_stamp
from runs.cli.command import SiteCommand, migrate

EPILOG = """\
Run it after every upgrade, before the site and its workers start. `evalsite up` runs it too.

exit codes:
  0  everything is up to date
  3  a variable has a wrong value, or the database or a folder cannot be used

example:
  evalsite prepare
"""


class Command(SiteCommand):
    """Check the configuration, migrate, and collect the static files if any has changed."""

    help = "Update database and static files before the site is served."
    epilog = EPILOG
    action = "The preparation"
    requires_migrations_checks = False

    def handle(self, *args: Any, **options: Any) -> None:
        """Run migrate and collectstatic in one process."""
        migrate()
        if are_collected():
            return
        stamp = static_stamp()
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp_file().write_text(stamp)
