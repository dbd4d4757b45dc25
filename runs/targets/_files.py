"""Files a target left, as plain JSON: text, bytes in base64, or a file of the suite."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from posixpath import normpath
from typing import Any, TypeVar

from evaluators.kinds._files import path_of

MOST_FILES = 500
MOST_BYTES = 20_000_000
LONGEST_PATH = 300
MOST_LEFT_OUT = 20
UNSTORABLE = re.compile("[\\x00-\\x1f\\x7f\ud800-\udfff\\\\]")
Written = TypeVar("Written")
FORMS = 'write a text, {"text": …}, {"base64": …} or {"path": …}'


def files_from_json(stored: Any, beside: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """Return the files an output holds, by path.

    A value is the text of the file, or an object with `text`, `base64`, or the `path` of one of the
    files `beside` the suite. Raises ValueError, naming the file, for another form, a path that leads
    out of the output, and too much of it.
    """
    if stored is None:
        return {}
    if not isinstance(stored, Mapping):
        raise ValueError("files is not a mapping of paths to what they hold")
    found: dict[str, bytes] = {}
    for name, value in stored.items():
        path = clean_path(str(name))
        if path in found:
            raise ValueError(f"files: {name!r} stands twice")
        found[path] = _content(str(name), value, beside)
    check_files(found)
    return found


def clean_path(name: str) -> str:
    """Return the path of a file a target left; raises ValueError for one that leads elsewhere."""
    if len(name) > LONGEST_PATH:
        raise ValueError(f"files: {name[:60]!r}… is longer than {LONGEST_PATH} characters")
    path = normpath(name) if name.strip() else ""
    if (
        UNSTORABLE.search(name)
        or path in ("", ".")
        or path.startswith("/")
        or path.split("/")[0] == ".."
    ):
        said = "is no path inside the output; write one like report/summary.md"
        raise ValueError(f"files: {name!r} {said}")
    return path


def kept_files(
    given: Iterable[tuple[str, Written]], read: Callable[[str, Written], bytes]
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the files of an answer, and why others are left out: one odd file costs no answer.

    Of two at one place the later counts. Raises ValueError for too many files and too large ones.
    """
    found: dict[str, bytes] = {}
    left_out: list[str] = []
    for name, written in given:
        try:
            path = clean_path(name)
            content = read(name, written)
            _check_place(path, found)
        except ValueError as error:
            left_out.append(f"A file was left out of the answer: {error}")
        else:
            found[path] = content
            if len(found) > MOST_FILES:
                break
    check_files(found)
    if len(left_out) > MOST_LEFT_OUT:
        more = len(left_out) - MOST_LEFT_OUT
        left_out[MOST_LEFT_OUT:] = [f"{more} more files were left out of the answer"]
    return found, tuple(left_out)


def _check_place(path: str, taken: Mapping[str, bytes]) -> None:
    _check_folders(path, taken)
    if any(other.startswith(f"{path}/") for other in taken):
        raise ValueError(f"files: {path!r} is a folder in which other files lie")


def _check_folders(path: str, taken: Mapping[str, bytes]) -> None:
    parts = path.split("/")
    inside = ("/".join(parts[:n]) for n in range(1, len(parts)))
    if folder := next((folder for folder in inside if folder in taken), ""):
        raise ValueError(f"files: {folder!r} is a file, so {path!r} cannot lie in it")


def check_files(files: Mapping[str, bytes]) -> None:
    """Raise ValueError for too many files, too large ones, and a file where a folder stands."""
    if len(files) > MOST_FILES:
        raise ValueError(f"files: there are {len(files)}, and {MOST_FILES} is the most")
    size = sum(map(len, files.values()))
    if size > MOST_BYTES:
        most = f"{MOST_BYTES // 1_000_000} MB"
        raise ValueError(f"files: they hold {size / 1_000_000:.1f} MB, and {most} is the most")
    for path in files:
        _check_folders(path, files)


def _content(name: str, value: Any, beside: Mapping[str, bytes] | None) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError(f"files: {name!r} is not readable; {FORMS}")
    form, inner = next(iter(value.items()))
    if not isinstance(inner, str):
        raise ValueError(f"files: {name!r}: {form} is not text; {FORMS}")
    match form:
        case "text":
            return inner.encode()
        case "base64":
            return _decoded(name, inner)
        case "path":
            return _beside(name, inner, beside)
        case _:
            raise ValueError(f"files: {name!r}: {form!r} is not known; {FORMS}")


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"files: {name!r} is not readable as base64: {error}") from error


def _beside(name: str, reference: str, beside: Mapping[str, bytes] | None) -> bytes:
    if beside is None:
        said = "names a file of a suite, which only a case of a suite file can"
        raise ValueError(f"files: {name!r} {said}; write its text or base64 here")
    path = path_of(reference)
    if path not in beside:
        raise ValueError(f"files: {name!r}: the file {reference!r} is not among those of the suite")
    return beside[path]
