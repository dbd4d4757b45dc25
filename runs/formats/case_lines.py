"""Suites in JSON Lines: one case a line, and beside it a YAML file of the same name with the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from evaluators.kinds import normal_spelling
from evaluators.kinds._files import path_of
from evaluators.kinds._yaml import yaml_of
from runs.formats import agentv
from runs.formats._cases_beside import folder_of
from runs.formats._content import SuiteContent
from runs.formats._document import Document, read_document
from runs.formats._lined_cases import read_lined
from runs.formats._problems import Problem, UnreadableFileError
from runs.formats._recognising import CASES_KEYS, LINES_SUFFIXES, YAML_SUFFIXES, Form, misplaced
from runs.formats._writing import case_values, suite_head
from runs.profiles import Profile

LABEL = "JSON Lines of cases"
SUFFIXES = LINES_SUFFIXES
CASES = "tests"
# In the values the lines are one list; a reader of the file looks for the key within a line.
WITHIN_LIST = re.compile(rf"\A{CASES}(\[\d+\]\.?)?")


def read(
    content: bytes,
    *,
    file: str = "suite.jsonl",
    files: Mapping[str, bytes] | None = None,
    profile: Profile | None = None,
) -> SuiteContent:
    """Return the suite of a file of cases and of the YAML beside it, which may be missing.

    `files` holds the files around it by path, the YAML among them: name, description, evaluators,
    judge and policy stand there in the spellings of suite files, and what they leave open is as a
    chosen profile says. Raises UnreadableFileError with every problem found, each with its file and line.
    """
    lines = read_lined(content, file, CASES)
    beside = sidecar_of(file, files or {})
    head = _head(files or {}, beside, file) if beside else Document({})
    if not lines.cases:
        raise UnreadableFileError(lines.problems or [Problem("the file holds no cases", file)])
    document = Document(
        value={**head.value, CASES: lines.cases},
        file=beside or file,
        lines={**head.lines, **lines.lines},
        written={**head.written, **lines.written},
        elsewhere={CASES: file},
    )
    try:
        found = agentv.suite_of(document, files or {}, profile)
    except UnreadableFileError as error:
        lines.problems += [_within_line(problem, file) for problem in error.problems]
    else:
        warnings = tuple(_within_line(problem, file) for problem in found.warnings)
        found = replace(found, warnings=warnings)
        if not lines.problems:
            return found
    only = misplaced(content, file, Form.CASES)
    raise UnreadableFileError([only] if only else lines.problems)


def write(content: SuiteContent) -> tuple[bytes, bytes]:
    """Return the lines and the YAML beside them that read back as this suite."""
    lines = (
        json.dumps(case_values(case), ensure_ascii=False, allow_nan=False) for case in content.cases
    )
    return "".join(f"{line}\n" for line in lines).encode(), yaml_of(suite_head(content)).encode()


def sidecar_of(file: str, files: Mapping[str, bytes]) -> str:
    """Return the path of the YAML beside a file of cases, "" when there is none."""
    stem = PurePosixPath(file).with_suffix("")
    return next((f"{stem}{suffix}" for suffix in YAML_SUFFIXES if f"{stem}{suffix}" in files), "")


def _head(files: Mapping[str, bytes], path: str, cases: str) -> Document:
    document = read_document(agentv.decoded(files[path], path), path)
    if not isinstance(document.value, dict):
        raise UnreadableFileError([Problem("the file is no mapping of keys", path, 1)])
    head = dict(document.value)
    for key, value in document.value.items():
        if normal_spelling(key) not in CASES_KEYS:
            continue
        if not isinstance(value, str) or path_of(value, folder_of(path)) != cases:
            said = "the cases stand in the JSON Lines beside this file; remove them here"
            raise UnreadableFileError([Problem(said, path, document.line_of((key,)), key=key)])
        # It says what is so anyway.
        del head[key]
    return replace(document, value=head if "name" in head else _named(head))


def _named(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with what other readers call the data set as the name of the suite."""
    return {"name" if key == "dataset" else key: value for key, value in head.items()}


def _within_line(problem: Problem, file: str) -> Problem:
    if problem.file != file:
        return problem
    return replace(problem, key=WITHIN_LIST.sub("", problem.key))
