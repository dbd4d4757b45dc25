"""The `evalsite` command: workers, and everything that manage.py can do, listed for people who see it for the first time."""

from __future__ import annotations

import ast
import difflib
import os
import sys
import textwrap
from collections.abc import Collection, Iterable, MutableMapping, Sequence
from functools import cache
from pathlib import Path

from evalsite.celery import load
from evalsite.data_folder import ROOT, follow_served

FOLDERS = ("evalsite", "evalsite/access", "evaluators", "runs")
# In the order in which a newcomer needs them; what is not named here follows.
FIRST = (
    *("up", "createadmin", "login_link", "import", "evaluate", "compare", "export"),
    *("import_results", "add_model", "demo"),
)
WORKER = "worker"
WORKER_SENTENCE = "Carry out runs beside the site, on this machine or another; needs Redis."
WIDTH = 78
BEGIN, END = (
    "usage: evalsite COMMAND …   (evalsite COMMAND --help tells everything about one)\n",
    """
Every variable of the environment that changes something is in .env.example. Commands of Django,
such as check, dbshell and shell: evalsite help --commands
""",
)


@cache
def own_commands() -> dict[str, str]:
    """Return what each command of Evalsite does in a sentence, without loading any of them."""
    modules = {
        path.stem: path
        for folder in FOLDERS
        for path in (ROOT / folder / "management" / "commands").glob("[!_]*.py")
    }
    names = [name for name in FIRST if name in modules]
    names += sorted(modules.keys() - set(FIRST))
    found = {name: _sentence(modules[name]) for name in names}
    return {**found, WORKER: WORKER_SENTENCE}


def overview() -> str:
    """Return the commands, one a line or two."""
    width = max(map(len, own_commands())) + 4
    lines = []
    for name, sentence in own_commands().items():
        first, *more = textwrap.wrap(sentence, WIDTH - width)
        lines.append(f"  {name:<{width - 2}}{first}")
        lines += [f"{'':<{width}}{part}" for part in more]
    return "\n".join((BEGIN, *lines, END))


def own_name(word: str) -> str:
    """Return the name of one of our commands, also where it is spelt with hyphens; else the word."""
    name = word.replace("-", "_")
    return name if name in own_commands() else word


def unknown(word: str, known: Iterable[str]) -> str:
    """Return what to say to somebody who named a command that does not exist, but perhaps nearly."""
    close = difflib.get_close_matches(word, sorted({*own_commands(), *known}), n=2)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"There is no command {word!r}.{meant} evalsite --help lists them."


def _sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


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
