"""Update database and static files before the site is served."""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command

from runs.cli.command import SiteCommand, migrate

STAMP = "stamp"
PACKAGES_WITH_FILES = ("django-htmx", "drf-spectacular-sidecar")


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
        stamp_file, stamp = settings.STATIC_MANIFEST.parent / STAMP, static_stamp()
        if stamp_file.exists() and stamp_file.read_text() == stamp:
            return
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp_file.write_text(stamp)


def static_stamp() -> str:
    """Return a hash that changes with every file the site serves."""
    digest = hashlib.sha256()
    for package in PACKAGES_WITH_FILES:
        digest.update(importlib.metadata.version(package).encode())
    for folder in map(Path, settings.STATICFILES_DIRS):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()
