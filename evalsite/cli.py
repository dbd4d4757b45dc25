"""The `evalsite` command: Django's management commands, from any folder."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Run the command that the arguments name."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    execute_from_command_line(sys.argv)
