"""Scripts of a suite's author: their settings, their files, and the program that they become."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from posixpath import dirname, normpath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

# What each file is run with that has no `#!` of its own.
INTERPRETERS = {
    **{".py": "python3", ".sh": "sh", ".bash": "bash", ".rb": "ruby", ".pl": "perl"},
    **{".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node", ".php": "php", ".lua": "lua"},
}
# Beside the suite file these are suites and cases, which no script imports.
SUITES = (".yaml", ".yml", ".jsonl")
MAX_FILES = 500
MAX_BYTES = 20 * 1024 * 1024
LEADS_UP = re.compile(r"\A(?:file:(?://)?)?(\.{1,2}/\S+)\Z")
WORDS = re.compile(r"[\w./-]+")


class TooManyFilesError(ValueError):
    """A script's folder holds more than is laid out for every run of it."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Settings whose references are looked up: the files they need, and the names of the missing."""

    config: dict[str, Any]
    files: Mapping[str, bytes]
    missing: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


def placed(config: Mapping[str, Any], folder: str, files: Mapping[str, bytes]) -> Placed:
    """Return a script's settings as they are stored, with the files of the suite that it may read.

    `folder` is where the suite file stands; references count from there, or from `cwd`. A script
    gets every file that was given in its own folder and below, hidden ones left out, and beside the suite
    file other suites too. Raises TooManyFilesError.
    """
    stored = dict(config)
    cwd = normpath(f"{folder}/{stored.get('cwd') or '.'}") if folder else stored.get("cwd") or "."
    cwd = normpath(cwd) if isinstance(cwd, str) else "."
    if cwd.startswith(("..", "/")):
        return Placed(stored, {}, outside=(str(stored.get("cwd") or ""),))
    stored["cwd"] = "" if cwd == "." else cwd
    if isinstance(stored.get("command"), list | tuple):
        stored["command"] = [_plain(part) for part in stored["command"]]
    found: dict[str, bytes] = {}
    missing: list[str] = []
    outside: list[str] = []
    for name, must_exist in _references(stored, files, cwd):
        path = path_named(name, cwd)
        if path in files:
            found |= _around(path, files, folder)
        elif not path and must_exist:
            outside.append(name)
        elif must_exist:
            missing.append(name)
    return Placed(stored, found, tuple(missing), tuple(outside))


def _references(
    config: Mapping[str, Any], files: Mapping[str, bytes], cwd: str
) -> Iterator[tuple[str, bool]]:
    """Yield what names a file of the suite, and whether there must be one."""
    command = config.get("command")
    for part in command if isinstance(command, list | tuple) else ():
        if isinstance(part, str) and LEADS_UP.match(part):
            yield part, True
        elif isinstance(part, str) and not part.startswith(("-", "/")):
            suffix = f".{part.rpartition('.')[2]}" if "." in part else ""
            is_script = suffix in INTERPRETERS and not re.search(r"\s", part)
            if is_script or path_named(part, cwd) in files:
                yield part, is_script
    script = config.get("script")
    if isinstance(script, str):
        stays = "\n" not in script.strip() and "cd " not in script
        for word in WORDS.findall(script):
            yield word, stays and _is_script_path(word)


def _is_script_path(word: str) -> bool:
    return bool(LEADS_UP.match(word)) and any(word.endswith(suffix) for suffix in INTERPRETERS)


def _plain(part: Any) -> Any:
    """Return a reference without the scheme it may be written with."""
    match = LEADS_UP.match(part) if isinstance(part, str) else None
    return match.group(1) if match else part


def path_named(reference: str, cwd: str) -> str:
    """Return the path a reference means among the files of the suite; "" when it leads outside."""
    match = LEADS_UP.match(reference)
    path = normpath(f"{cwd}/{match.group(1) if match else reference.lstrip('/')}")
    return "" if path.startswith(("..", "/")) else path


def _around(path: str, files: Mapping[str, bytes], of_suite: str) -> dict[str, bytes]:
    """Return a file with all that lie in its folder and below; raises TooManyFilesError."""
    folder = dirname(path)
    before = f"{folder}/" if folder else ""
    names = {name for name in files if name.startswith(before)} | {path}
    names = {name for name in names if name == path or not _is_hidden(name[len(before) :])}
    if folder == of_suite:
        names -= {n for n in names if dirname(n) == folder and n.endswith(SUITES) and n != path}
    found: dict[str, bytes] = {}
    for name in sorted(names):
        found[name] = files[name]
        if len(names) > MAX_FILES or sum(map(len, found.values())) > MAX_BYTES:
            raise TooManyFilesError(
                f"the folder of {path!r} holds more than a script can take along: {len(names)} files, of "
                f"which it may have {MAX_FILES} with {MAX_BYTES // 1024**2} MB; put the script into a "
                "folder of its own"
            )
    return found


def _is_hidden(name: str) -> bool:
    parts = [part for part in name.split("/") if part]
    return any(part.startswith(".") or part == "__pycache__" for part in parts)


MAX_SECONDS = 3600
SCRIPT_FILE = ".evalsite/script"
OUTPUT_FILE = ".evalsite/output"
# A text without any of these is one command, whose words stand for themselves.
SHELL_SIGNS = re.compile(r"\A\S*=|[\n;&|<>$`()*?\[\]{}~#!\\]")
# The directory is known only where the script runs; the one it starts in may hold no file of the
# suite, as beside scripts named by `../`. `python` is python3 where there is no other.
LAUNCHER = (
    'EVAL_OUTPUT_FILE="$PWD/.evalsite/output"; export EVAL_OUTPUT_FILE; '
    'mkdir -p "$1" && cd "$1" || exit 127; shift; '
    'if [ "$1" = python ] && ! command -v python >/dev/null 2>&1; then shift; set -- python3 "$@"; fi; '
    'exec "$@"'
)
# The shell's own words: no program of that name could be started.
SHELL_WORDS = frozenset(
    [
        "cd",
        "exit",
        "export",
        "set",
        "unset",
        "eval",
        "source",
        ".",
        ":",
        "exec",
        "if",
        "for",
        "while",
        "case",
    ]
)
PROGRAM = ("command", "script")
NAMES = {
    **{"cmd": "command", "run": "script", "code": "script", "path": "script"},
    **{"timeout": "timeout_s", "timeout_seconds": "timeout_s"},
}


class ScriptSettings(BaseModel):
    """The program and what it may use; where both forms of it stand, the kind says so."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    command: tuple[str, ...] = Field(
        (),
        description="The program with its arguments, one a line. Parts such as ./judges/x.py name files "
        "of the suite.",
    )
    script: str = Field(
        "",
        description="The script itself in place of a command; its first line may name an interpreter "
        "(#!/usr/bin/env python3), else sh runs it.",
        json_schema_extra={"widget": "textarea"},
    )
    cwd: str = Field(
        "",
        title="Starts in",
        description="Folder of the suite's files the program starts in. Empty: the suite's own.",
    )
    timeout_s: float | None = Field(
        None,
        title="Time-out, seconds",
        gt=0,
        le=MAX_SECONDS,
        description="How long it may take. Empty: 60. The site's own limit is never exceeded.",
    )
    network: bool = Field(
        False, description="Ask for the network; the site must allow it to scripts as well."
    )
    config: Mapping[str, Any] = Field(
        default_factory=dict, description="Whatever the script wants to be told: config on stdin."
    )

    @model_validator(mode="before")
    @classmethod
    def _takes_one_form(cls, values: Any) -> Any:
        """Take a command for a list and a script for a text, under whichever name they stand."""
        return in_one_form(values) if isinstance(values, Mapping) else values

    @property
    def program_problem(self) -> str:
        """Say what is wrong with the program, "" when there is one."""
        return "" if self.command or self.script.strip() else "needs a command or a script"


Protocol = Literal["env", "stdin"]


@dataclass(frozen=True, slots=True)
class Program:
    """What is started and the files it needs beside those of the suite."""

    command: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)


def in_one_form(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with a command as a list and a script as a text; raises ValueError for both."""
    found = dict(values)
    given = [
        value for name in PROGRAM if (value := found.pop(name, None)) not in (None, "", [], ())
    ]
    if len(given) > 1:
        raise ValueError("command and script are both set; keep one")
    return {**found, **dict(_program(value) for value in given)}


def named_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file says of a script under the names of its settings.

    A list is a command wherever it stands; a text is one when it is a single command without any
    sign of the shell, else a script. What says the same twice is left for the settings to refuse.
    """
    found: dict[str, Any] = {}
    for key, given in values.items():
        name, value = NAMES.get(key, key), given
        if name in PROGRAM:
            name, value = _program(given)
        found[f"{key}_again" if name in found else name] = value
    return found


def read_program(settings: ScriptSettings, files: Mapping[str, bytes]) -> Program:
    """Return what starts the script in the directory that holds the files of the suite."""
    if settings.script.strip():
        content = settings.script.encode("utf-8", "surrogatepass")
        up = "/".join(".." for part in settings.cwd.split("/") if part)
        name = f"{up}/{SCRIPT_FILE}" if up else f"./{SCRIPT_FILE}"
        command = (*(_shebang(content) or ("sh",)), name)
        return Program(_launched(command, settings.cwd), {SCRIPT_FILE: content})
    first = path_named(settings.command[0], settings.cwd or ".")
    before = _interpreter(first, files[first]) if first in files else ()
    return Program(_launched((*before, *settings.command), settings.cwd))


def _program(value: Any) -> tuple[str, Any]:
    if not isinstance(value, str):
        return "command", value
    text = value.strip()
    if not text or SHELL_SIGNS.search(text):
        return "script", value
    try:
        words = shlex.split(text)
    except ValueError:
        return "script", value
    return ("script", value) if words[0] in SHELL_WORDS else ("command", words)


def _interpreter(path: str, content: bytes) -> tuple[str, ...]:
    """Return what runs a file of the suite: by its first line, else by the end of its name."""
    if content.startswith(b"\x7fELF"):
        return ()
    suffix = f".{path.rpartition('.')[2]}" if "." in path.rpartition("/")[2] else ""
    named = _shebang(content)
    return named or ((INTERPRETERS[suffix],) if suffix in INTERPRETERS else ("sh",))


def _shebang(content: bytes) -> tuple[str, ...]:
    """Return the interpreter that the first line names, () when it names none."""
    first = content.partition(b"\n")[0].decode("utf-8", "replace").strip()
    if not first.startswith("#!"):
        return ()
    words = first[2:].split()
    if words and words[0].endswith("/env"):
        words = [word for word in words[1:] if word != "-S"]
    return tuple(words)


def _launched(command: tuple[str, ...], cwd: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", LAUNCHER, "sh", f"./{cwd}" if cwd else ".", *command)
