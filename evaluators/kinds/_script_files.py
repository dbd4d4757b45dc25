"""The files of a suite that a script names, and those it may read beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from posixpath import dirname, normpath
from typing import Any

# What each file is run with that has no `#!` of its own.
INTERPRETERS = {
    **{".py": "python3", ".sh": "sh", ".bash": "bash", ".rb": "ruby", ".pl": "perl"},
    **{".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node", ".php": "php", ".lua": "lua"},
}
# Beside the suite file these are suites and cases, which no script imports.
SUITES = (".yaml", ".yml", ".jsonl")
MOST_FILES = 500
MOST_BYTES = 20 * 1024 * 1024
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
        if len(names) > MOST_FILES or sum(map(len, found.values())) > MOST_BYTES:
            raise TooManyFilesError(
                f"the folder of {path!r} holds more than a script can take along: {len(names)} files, of "
                f"which it may have {MOST_FILES} with {MOST_BYTES // 1024**2} MB; put the script into a "
                "folder of its own"
            )
    return found


def _is_hidden(name: str) -> bool:
    parts = [part for part in name.split("/") if part]
    return any(part.startswith(".") or part == "__pycache__" for part in parts)
