"""Count the texts and values that cases of one file share, for which a few lines can fill the memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from runs.specs.problems import Problem, UnreadableFileError

MAX_SHARED = 200_000_000
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
