"""Serve the demo: example suites that are really run, judged by scripted replies; Ctrl-C stops it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError

from evalsite.data_folder import FILES
from evalsite.management.commands.up import prepare_to_serve, serve
from evaluators.models import LanguageModel
from runs.cli.command import FAILED, SiteCommand

EPILOG = """\
Safe to repeat: nothing is loaded or run twice. The replies were written for these examples and
cost nothing.

Environment variables (.env.example describes all of them):
  PORT               where to listen (8000)
  EVALSITE_DATA_DIR  the folder of the demo's database and keys (demo in the folder of `evalsite up`)
  OPENAI_API_KEY     adds a target with a real model to the suite quick-check

exit codes:
  0  stopped by Ctrl-C or SIGTERM
  3  not served: the port is taken, or a variable has a wrong value

examples:
  evalsite demo
  PORT=8001 evalsite demo
"""


class Command(SiteCommand):
    """Load the examples, then serve the site from this process, with the scripted judge beside it."""

    help = "Serve a demo of example suites that are really run, judged by scripted replies."
    epilog = EPILOG
    action = "The demo"
    requires_migrations_checks = False

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the site and its examples, then replace this process by the server."""
        prepare_to_serve(self.stderr)
        judge = _start_judge()
        self.stderr.write("Loading the examples.")
        call_command("load_examples", "--judge-url", judge)
        _follow_up(judge)
        link = call_command("login_link", stdout=StringIO())
        folder = f"EVALSITE_DATA_DIR={settings.DATA_DIR}"
        serve(
            [
                *("This link logs you in, once:", "", f"  {link}", ""),
                f"Another one: {folder} evalsite login_link",
                "Every command of evalsite --help works on the demo with that variable.",
            ]
        )


def _follow_up(judge: str) -> subprocess.Popen[str]:
    """Start the process that judges a first run again once the server's workers have completed it."""
    command = [sys.executable, "-m", "django", "load_examples", "--follow-ups"]
    # It finds everything loaded already, so it prints only errors, into the log of the server.
    return _start_beside([*command, "--judge-url", judge, "--verbosity", "0"])


def _start_judge() -> str:
    """Start the scripted judge and return its address; it outlives Ctrl-C, because calls in progress wait for it."""
    program = [sys.executable, str(FILES / "examples" / "scripted_judge.py")]
    program += ["--port", str(_judge_port())]
    program += ["--until-input-ends", "--ready-file", "/dev/stdout"]
    judge = _start_beside(program, stdout=subprocess.PIPE)
    address = next(iter(judge.stdout or ()), "").strip()
    if not address:
        message = "The scripted judge did not start: see its messages above."
        raise CommandError(message, returncode=FAILED)
    return address


def _judge_port() -> int:
    """Return the port of the judge of an earlier demo, which at another would be another judge; 0 for any free one."""
    addresses = LanguageModel.objects.filter(slug="scripted-judge").values_list(
        "base_url", flat=True
    )
    port = next((urlsplit(address).port for address in addresses), None) or 0
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return 0
    return port


def _start_beside(command: list[str], *, stdout: int | None = None) -> subprocess.Popen[str]:
    """Start a process that ends with its standard input.

    It does when nobody holds the other end any more: neither this process, nor the server that replaces it, nor a
    process of that.
    """
    read_end, write_end = os.pipe()
    started = subprocess.Popen(  # noqa: S603 - ours
        command, stdin=read_end, stdout=stdout, text=True, process_group=0
    )
    os.close(read_end)
    os.set_inheritable(write_end, True)
    return started
