"""Compare texts, and match patterns within a time limit."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any

import regex  # type: ignore[import-untyped]  # it comes without types
from regex import _regex_core

MAX_KEPT_LENGTH = 2_000
LEAD = 200


def compare_texts(expected: str, text: str) -> dict[str, bool]:
    """Return whether the answer matches, by kind of comparison."""
    return {
        "exact": text == expected,
        "exact_trimmed": text.strip() == expected.strip(),
        "contains": expected in text,
        "contains_trimmed": expected.strip() in text,
    }


def excerpts(expected: str, text: str) -> dict[str, Any]:
    """Return both texts from shortly before their first difference, for the page to show it."""
    pairs = enumerate(zip(expected, text, strict=False))
    difference = next(
        (n for n, (left, right) in pairs if left != right), min(len(expected), len(text))
    )
    start = max(0, difference - LEAD) if max(len(expected), len(text)) > MAX_KEPT_LENGTH else 0
    return {
        "expected": expected[start : start + MAX_KEPT_LENGTH],
        "output": text[start : start + MAX_KEPT_LENGTH],
        "starts_at": start,
        "is_cut": max(len(expected), len(text)) > start + MAX_KEPT_LENGTH,
    }


LIMIT_S = 2.0
# Most matches end at once; only slow ones run in a thread.
AT_ONCE_S = 0.02
MAX_PATTERN_LENGTH = 10_000
# A few megabytes, compiled.
MAX_UNFOLDED = 20_000


class SlowPatternError(Exception):
    """The regular expression exceeded its time limit."""


@lru_cache(maxsize=64)
def compile_pattern(pattern: str, *, ignore_case: bool = False) -> Any:
    """Return the compiled expression; raises ValueError naming the error and its position.

    An expression whose counted repeats unfold without end is refused: `(?:(?:a{1000}){1000}){1000}` would
    take all memory.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN_LENGTH} characters")
    flags = regex.IGNORECASE if ignore_case else 0
    try:
        if "{" in pattern and _unfolded_size(_parse(pattern, flags)) > MAX_UNFOLDED:
            raise ValueError(
                f"{pattern!r} is too large: written out, its counted repeats have more than "
                f"{MAX_UNFOLDED:,} parts; lower the numbers in braces, or write + or *"
            )
        return regex.compile(pattern, flags, cache_pattern=False)
    except RecursionError as error:
        raise ValueError("the regular expression is nested too deeply") from error
    except regex.error as error:
        where = "" if error.pos is None else f" at position {error.pos}"
        raise ValueError(f"{pattern!r} is not a regular expression: {error.msg}{where}") from error


def _parse(pattern: str, flags: int) -> Any:
    """Return the tree of an expression as the library itself reads it, before it unfolds anything."""
    while True:
        source = _regex_core.Source(pattern)
        info = _regex_core.Info(flags, source.char_type, {})
        info.guess_encoding = regex.UNICODE
        source.ignore_space = bool(info.flags & regex.VERBOSE)
        try:
            return _regex_core._parse_pattern(source, info)
        except _regex_core._UnscopedFlagSet:
            # Flags inside count for the whole expression.
            flags = info.global_flags


def _unfolded_size(node: Any) -> int:
    """Return the parts of an expression when each counted repeat is written out as often as it must occur."""
    if isinstance(node, list | tuple):
        return sum(map(_unfolded_size, node))
    if not isinstance(node, _regex_core.RegexBase):
        return 0
    inner = sum(map(_unfolded_size, vars(node).values()))
    count: int | None = getattr(node, "min_count", None)
    return inner + 1 if count is None else inner * max(count, 1)


async def find_pattern(pattern: Any, text: str) -> str | None:
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
