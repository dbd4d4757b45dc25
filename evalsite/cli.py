"""The `evalsite` command: starts workers, runs management commands, and lists them for newcomers."""

from __future__ import annotations

import ast
import difflib
import os
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from functools import cache
from pathlib import Path

from evalsite import load, version
from evalsite.data_folder import FILES, ROOT, adopt_served_settings, demo_data_folder

FOLDERS = ("evalsite", "evalsite/access", "evaluators", "runs")
# In the order in which a newcomer needs them; all others follow.
FIRST = (
    *("demo", "up", "createadmin", "login_link"),
    *("import", "evaluate", "resume", "results", "compare"),
    *("list", "show", "validate", "target", "baseline"),
    *("export", "import_results", "add_model"),
)
# These work against a site elsewhere, too. The others below run or prepare a site, or need none; all the rest
# are about the data of a site, and only on its own machine.
REMOTE = ("import", "evaluate", "compare", "export")
OF_THIS_MACHINE = (
    *("up", "worker", "demo", "prepare", "check", "createadmin", "login_link", "completion"),
    *("validate", "reap", "retention"),
)
# The way to the same end on a site elsewhere.
BY_API = {
    "draft": "A site elsewhere drafts cases on its Cases page, or by POST /api/suites/SUITE/draft-cases. ",
    "align": "A site elsewhere aligns on its Agreement page, or by POST /api/suites/SUITE/alignments. ",
}
SERVER, SERVER_OPTION = "EVALSITE_SERVER", "--server"
WORKER = "worker"
WORKER_SENTENCE = "Execute runs in a separate process, on this machine or another; needs Redis."
WORKER_HELP = f"""\
usage: evalsite worker [OPTION …]

{WORKER_SENTENCE}
Give it the database, the keys and CELERY_BROKER_URL of the site.
Start as many as you like: they share the waiting results.
Ctrl-C ends it after the calls in progress.

options:
  -n, --hostname NAME      Name of the process; give each worker of a machine its own.
  -c, --concurrency N      How many runs it works on at the same time; those of one member take
                           all places but one.
  -l, --loglevel LEVEL     DEBUG, INFO (default), WARNING or ERROR.
  -f, --logfile FILE       Write messages to a file instead of standard error.
All other options of a Celery worker work too: celery -A evalsite worker --help lists them.

exit codes:
  0  it was stopped
  1  it could not start: the message names the reason

examples:
  evalsite worker
  evalsite worker --hostname second@%h --concurrency 2
"""
WIDTH = 78
# Of 1; a slip of a finger is more alike, another word less.
LIKENESS = 0.7
BEGIN, END = (
    "usage: evalsite COMMAND …   (evalsite COMMAND --help describes one in full)\n",
    f"""
import, evaluate, compare and export also work against a site elsewhere: evalsite evaluate
--server URL --help. Commands of Django, such as dbshell and shell: evalsite help --commands.
evalsite --version tells which one this is. Environment variables are documented in
{FILES / "examples" / ".env.example"}
""",
)


@cache
def _command_files() -> dict[str, Path | None]:
    """Return the module of each command of Evalsite, in the order of their list; that of Celery has none."""
    modules = {
        path.stem: path
        for folder in FOLDERS
        for path in (ROOT / folder / "management" / "commands").glob("[!_]*.py")
    }
    names = [name for name in FIRST if name in modules]
    names += sorted(modules.keys() - set(FIRST))
    return {name: modules[name] for name in names} | {WORKER: None}


@cache
def own_commands() -> dict[str, str]:
    """Return a sentence about each command of Evalsite, without importing any of them."""
    return {
        name: _sentence(path) if path else WORKER_SENTENCE
        for name, path in _command_files().items()
    }


def _is_own(word: str) -> bool:
    """Tell whether a word names a command of Evalsite, without reading the sentences of all."""
    return word in _command_files()


def overview() -> str:
    """Return the list of commands as text."""
    width = max(map(len, own_commands())) + 4
    lines = []
    for name, sentence in own_commands().items():
        first, *more = textwrap.wrap(sentence, WIDTH - width)
        lines.append(f"  {name:<{width - 2}}{first}")
        lines += [f"{'':<{width}}{part}" for part in more]
    return "\n".join((BEGIN, *lines, END))


def command_name(word: str) -> str:
    """Return the word with underscores if that names one of our commands, else unchanged."""
    name = word.replace("-", "_")
    return name if _is_own(name) else word


def unknown_command_message(word: str, known: Iterable[str]) -> str:
    """Return the message for an unknown command, with similar names."""
    similar = difflib.get_close_matches(
        word, sorted({*own_commands(), *known}), n=2, cutoff=LIKENESS
    )
    question = f" Did you mean {' or '.join(similar)}?" if similar else ""
    return f"There is no command {word!r}.{question} evalsite --help lists them."


def _sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


WORKER_OPTIONS = ("--pool", "threads", "--without-gossip", "--without-mingle")
HELP = ("-h", "--help", "help")
VERSION = ("--version", "-V", "version")
BUILT_IN = "help"
MISUSED = 2
# The convention of shells: 128 plus the number of the signal.
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run a worker for `evalsite worker`, a management command for anything else.

    Ctrl-C ends a command with a sentence unless the command handles it.
    """
    # What was started with a closed output writes to nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    try:
        _run(sys.argv if argv is None else argv)
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted by Ctrl-C.\n")
        sys.exit(INTERRUPTED)


def _run(argv: Sequence[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    if os.environ.get("NO_COLOR"):
        os.environ["DJANGO_COLORS"] = "nocolor"
    program, *words = argv
    if not words or (words[0] in HELP and len(words) == 1):
        sys.stdout.write(overview())
        return
    if words[0] in VERSION:
        sys.stdout.write(f"evalsite {version()}\n")
        return
    words[0] = command_name(words[0])
    if server := _server(words, os.environ):
        _run_remote(words, server)
    elif words[0] == WORKER:
        _run_worker(words[1:])
    else:
        _run_command([program, *words])


def _server(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return how the command names a site elsewhere: by the option, the variable, or "" for not at all."""
    if any(word.partition("=")[0] == SERVER_OPTION for word in words):
        return SERVER_OPTION
    is_about_data = _is_own(words[0]) and words[0] not in OF_THIS_MACHINE
    return SERVER if is_about_data and environment.get(SERVER, "").strip() else ""


def _run_remote(words: Sequence[str], server: str) -> None:
    if words[0] not in REMOTE:
        site = server if server == SERVER_OPTION else f"{SERVER} ({os.environ[SERVER]})"
        remedy = "Leave the option out" if server == SERVER_OPTION else "Unset the variable"
        sys.stderr.write(
            f"{words[0]} works only on the machine of the site, not with {site}; {', '.join(REMOTE[:-1])} and "
            f"{REMOTE[-1]} do. {BY_API.get(words[0], '')}{remedy} to use the site in EVALSITE_DATA_DIR.\n"
        )
        sys.exit(MISUSED)
    from evalsite.remote.commands import main as run_remotely

    sys.exit(run_remotely(words))


def _run_worker(options: Sequence[str]) -> None:
    if set(options) & set(HELP):
        sys.stdout.write(WORKER_HELP)
        return
    from evalsite.celery import app

    app.worker_main(["worker", "--loglevel", "INFO", *WORKER_OPTIONS, *options])


def _run_command(argv: list[str]) -> None:
    """Run a command; the exit code of an unknown one differs from that of a failed gate."""
    from django.core.management import execute_from_command_line

    word = argv[1]
    if word == "demo":
        set_demo_variables(os.environ)
    if word in ("demo", "up"):
        set_local_address(os.environ)
    else:
        adopt_served_settings(os.environ)
    if not (_is_own(word) or word == BUILT_IN or word.startswith("-")):
        known = _django_commands()
        if word not in known:
            sys.stderr.write(f"{unknown_command_message(word, known)}\n")
            sys.exit(MISUSED)
    load()
    execute_from_command_line(argv)


def set_local_address(environment: MutableMapping[str, str]) -> None:
    """Set EVALSITE_URL to the address on this machine if it is unset.

    This happens before the settings are read: without an address they expect https.
    """
    if not environment.get("EVALSITE_URL", "").strip():
        port = environment.get("PORT", "").strip() or "8000"
        environment["EVALSITE_URL"] = f"http://127.0.0.1:{port}"


def set_demo_variables(environment: MutableMapping[str, str]) -> None:
    """Set what makes a site the demo, where it is unset: a data folder of its own, and the programs of the examples.

    One of the examples is an agent that runs, judged by scripts that run, all of them ours.
    """
    for name, value in {
        "EVALSITE_DATA_DIR": str(demo_data_folder(environment)),
        "EVALSITE_DEMO": "1",
        "EVALSITE_SCRIPTS": "1",
        "EVALSITE_AGENTS_DIR": str(FILES / "examples"),
    }.items():
        if not environment.get(name, "").strip():
            environment[name] = value


def _django_commands() -> Collection[str]:
    from django.core.management import get_commands

    load()
    return get_commands()
