"""Count what cases and files share, for which a few lines can fill the memory or take hours to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from runs.specs.problems import Problem, UnreadableFileError

MAX_SHARED = 200_000_000
# Of all files of an import, which may name the same one again and again.
MAX_READ, MAX_CASES = 200_000_000, 100_000
# A value takes about as much memory as so many characters.
VALUE = 50
# And the place of a value in a file as much as so many values.
VALUES_OF_A_PLACE = 4


@dataclass(slots=True)
class _Count:
    file: str
    characters: int = 0


# Texts are put into others deep within the readers, and all of them count together.
_COUNT: ContextVar[_Count | None] = ContextVar("shared_texts", default=None)


@contextmanager
def limit_shared_texts(file: str) -> Iterator[None]:
    """Count what is included while a file is read."""
    token = _COUNT.set(_Count(file))
    try:
        yield
    finally:
        _COUNT.reset(token)


@dataclass(slots=True)
class _Import:
    read: int = 0
    cases: int = 0


_IMPORT: ContextVar[_Import | None] = ContextVar("import", default=None)


@contextmanager
def limit_import() -> Iterator[None]:
    """Count what is read, and the cases, while the files of an import are read."""
    token = _IMPORT.set(_Import())
    try:
        yield
    finally:
        _IMPORT.reset(token)


def count_read(content: bytes, file: str) -> None:
    """Count a file that is read; raises UnreadableFileError when those of the import are read too often."""
    count = _IMPORT.get()
    if count is not None:
        count.read += len(content)
        if count.read > MAX_READ:
            limit = f"more than {MAX_READ // 1_000_000} MB"
            message = f"the import reads {limit}, each file as often as it is named; import fewer suites at a time"
            raise UnreadableFileError([Problem(message, file)])


def count_cases(cases: int, file: str) -> None:
    """Count the cases of a suite; raises UnreadableFileError when the import has too many."""
    count = _IMPORT.get()
    if count is not None:
        count.cases += cases
        if count.cases > MAX_CASES:
            message = (
                f"the suites have more than {MAX_CASES:,} cases together; import fewer at a time"
            )
            raise UnreadableFileError([Problem(message, file)])


def include(text: str) -> str:
    """Return a text that goes into another one; raises UnreadableFileError when the file has included too much."""
    _add(len(text))
    return text


def include_values(values: int) -> None:
    """Count values that are copied; raises UnreadableFileError like `include`."""
    _add(VALUE * values)


def include_all(case: Mapping[str, Any]) -> None:
    """Count the texts and values of a case that a file makes of its parts; raises UnreadableFileError like `include`."""
    include(json.dumps(case, ensure_ascii=False, default=str))
    include_values(_number_of_values(case))


def _add(characters: int) -> None:
    count = _COUNT.get()
    if count is not None:
        count.characters += characters
        if count.characters > MAX_SHARED:
            raise UnreadableFileError([Problem(too_much_message(), count.file)])


def _number_of_values(value: Any) -> int:
    inner = value.values() if isinstance(value, Mapping) else value
    return 1 + sum(map(_number_of_values, inner)) if isinstance(value, Mapping | list) else 1


def too_much_message() -> str:
    """Return what is wrong with a file that includes too much."""
    return (
        f"the cases include more than {MAX_SHARED // 1_000_000} million characters of shared texts and "
        "values; share fewer or shorter ones, or in fewer cases"
    )
