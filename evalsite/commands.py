"""The commands of Evalsite by name, told to somebody who sees them for the first time."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
