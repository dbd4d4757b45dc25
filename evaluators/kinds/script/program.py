"""Scripts in suites: their settings, their files, and the program that runs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import dirname, normpath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

# The interpreters of files that have no `#!` line.
INTERPRETERS = {
    **{".py": "python3", ".sh": "sh", ".bash": "bash", ".rb": "ruby", ".pl": "perl"},
    **{".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node", ".php": "php", ".lua": "lua"},
}
# Next to the suite file these are suites and cases, which no script imports.
SUITES = (".yaml", ".yml", ".jsonl")
MAX_FILES = 500
MAX_BYTES = 20 * 1024 * 1024
LEADS_UP = re.compile(r"\A(?:file:(?://)?)?(\.{1,2}/\S+)\Z")
WORDS = re.compile(r"[\w./-]+")


class TooManyFilesError(ValueError):
    """A script's folder has more files than can be copied for every run."""


@dataclass(frozen=True, slots=True)
class LocatedScript:
    """The settings of a script, the files it needs, and references to missing files."""

    config: dict[str, Any]
    files: Mapping[str, bytes]
    missing: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


def locate_script(
    config: Mapping[str, Any], folder: str, files: Mapping[str, bytes]
) -> LocatedScript:
    """Return a script's settings as they are stored, with the files of the suite that it may read.

    `folder` is the folder of the suite file; references are relative to it or to `cwd`. A script gets all
    files in its own folder and below, except hidden files and, next to the suite file, other suites.
    Raises TooManyFilesError.
    """
    stored = dict(config)
    cwd = normpath(f"{folder}/{stored.get('cwd') or '.'}") if folder else stored.get("cwd") or "."
    cwd = normpath(cwd) if isinstance(cwd, str) else "."
    if cwd.startswith(("..", "/")):
        return LocatedScript(stored, {}, outside=(str(stored.get("cwd") or ""),))
    stored["cwd"] = "" if cwd == "." else cwd
    if isinstance(stored.get("command"), list | tuple):
        stored["command"] = [_plain(part) for part in stored["command"]]
    needed: dict[str, bytes] = {}
    missing: list[str] = []
    outside: list[str] = []
    for name, must_exist in _references(stored, files, cwd):
        path = referenced_path(name, cwd)
        if path in files:
            needed |= _files_around(path, files, folder)
        elif not path and must_exist:
            outside.append(name)
        elif must_exist:
            missing.append(name)
    return LocatedScript(stored, needed, tuple(missing), tuple(outside))


def _references(
    config: Mapping[str, Any], files: Mapping[str, bytes], cwd: str
) -> Iterator[tuple[str, bool]]:
    """Yield every reference to a file of the suite, and whether the file must exist."""
    command = config.get("command")
    for part in command if isinstance(command, list | tuple) else ():
        if isinstance(part, str) and LEADS_UP.match(part):
            yield part, True
        elif isinstance(part, str) and not part.startswith(("-", "/")):
            suffix = f".{part.rpartition('.')[2]}" if "." in part else ""
            is_script = suffix in INTERPRETERS and not re.search(r"\s", part)
            if is_script or referenced_path(part, cwd) in files:
                yield part, is_script
    script = config.get("script")
    if isinstance(script, str):
        stays = "\n" not in script.strip() and "cd " not in script
        for word in WORDS.findall(script):
            yield word, stays and _is_script_path(word)


def _is_script_path(word: str) -> bool:
    return bool(LEADS_UP.match(word)) and any(word.endswith(suffix) for suffix in INTERPRETERS)


def _plain(part: Any) -> Any:
    """Return a reference without the scheme `file:`."""
    match = LEADS_UP.match(part) if isinstance(part, str) else None
    return match.group(1) if match else part


def referenced_path(reference: str, cwd: str) -> str:
    """Return the path of a reference in the suite, "" if it leads outside."""
    match = LEADS_UP.match(reference)
    path = normpath(f"{cwd}/{match.group(1) if match else reference.lstrip('/')}")
    return "" if path.startswith(("..", "/")) else path


def _files_around(path: str, files: Mapping[str, bytes], suite_folder: str) -> dict[str, bytes]:
    """Return a file with all files in its folder and below; raises TooManyFilesError."""
    folder = dirname(path)
    prefix = f"{folder}/" if folder else ""
    names = {name for name in files if name.startswith(prefix)} | {path}
    names = {name for name in names if name == path or not _is_hidden(name[len(prefix) :])}
    if folder == suite_folder:
        names -= {n for n in names if dirname(n) == folder and n.endswith(SUITES) and n != path}
    needed: dict[str, bytes] = {}
    for name in sorted(names):
        needed[name] = files[name]
        if len(names) > MAX_FILES or sum(map(len, needed.values())) > MAX_BYTES:
            raise TooManyFilesError(
                f"the folder of {path!r} is too large for a script: it has {len(names)} files, and at most "
                f"{MAX_FILES} files with {MAX_BYTES // 1024**2} MB are allowed; put the script into its own folder"
            )
    return needed


def _is_hidden(name: str) -> bool:
    parts = [part for part in name.split("/") if part]
    return any(part.startswith(".") or part == "__pycache__" for part in parts)


MAX_SECONDS = 3600
SCRIPT_FILE = ".evalsite/script"
OUTPUT_FILE = ".evalsite/output"
# A text without any of these is a single command.
SHELL_SYNTAX = re.compile(r"\A\S*=|[\n;&|<>$`()*?\[\]{}~#!\\]")
# The folder is known only where the script runs, and `cwd` may not exist yet, as with scripts in `../`.
# `python` is python3 where there is no other.
LAUNCHER = (
    'EVAL_OUTPUT_FILE="$PWD/.evalsite/output"; export EVAL_OUTPUT_FILE; '
    'mkdir -p "$1" && cd "$1" || exit 127; shift; '
    'if [ "$1" = python ] && ! command -v python >/dev/null 2>&1; then shift; set -- python3 "$@"; fi; '
    'exec "$@"'
)
# Builtins of the shell: no program of that name exists.
SHELL_BUILTINS = frozenset(
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
# Linux starts no program with an argument of 128 KB or more.
MAX_COMMAND_BYTES = 100_000
NAMES = {
    **{"cmd": "command", "run": "script", "code": "script", "path": "script"},
    **{"timeout": "timeout_s", "timeout_seconds": "timeout_s"},
}


class ScriptSettings(BaseModel):
    """The program and what it may use."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    command: tuple[str, ...] = Field(
        (),
        description="The program with its arguments, one per line. Parts such as ./judges/x.py name files "
        "of the suite.",
    )
    script: str = Field(
        "",
        description="The text of a script, instead of a command. Its first line may name an interpreter "
        "(#!/usr/bin/env python3); otherwise sh runs it.",
        json_schema_extra={"widget": "textarea"},
    )
    cwd: str = Field(
        "",
        title="Starts in",
        description="The folder of the suite in which the program starts. Empty: the folder of the suite file.",
    )
    timeout_s: float | None = Field(
        None,
        title="Timeout, seconds",
        gt=0,
        le=MAX_SECONDS,
        description="How long it may run. Empty: 60. The limit of the site applies too.",
    )
    network: bool = Field(
        False, description="Ask for the network; the site must allow it to scripts as well."
    )
    config: Mapping[str, Any] = Field(
        default_factory=dict,
        description="Settings for the script; it reads them as config on stdin.",
    )

    @model_validator(mode="before")
    @classmethod
    def _takes_one_form(cls, values: Any) -> Any:
        """Make a list a command and a text a script, whichever of the two settings holds it."""
        return normalise_program(values) if isinstance(values, Mapping) else values

    @field_validator("command")
    @classmethod
    def _can_be_started(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        check_command_length(command)
        return command

    @property
    def program_problem(self) -> str:
        """Return what is wrong with the program, "" for nothing."""
        return "" if self.command or self.script.strip() else "needs a command or a script"


def check_command_length(command: Sequence[str]) -> None:
    """Raise ValueError for a command that is too long to be started."""
    size = sum(len(part.encode("utf-8", "surrogatepass")) + 1 for part in command)
    if size > MAX_COMMAND_BYTES:
        raise ValueError(
            f"{MAX_COMMAND_BYTES:,} bytes is the limit of a command, and this one has {size:,}; "
            "put the program into a script or a file"
        )


Protocol = Literal["env", "stdin"]


@dataclass(frozen=True, slots=True)
class Program:
    """The command to start, and files it needs besides those of the suite."""

    command: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)


def normalise_program(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with a command as a list and a script as a text; raises ValueError for both."""
    settings = dict(values)
    programs = [
        value for name in PROGRAM if (value := settings.pop(name, None)) not in (None, "", [], ())
    ]
    if len(programs) > 1:
        raise ValueError("command and script are both set; keep one")
    return {**settings, **dict(_program(value) for value in programs)}


def named_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a script in a file under their own names.

    A list is a command. A text is a command if it is a single one without shell syntax, else a script.
    Duplicate settings are kept under another name, so that the config refuses them.
    """
    settings: dict[str, Any] = {}
    for key, original in values.items():
        name, value = NAMES.get(key, key), original
        if name in PROGRAM:
            name, value = _program(original)
        settings[f"{key}_again" if name in settings else name] = value
    return settings


def read_program(settings: ScriptSettings, files: Mapping[str, bytes]) -> Program:
    """Return the program that starts the script in the folder with the files of the suite."""
    if settings.script.strip():
        content = settings.script.encode("utf-8", "surrogatepass")
        up = "/".join(".." for part in settings.cwd.split("/") if part)
        name = f"{up}/{SCRIPT_FILE}" if up else f"./{SCRIPT_FILE}"
        command = (*(_shebang(content) or ("sh",)), name)
        return Program(_launch_command(command, settings.cwd), {SCRIPT_FILE: content})
    first = referenced_path(settings.command[0], settings.cwd or ".")
    interpreter = _interpreter(first, files[first]) if first in files else ()
    return Program(_launch_command((*interpreter, *settings.command), settings.cwd))


def _program(value: Any) -> tuple[str, Any]:
    if not isinstance(value, str):
        return "command", value
    text = value.strip()
    if not text or SHELL_SYNTAX.search(text):
        return "script", value
    try:
        words = shlex.split(text)
    except ValueError:
        return "script", value
    return ("script", value) if words[0] in SHELL_BUILTINS else ("command", words)


def _interpreter(path: str, content: bytes) -> tuple[str, ...]:
    """Return the interpreter of a file of the suite: by its first line, else by its suffix."""
    if content.startswith(b"\x7fELF"):
        return ()
    suffix = f".{path.rpartition('.')[2]}" if "." in path.rpartition("/")[2] else ""
    named = _shebang(content)
    return named or ((INTERPRETERS[suffix],) if suffix in INTERPRETERS else ("sh",))


def _shebang(content: bytes) -> tuple[str, ...]:
    """Return the interpreter named in the first line, () without one."""
    first = content.partition(b"\n")[0].decode("utf-8", "replace").strip()
    if not first.startswith("#!"):
        return ()
    words = first[2:].split()
    if words and words[0].endswith("/env"):
        words = [word for word in words[1:] if word != "-S"]
    return tuple(words)


def _launch_command(command: tuple[str, ...], cwd: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", LAUNCHER, "sh", f"./{cwd}" if cwd else ".", *command)
