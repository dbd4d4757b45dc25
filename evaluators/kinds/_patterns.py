"""Regular expressions under a time limit, matched without holding up the others."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any

import regex  # type: ignore[import-untyped]  # it comes without types

LIMIT_S = 2.0
# Most matches end at once; only a slow one is worth a thread of its own.
AT_ONCE_S = 0.02
LONGEST_PATTERN = 10_000


class SlowPatternError(Exception):
    """The expression did not come to an end within its time."""


@lru_cache(maxsize=1024)
def compiled(pattern: str, *, ignore_case: bool = False) -> Any:
    """Return the compiled expression; raises ValueError with what is wrong and where."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"the pattern is longer than {LONGEST_PATTERN} characters")
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        where = "" if error.pos is None else f" at position {error.pos}"
        raise ValueError(f"{pattern!r} is not a regular expression: {error.msg}{where}") from error


async def found(pattern: Any, text: str) -> str | None:
    """Return the first match in a text, None without one; raises SlowPatternError past the time limit."""
    try:
        return _search(pattern, text, AT_ONCE_S)
    except TimeoutError:
        pass
    try:
        return await asyncio.to_thread(_search, pattern, text, LIMIT_S)
    except TimeoutError as error:
        raise SlowPatternError(
            f"the regular expression {pattern.pattern!r} took longer than {LIMIT_S:g} s"
        ) from error


def _search(pattern: Any, text: str, seconds: float) -> str | None:
    match = pattern.search(text, timeout=seconds, concurrent=True)
    return None if match is None else str(match.group())
