"""The `evalsite` command: workers and everything that manage.py can do."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

WORKER_OPTIONS = ("--pool", "threads", "--without-gossip", "--without-mingle")


def main() -> None:
    """Run a worker for `evalsite worker`, a management command for anything else."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    if sys.argv[1:2] == ["worker"]:
        from evalsite.celery import app

        app.worker_main(["worker", "--loglevel", "INFO", *WORKER_OPTIONS, *sys.argv[2:]])
    else:
        execute_from_command_line(sys.argv)
