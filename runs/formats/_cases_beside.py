"""The cases of a suite that stand in a file of their own: `tests: ./cases.yaml`, `./cases.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from evaluators.kinds import normal_spelling
from evaluators.kinds._files import path_of
from runs.formats._document import Document, named, read_document
from runs.formats._lined_cases import LinedCases, read_lined
from runs.formats._origins import OUTSIDE, absent
from runs.formats._problems import Problem, UnreadableFileError
from runs.formats._recognising import (
    CASES_KEYS,
    LINES_SUFFIXES,
    YAML_SUFFIXES,
    Form,
    misplaced,
)
from runs.formats._text import decoded


def cases_file_of(document: Document) -> str:
    """Return the path of the file of cases that a suite file's `tests` name, "" when they name none."""
    return path_of(_reference(document), folder_of(document.file)) if _reference(document) else ""


def with_cases(document: Document, files: Mapping[str, bytes]) -> tuple[Document, tuple[str, ...]]:
    """Return the document with the cases of the file its `tests` name, and the path of that file.

    The file is YAML or JSON Lines. Each value keeps its place in its own file; what else `tests` may
    hold is left as it is. Raises UnreadableFileError for a file that is missing or holds no list of cases.
    """
    reference, path, key = _reference(document), cases_file_of(document), _key_of(document)
    if not reference:
        return document, ()
    if path not in files:
        said = absent(reference, files) if path else f"the file {reference!r} {OUTSIDE}"
        raise UnreadableFileError([_problem(document, key, said)])
    read = _lined if path.lower().endswith(LINES_SUFFIXES) else _listed
    cases = read(files[path], path, key)
    found = replace(
        document,
        value={**document.value, key: cases.cases},
        lines={**document.lines, **cases.lines},
        written={**document.written, **cases.written},
        elsewhere={**document.elsewhere, key: path},
    )
    return found, (path,)


def folder_of(file: str) -> str:
    """Return the folder a file lies in, "" for the top."""
    parent = str(PurePosixPath(file).parent)
    return "" if parent == "." else parent


def _listed(content: bytes, path: str, key: str) -> LinedCases:
    """Return the cases of a YAML file."""
    found = read_document(decoded(content, path), path)
    if not isinstance(found.value, list):
        said = f"{named(found.value)} stands where a list of cases is expected"
        raise UnreadableFileError([Problem(said, path, 1)])
    return LinedCases(
        cases=found.value,
        lines={(key, *place): line for place, line in found.lines.items()},
        written={(key, *place): text for place, text in found.written.items()},
    )


def _lined(content: bytes, path: str, key: str) -> LinedCases:
    """Return the cases of JSON Lines."""
    found = read_lined(content, path, key)
    if not found.cases and not found.problems:
        found.problems.append(Problem("the file holds no cases", path))
    only = misplaced(content, path, Form.CASES)
    if only or found.problems:
        raise UnreadableFileError([only] if only else found.problems)
    return found


def _reference(document: Document) -> str:
    key = _key_of(document)
    reference = document.value[key].strip() if key else ""
    return reference if reference.lower().endswith((*YAML_SUFFIXES, *LINES_SUFFIXES)) else ""


def _key_of(document: Document) -> str:
    """Return the key that names a file of cases, "" when none does."""
    if not isinstance(document.value, dict):
        return ""
    keys = (key for key in document.value if normal_spelling(key) in CASES_KEYS)
    return next((key for key in keys if isinstance(document.value[key], str)), "")


def _problem(document: Document, key: str, message: str) -> Problem:
    return Problem(message, document.file, document.line_of((key,)), key=key)
