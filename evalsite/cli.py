"""The `evalsite` command: workers and everything that manage.py can do."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, MutableMapping, Sequence

from evalsite.commands import WORKER, overview, own_commands, own_name, unknown
from evalsite.loading import load
from evalsite.serving import follow_served

WORKER_OPTIONS = ("--pool", "threads", "--without-gossip", "--without-mingle")
HELP = ("-h", "--help", "help")
BUILT_IN = ("help", "version")
NOT_UNDERSTOOD = 2
# As shells have it: 128 and the number of the signal.
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run a worker for `evalsite worker`, a management command for anything else.

    Ctrl-C where a command has no answer of its own to it, as while it is loaded, ends it in a sentence.
    """
    try:
        _run(sys.argv if argv is None else argv)
    except KeyboardInterrupt:
        sys.stderr.write("\nEnded by Ctrl-C before it was done.\n")
        sys.exit(INTERRUPTED)


def _run(argv: Sequence[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    program, *words = argv
    if not words or (words[0] in HELP and len(words) == 1):
        sys.stdout.write(overview())
        return
    words[0] = own_name(words[0])
    if words[0] == WORKER:
        _work(words[1:])
    else:
        _manage([program, *words])


def _work(options: Sequence[str]) -> None:
    from evalsite.celery import app

    app.worker_main(["worker", "--loglevel", "INFO", *WORKER_OPTIONS, *options])


def _manage(argv: list[str]) -> None:
    """Run a command; an unknown one ends with another exit code than a gate that failed."""
    from django.core.management import execute_from_command_line

    word = argv[1]
    if word == "up":
        name_address(os.environ)
    else:
        follow_served(os.environ)
    if not (word in own_commands() or word in BUILT_IN or word.startswith("-")):
        known = _commands_of_django()
        if word not in known:
            sys.stderr.write(f"{unknown(word, known)}\n")
            sys.exit(NOT_UNDERSTOOD)
    load()
    execute_from_command_line(argv)


def name_address(environment: MutableMapping[str, str]) -> None:
    """Have the site know its address on this machine where it was told no other.

    Before the settings are read: without an address they expect https.
    """
    if not environment.get("EVALSITE_URL", "").strip():
        port = environment.get("PORT", "").strip() or "8000"
        environment["EVALSITE_URL"] = f"http://127.0.0.1:{port}"


def _commands_of_django() -> Collection[str]:
    from django.core.management import get_commands

    load()
    return get_commands()
