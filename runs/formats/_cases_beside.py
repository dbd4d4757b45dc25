"""The cases of a suite that stand in a YAML file of their own: `tests: ./cases.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from evaluators.kinds import normal_spelling
from evaluators.kinds._files import path_of
from runs.formats._document import Document, read_document
from runs.formats._fields import named
from runs.formats._problems import Problem, UnreadableFileError
from runs.formats._recognising import CASES_KEYS, YAML_SUFFIXES
from runs.formats._text import decoded


def with_cases(
    document: Document, files: Mapping[str, bytes], folder: str
) -> tuple[Document, tuple[str, ...]]:
    """Return the document with the cases of the YAML file its `tests` name, and the path of that file.

    Each value keeps its place in its own file; what else `tests` may hold is left as it is. Raises
    UnreadableFileError for a file that is missing or holds no list of cases.
    """
    key = _key_of(document)
    reference = document.value[key].strip() if key else ""
    if not reference.lower().endswith(YAML_SUFFIXES):
        return document, ()
    path = path_of(reference, folder)
    if path not in files:
        said = f"the file {reference!r} is not among the files given; add it to the upload"
        raise UnreadableFileError([_problem(document, key, said)])
    cases = read_document(decoded(files[path], path), path)
    if not isinstance(cases.value, list):
        said = f"{named(cases.value)} stands where a list of cases is expected"
        raise UnreadableFileError([Problem(said, path, 1)])
    lines = {(key, *place): line for place, line in cases.lines.items()}
    found = replace(
        document,
        value={**document.value, key: cases.value},
        lines={**document.lines, **lines},
        written={**document.written, **{(key, *at): text for at, text in cases.written.items()}},
        elsewhere={**document.elsewhere, key: path},
    )
    return found, (path,)


def _key_of(document: Document) -> str:
    """Return the key that names a file of cases, "" when none does."""
    if not isinstance(document.value, dict):
        return ""
    keys = (key for key in document.value if normal_spelling(key) in CASES_KEYS)
    return next((key for key in keys if isinstance(document.value[key], str)), "")


def _problem(document: Document, key: str, message: str) -> Problem:
    return Problem(message, document.file, document.line_of((key,)), key=key)
