"""Lay two short texts side by side as lines, with the words in which they differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

LONGEST_TEXT = 6_000
LONGEST_LINE_WORDS = 400
LEAST_ALIKE = 0.3
LEAST_ALIKE_TEXTS = 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of words: in both texts, or in one alone."""

    text: str
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line; `tone` is same, bad (only expected) or good (only in the output)."""

    tone: str
    pieces: tuple[Piece, ...]


def text_diff(expected: str, output: str) -> tuple[DiffLine, ...] | None:
    """Return the lines of both texts, or None when they are too long or too unlike to read that way."""
    if len(expected) + len(output) > LONGEST_TEXT or not _are_alike(expected, output):
        return None
    old, new = _lines(expected), _lines(output)
    lines: list[DiffLine] = []
    for action, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if action == "equal":
            lines += [_whole("same", line) for line in old[i1:i2]]
        else:
            lines += _changed(old[i1:i2], new[j1:j2])
    return tuple(lines)


def _are_alike(expected: str, output: str) -> bool:
    """Tell whether the texts share enough words for their differences to be readable."""
    return SequenceMatcher(None, _words(expected), _words(output)).ratio() >= LEAST_ALIKE_TEXTS


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _changed(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    lines: list[DiffLine] = []
    for before, after in zip_longest(old, new):
        if before is None or after is None:
            lines.append(_whole("good" if before is None else "bad", after or before or ""))
        else:
            lines += _pair(before, after)
    return lines


def _pair(before: str, after: str) -> list[DiffLine]:
    old, new = _words(before), _words(after)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    too_long = max(len(old), len(new)) > LONGEST_LINE_WORDS
    if too_long or matcher.ratio() < LEAST_ALIKE:
        return [_whole("bad", before), _whole("good", after)]
    left, right = [], []
    for action, i1, i2, j1, j2 in matcher.get_opcodes():
        is_changed = action != "equal"
        left.append(Piece("".join(old[i1:i2]), is_changed))
        right.append(Piece("".join(new[j1:j2]), is_changed))
    return [DiffLine("bad", _kept(left)), DiffLine("good", _kept(right))]


def _kept(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    return tuple(piece for piece in pieces if piece.text)


def _whole(tone: str, line: str) -> DiffLine:
    return DiffLine(tone, (Piece(line, tone != "same"),))


def _words(line: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]", line)
